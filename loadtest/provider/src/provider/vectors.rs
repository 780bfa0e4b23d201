//! Embeddings of all dialects: unit vectors derived from each input's hash.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::quoted;
use super::reply::fnv1a;

/// Length of a vector when the request names none.
const DIMENSIONS_DEFAULT: usize = 64;
const DIMENSIONS_MAX: usize = 4096;
const INPUTS_MAX: usize = 2048;

/// The inputs of one embedding request.
pub(super) struct Inputs {
    /// The model as sent, directives included.
    pub(super) model_sent: String,
    texts: Vec<String>,
    dimensions: usize,
    base64: bool,
}

impl Inputs {
    /// Reads a request body of any dialect.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let json: Value = serde_json::from_slice(body).map_err(|error| format!("body is not JSON: {error}"))?;
        let model_sent = json.get("model").and_then(Value::as_str).ok_or("you must provide a model parameter")?;
        let texts = match json.get("input").or_else(|| json.get("prompt")) {
            Some(Value::String(text)) => vec![text.clone()],
            // Token arrays are inputs too; their printed form will do.
            Some(Value::Array(items)) if items.iter().all(Value::is_number) => {
                vec![Value::from(items.clone()).to_string()]
            }
            Some(Value::Array(items)) => {
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()
            }
            _ => return Err("`input` is missing; accepted are a string or a list of strings".to_owned()),
        };
        if texts.len() > INPUTS_MAX {
            return Err(format!("`input` has {} items; accepted are up to {INPUTS_MAX}", texts.len()));
        }
        let dimensions = json.get("dimensions").and_then(Value::as_u64).unwrap_or(DIMENSIONS_DEFAULT as u64);
        let dimensions = usize::try_from(dimensions).unwrap_or(usize::MAX);
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(format!("`dimensions` is {dimensions}; accepted are 1 to {DIMENSIONS_MAX}"));
        }
        let base64 = json.get("encoding_format").and_then(Value::as_str) == Some("base64");
        Ok(Self { model_sent: model_sent.to_owned(), texts, dimensions, base64 })
    }

    /// The answer of `/v1/embeddings`.
    pub(super) fn list(&self) -> String {
        let item = |(index, text): (usize, &String)| {
            let vector = self.vector(text);
            let shown = match self.base64 {
                true => quoted(&STANDARD.encode(vector.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())),
                false => printed(&vector),
            };
            format!(r#"{{"object":"embedding","index":{index},"embedding":{shown}}}"#)
        };
        let items: Vec<String> = self.texts.iter().enumerate().map(item).collect();
        format!(
            r#"{{"object":"list","data":[{}],"model":{},"usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#,
            items.join(","),
            quoted(self.model()),
            tokens = self.tokens()
        )
    }

    /// The answer of `/api/embed`.
    pub(super) fn local_list(&self) -> String {
        let vectors: Vec<String> = self.texts.iter().map(|text| printed(&self.vector(text))).collect();
        format!(
            r#"{{"model":{},"embeddings":[{}],"total_duration":2000000,"load_duration":1000000,"prompt_eval_count":{}}}"#,
            quoted(self.model()),
            vectors.join(","),
            self.tokens()
        )
    }

    /// The answer of the older `/api/embeddings`: one vector.
    pub(super) fn local_single(&self) -> String {
        let vector = self.texts.first().map_or_else(Vec::new, |text| self.vector(text));
        format!(r#"{{"embedding":{}}}"#, printed(&vector))
    }

    fn model(&self) -> &str {
        self.model_sent.split('@').next().unwrap_or_default()
    }

    fn tokens(&self) -> usize {
        self.texts.iter().map(|text| text.len().div_ceil(4).max(1)).sum()
    }

    fn vector(&self, text: &str) -> Vec<f32> {
        let mut state = fnv1a(&[text.as_bytes()]);
        let raw: Vec<f32> = (0..self.dimensions)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
            })
            .collect();
        let norm = raw.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
        raw.iter().map(|x| x / norm).collect()
    }
}

fn printed(vector: &[f32]) -> String {
    let numbers: Vec<String> = vector.iter().map(|x| format!("{x:.7}")).collect();
    format!("[{}]", numbers.join(","))
}
