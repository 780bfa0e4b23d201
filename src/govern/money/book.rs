//! From a model's name to its price.
//!
//! Custom prices win over the pricing file, the file over the built-in list; within each, the name as it stands wins
//! over the same name without its date. What a name may lose is a date, a release number or `latest`, never a word: the
//! price of `gpt-4` says nothing about `gpt-4o`, `gpt-4-turbo` or `gpt-4.1`.
//!
//! | provider | searched in the list as |
//! |---|---|
//! | Azure | `azure/name`, `name` |
//! | Gemini | `gemini/name`, `vertex_ai/name`, `name`; `models/` and `publishers/…/models/` left out |
//! | Bedrock | the id, the id without its region (`eu.`, `us.`, ...); of an ARN what follows the last slash |
//! | a host with prices of its own (`api.groq.com`, ...), a custom provider | `groq/name` |
//! | ollama, vllm, sglang, tgi | not at all: whose own machine it is knows what it costs; ollama is free unless priced |
//! | others | `name`; `openai/name` and relatives as routers spell them |
//!
//! Knows no request; a name is looked up once per thread and book, see [`Prices::find`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use weir_config::prices::{Price, PriceFileError, read_file};
use weir_config::settings::CostEstimation;

use super::list;

/// Remembered names per thread.
const MEMO_SLOTS: usize = 64;
/// Longest model name that is looked up; longer ones have no price.
const NAME_BYTES_MAX: usize = 256;

/// Hosts of providers whose models the list names with a prefix.
const HOSTS: [(&str, &str); 19] = [
    ("groq.com", "groq/"),
    ("deepseek.com", "deepseek/"),
    ("mistral.ai", "mistral/"),
    ("together.xyz", "together_ai/"),
    ("together.ai", "together_ai/"),
    ("fireworks.ai", "fireworks_ai/"),
    ("perplexity.ai", "perplexity/"),
    ("x.ai", "xai/"),
    ("cerebras.ai", "cerebras/"),
    ("sambanova.ai", "sambanova/"),
    ("deepinfra.com", "deepinfra/"),
    ("voyageai.com", "voyage/"),
    ("moonshot.ai", "moonshot/"),
    ("moonshot.cn", "moonshot/"),
    ("z.ai", "zai/"),
    ("minimax.io", "minimax/"),
    ("aliyuncs.com", "dashscope/"),
    ("nebius.com", "nebius/"),
    ("hyperbolic.xyz", "hyperbolic/"),
];
/// Prefixes routers put before a name, and what the list puts there.
const PREFIXES: [(&str, &str); 9] = [
    ("openai/", ""),
    ("anthropic/", ""),
    ("bedrock/", ""),
    ("cohere/", ""),
    ("google/", "gemini/"),
    ("mistralai/", "mistral/"),
    ("x-ai/", "xai/"),
    ("moonshotai/", "moonshot/"),
    ("z-ai/", "zai/"),
];
/// Regions of Bedrock's inference profiles.
const REGIONS: [&str; 8] = ["us.", "eu.", "apac.", "global.", "us-gov.", "jp.", "au.", "ca."];

type Names = SmallVec<[String; 4]>;
type Map = HashMap<Box<str>, Price>;

/// All prices at one moment.
pub struct PriceBook {
    version: u64,
    custom: Map,
    file: Map,
    /// What the names of the upstream's models begin with in the list.
    prefix: Option<&'static str>,
}

/// The prices as they are now, shared by all threads. Reading them takes no lock.
pub struct Prices {
    book: ArcSwap<PriceBook>,
    custom: Map,
    file: Option<PathBuf>,
    prefix: ArcSwap<Option<&'static str>>,
}

// === impl Prices ===

impl Prices {
    /// Reads what the settings name. `upstream_host` is the host of `upstream_url`.
    ///
    /// # Errors
    /// What is wrong with the pricing file.
    pub fn open(settings: &CostEstimation, upstream_host: &str) -> Result<Self, PriceFileError> {
        let custom: Map = lower(settings.custom_models.iter().map(|(name, price)| (name.clone(), *price)));
        let file = settings.pricing_file.clone();
        let prefix = prefix_of(upstream_host);
        let book = PriceBook::read(custom.clone(), file.as_ref(), prefix)?;
        Ok(Self { book: ArcSwap::from_pointee(book), custom, file, prefix: ArcSwap::from_pointee(prefix) })
    }

    /// From now on the names of models are those of the provider at this host; none in particular where it is empty.
    ///
    /// # Errors
    /// What is wrong with the pricing file, where it has to be read again; the former names and prices stay.
    pub fn serve_host(&self, host: &str) -> Result<(), PriceFileError> {
        let prefix = prefix_of(host);
        if **self.prefix.load() != prefix {
            let book = PriceBook::read(self.custom.clone(), self.file.as_ref(), prefix)?;
            self.prefix.store(Arc::new(prefix));
            self.book.store(Arc::new(book));
        }
        Ok(())
    }

    /// Reads the pricing file again; the former prices stay when it is not usable. Says in a few words what came of it.
    ///
    /// # Errors
    /// What is wrong with the pricing file.
    pub fn reload(&self) -> Result<String, PriceFileError> {
        let book = PriceBook::read(self.custom.clone(), self.file.as_ref(), **self.prefix.load())?;
        let said = match &self.file {
            Some(path) => format!("{} prices read from {}", book.file.len(), path.display()),
            None => "no pricing file is configured; the built-in prices stay".to_owned(),
        };
        self.book.store(Arc::new(book));
        Ok(said)
    }

    /// The price of `model` at `provider`.
    pub fn find(&self, provider: &str, model: &str) -> Option<Price> {
        self.quote(provider, model).map(|quote| quote.price)
    }

    /// The price of `model` at `provider`, and whose it is. Names are remembered per thread, so that this is a comparison of
    /// texts.
    pub fn quote(&self, provider: &str, model: &str) -> Option<Quote> {
        thread_local! {
            static MEMO: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
        }
        let book = self.book.load();
        MEMO.with_borrow_mut(|memo| {
            if memo.is_empty() {
                memo.resize_with(MEMO_SLOTS, || None);
            }
            let at = slot(provider, model);
            match memo.get(at) {
                Some(Some(known)) if known.is(book.version, provider, model) => known.quote,
                _ => {
                    let quote = book.quote(provider, model);
                    if let Some(slot) = memo.get_mut(at) {
                        *slot = Some(Known {
                            version: book.version,
                            provider: provider.into(),
                            model: model.into(),
                            quote,
                        });
                    }
                    quote
                }
            }
        })
    }
}

/// A price, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quote {
    /// The price.
    pub price: Price,
    /// Whether the operator has set it: in the settings or in the pricing file.
    pub is_own: bool,
}

/// One remembered answer.
struct Known {
    version: u64,
    provider: Box<str>,
    model: Box<str>,
    quote: Option<Quote>,
}

impl Known {
    fn is(&self, version: u64, provider: &str, model: &str) -> bool {
        self.version == version && *self.model == *model && *self.provider == *provider
    }
}

/// Where a name is remembered. Names that share a slot only displace one another.
fn slot(provider: &str, model: &str) -> usize {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = provider.as_bytes().iter().take(2).chain(model.as_bytes()).fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ (hash >> 32)) as usize % MEMO_SLOTS
}

// === impl PriceBook ===

impl PriceBook {
    fn read(custom: Map, file: Option<&PathBuf>, prefix: Option<&'static str>) -> Result<Self, PriceFileError> {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        let file = file.map(|path| read_file(path)).transpose()?.unwrap_or_default();
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { version, custom, file: lower(file.into_iter()), prefix })
    }

    /// The price of `model` at `provider`.
    pub fn find(&self, provider: &str, model: &str) -> Option<Price> {
        self.quote(provider, model).map(|quote| quote.price)
    }

    fn quote(&self, provider: &str, model: &str) -> Option<Quote> {
        if model.is_empty() || model.len() > NAME_BYTES_MAX {
            return None;
        }
        let model = model.trim().to_ascii_lowercase();
        let own = own_names(provider, &model);
        let priced = |map: &Map| {
            (!map.is_empty())
                .then(|| own.iter().find_map(|name| undated(name, |name| map.get(name).copied())))
                .flatten()
        };
        if let Some(price) = priced(&self.custom).or_else(|| priced(&self.file)) {
            return Some(Quote { price, is_own: true });
        }
        let listed = match provider {
            "ollama" => Some(Price::default()),
            "vllm" | "sglang" | "tgi" => None,
            _ => self.listed(provider, &model),
        };
        listed.map(|price| Quote { price, is_own: false })
    }

    fn listed(&self, provider: &str, model: &str) -> Option<Price> {
        let names = self.list_names(provider, model);
        names
            .iter()
            .find_map(|name| undated(name, list::find))
            .or_else(|| names.iter().find_map(|name| list::find_dated(name)))
    }

    /// The names to search the list for, in this order.
    fn list_names(&self, provider: &str, model: &str) -> Names {
        let bare = model.rsplit_once("models/").map_or(model, |(_, name)| name);
        let mut names = Names::new();
        match provider {
            "azure_openai" => names.extend([format!("azure/{bare}"), bare.to_owned()]),
            "gemini" => names.extend([format!("gemini/{bare}"), format!("vertex_ai/{bare}"), bare.to_owned()]),
            "bedrock" => {
                let id = bare.rsplit('/').next().unwrap_or(bare);
                names.push(id.to_owned());
                names.extend(REGIONS.iter().find_map(|region| id.strip_prefix(region)).map(str::to_owned));
            }
            "openai" => match self.prefix {
                Some(prefix) => names.push(with_prefix(prefix, bare)),
                None => names.push(bare.to_owned()),
            },
            "anthropic" => names.push(bare.to_owned()),
            custom => {
                let prefix = self.prefix.map_or_else(|| format!("{custom}/"), str::to_owned);
                names.extend([with_prefix(&prefix, bare), bare.to_owned()]);
            }
        }
        if self.prefix.is_none() {
            names
                .extend(PREFIXES.iter().find_map(|(there, here)| Some(format!("{here}{}", bare.strip_prefix(there)?))));
        }
        // A fine-tuned model is priced by what it was made from.
        if let Some(tuned) = bare.strip_prefix("ft:").and_then(|rest| rest.split(':').next()) {
            names.push(format!("ft:{tuned}"));
        }
        names
    }
}

/// The names under which an operator may have priced a model.
fn own_names(provider: &str, model: &str) -> Names {
    let mut names = Names::new();
    names.extend([model.to_owned(), format!("{provider}/{model}")]);
    names.extend(model.rsplit_once('/').map(|(_, last)| last.to_owned()));
    names
}

fn with_prefix(prefix: &str, name: &str) -> String {
    if name.starts_with(prefix) { name.to_owned() } else { format!("{prefix}{name}") }
}

fn prefix_of(host: &str) -> Option<&'static str> {
    let ends = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    HOSTS.iter().find(|(domain, _)| ends(domain)).map(|(_, prefix)| *prefix)
}

/// What the list calls the provider behind a host with prices of its own.
pub fn list_name_of_host(host: &str) -> Option<&'static str> {
    prefix_of(host)?.strip_suffix('/')
}

fn lower(prices: impl Iterator<Item = (String, Price)>) -> Map {
    prices.map(|(name, price)| (name.to_ascii_lowercase().into_boxed_str(), price)).collect()
}

/// What `find` says of the name, else of the name without what may be left out at its end.
fn undated(name: &str, find: impl Fn(&str) -> Option<Price>) -> Option<Price> {
    let mut name = name;
    loop {
        if let Some(price) = find(name) {
            return Some(price);
        }
        name = shorter(name)?;
    }
}

/// The name without a date, a release number or `latest` at its end.
fn shorter(name: &str) -> Option<&str> {
    let cut = |tail: usize| name.len().checked_sub(tail + 1).filter(|at| *at > 0);
    let separated = |at: usize| matches!(name.as_bytes().get(at), Some(b'-' | b'@' | b':'));
    // The longer form of a date first: its last part alone means nothing.
    for tail in [10, 8] {
        if let Some(at) = cut(tail).filter(|at| separated(*at))
            && name.get(at + 1..).is_some_and(list::is_date)
        {
            return name.get(..at);
        }
    }
    let at = name.rfind(['-', '@', ':']).filter(|at| *at > 0)?;
    let (head, last) = (name.get(..at)?, name.get(at + 1..)?);
    let digits = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let release = match name.as_bytes().get(at) {
        Some(b':') => digits && is_version(head.rsplit('-').next().unwrap_or_default()),
        _ => digits && matches!(last.len(), 3 | 4),
    };
    // `v2` of `-v2:0`: the release of a model on Bedrock.
    if release && name.as_bytes().get(at) == Some(&b':') {
        return head.rfind('-').and_then(|at| head.get(..at));
    }
    (release || matches!(last, "latest" | "default")).then_some(head)
}

/// `v1`, `v12`.
fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
