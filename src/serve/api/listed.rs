//! Lists of records: the envelope with its cursor, and items cut down to what was asked for.
//!
//! A cursor is where a page ended, sealed: nobody can read out of it how much others have recorded, and one that was altered, or
//! belongs to another list, other filters or another tenant, is refused. The seal's key is the store's own number, so cursors
//! outlive a restart and hold for every process on the file.
//!
//! With `format=jsonl` a list comes as lines, piece after piece: each answer but the last says where the next piece
//! begins ([`Further`]), and whoever sends the pieces asks for one when the one before has been taken (`flow::lines`).
//! Such a piece goes to the end of the list as it is then: what is recorded meanwhile never ends it early. Lists that
//! know no cursors (the ledger's) come as lines all the same, by the numbers of their rows.

use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderName, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use weir_config::vocab::{SpanId, TenantId};
use weir_storage::ReadError;
use weir_storage::query::{Page, Paged, Place};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::shown::Shown;
use super::state::{Api, Roles, answer, to_json};
use crate::control::Further;

/// Bytes of a place as it is sealed, and of its seal.
const PLACE_BYTES: usize = 41;
const SEAL_BYTES: usize = 16;
/// Those of a place that names its span, too. Cursors of an earlier version have none.
const SPAN_BYTES: usize = 16;
/// Items of a piece of lines at most, and about how many bytes of records: one is held in memory for each list on its way.
const PIECE_ITEMS: u32 = 256;
const PIECE_BYTES: usize = 256 * 1024;
/// The fields that hold texts, or are made of them.
const OF_TEXTS: [&str; 9] = [
    "spans",
    "prompt",
    "response",
    "messages",
    "request",
    "spans.prompt",
    "spans.response",
    "spans.messages",
    "spans.request",
];
/// How many spans wait in this gateway's journal that a list as lines lacks.
const UNSHIPPED: HeaderName = HeaderName::from_static("x-service-unshipped-spans");
/// The content type of lines.
pub(super) const LINES: &str = "application/jsonl";

/// A page of records.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub(super) struct Listed<T: JsonSchema> {
    /// The items.
    #[schemars(with = "Vec<Item<T>>")]
    data: Vec<Value>,
    /// How many items match in all, as far as they were counted.
    total: u64,
    /// Whether that is all of them. A filter that the sums do not know is followed through a bounded stretch of the record.
    total_is_exact: bool,
    /// Effective limit. The page may be shorter and the list go on: `next_cursor` says so.
    limit: u32,
    /// Effective offset.
    offset: u64,
    /// Where the next page begins, as `cursor`; null at the end of the list.
    next_cursor: Option<String>,
    #[serde(skip)]
    #[schemars(skip)]
    of: PhantomData<T>,
}

/// An item, or with `fields` a part of it; for the document.
struct Item<T>(PhantomData<T>);

impl<T: JsonSchema> JsonSchema for Item<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ItemOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let whole = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [whole, { "type": "object", "description": "With `fields`: these fields only." }] })
    }
}

/// A list as one caller asks for it.
pub(super) struct List {
    tenant: TenantId,
    /// Which list and filters: cursors hold for these.
    asked: String,
    page: Page,
    cursor: Option<String>,
    fields: Option<Vec<String>>,
    /// One item per line instead of a page.
    lines: bool,
}

impl List {
    /// The list called `name` under this filter, whose items have fields of these names.
    pub(super) fn new(ask: &Ask, name: &str, filter: &impl Debug, known: &[String]) -> Result<Self, ErrorAnswer> {
        let (tenant, query) = (ask.tenant()?, &ask.query);
        let (lines, fields) = (query.lines()?, query.fields(known)?);
        let cursor = ask.further().map_or_else(|| query.cursor(), |further| Ok(Some(further)))?.map(str::to_owned);
        let mut page = query.listed_page()?;
        if lines {
            page = Page { limit: PIECE_ITEMS, or_fewer: true, enough_bytes: PIECE_BYTES, whole: true, ..page };
        }
        let shows = |name: &str| fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == name));
        page.texts &= OF_TEXTS.iter().any(|name| shows(name));
        Ok(Self { tenant, asked: format!("{name} {filter:?}"), page, cursor, fields, lines })
    }

    /// The answer, of what `find` finds in the store for this page.
    pub(super) async fn read<T, F>(self, api: &Api, find: F) -> Answer
    where
        T: Shown,
        F: Fn(&Roles, Page) -> Result<Paged<T>, ReadError> + Send + Sync + 'static,
    {
        if self.lines {
            let read = move |store: &Roles| {
                let found = find(store, self.page(store)?)?;
                let cut = |item: &T| if self.fields.is_none() { to_json(item) } else { to_json(&self.item(item)?) };
                let (bytes, further) = self.lines(store, &found, cut)?;
                Ok((bytes, further, found.unshipped))
            };
            let (bytes, further, unshipped) = api.read_piece(read).await?;
            let mut answer = as_lines(bytes, further);
            if unshipped > 0 {
                answer.headers_mut().insert(UNSHIPPED, unshipped.into());
            }
            return Ok(answer);
        }
        api.read(move |store| self.answer(store, find(store, self.page(store)?)?)).await
    }

    /// Whether it was asked for as lines.
    pub(super) fn comes_as_lines(&self) -> bool {
        self.lines
    }

    /// A piece of lines of a list that knows no cursors, of what `find` finds.
    pub(super) async fn read_lines<T, F>(self, api: &Api, find: F) -> Answer
    where
        T: Serialize,
        F: Fn(&Roles, Page) -> Result<Paged<T>, ErrorAnswer> + Send + Sync + 'static,
    {
        let read = move |store: &Roles| self.lines(store, &find(store, self.page(store)?)?, to_json);
        let (bytes, further) = api.read_piece(read).await?;
        Ok(as_lines(bytes, further))
    }

    /// The page as asked, from where the cursor says.
    fn page(&self, store: &Roles) -> Result<Page, ErrorAnswer> {
        let Some(cursor) = &self.cursor else { return Ok(self.page) };
        let after = self.open(store, cursor)?.ok_or_else(|| {
            ErrorAnswer::invalid(
                "`cursor` is not a `next_cursor` of this list with these filters and this tenant; begin without it",
            )
        })?;
        let after = if self.lines { after.to_the_end() } else { after };
        Ok(Page { after: Some(after), ..self.page })
    }

    /// A page in its envelope.
    fn answer<T: Shown>(&self, store: &Roles, paged: Paged<T>) -> Result<Vec<u8>, ErrorAnswer> {
        let Paged { data, total, limit, offset, total_is_exact, next, .. } = paged;
        let next_cursor = next.map(|place| self.seal(store, &place)).transpose()?;
        if self.fields.is_none() {
            return to_json(&Whole { data, total, total_is_exact, limit, offset, next_cursor });
        }
        let data = data.iter().map(|item| self.item(item)).collect::<Result<_, _>>()?;
        to_json(&Listed::<T> { data, total, total_is_exact, limit, offset, next_cursor, of: PhantomData })
    }

    /// A piece of lines, and the cursor of the next.
    fn lines<T>(
        &self,
        store: &Roles,
        paged: &Paged<T>,
        line: impl Fn(&T) -> Result<Vec<u8>, ErrorAnswer>,
    ) -> Result<(Vec<u8>, Option<String>), ErrorAnswer> {
        let bytes = lines_of(&paged.data, line)?;
        Ok((bytes, paged.next.map(|place| self.seal(store, &place)).transpose()?))
    }

    /// The fields of an item that were asked for.
    fn item<T: Shown>(&self, item: &T) -> Result<Value, ErrorAnswer> {
        some_of(item, self.fields.as_deref().unwrap_or_default())
    }

    fn key(store: &Roles) -> Result<[u8; 32], ErrorAnswer> {
        let file = store.spans.end()?.file();
        Ok(Sha256::new().chain_update(b"weir list cursor").chain_update(file.to_be_bytes()).finalize().into())
    }

    fn seal_of(&self, key: &[u8; 32], plain: &[u8]) -> [u8; 32] {
        let inner = Sha256::new()
            .chain_update(key)
            .chain_update(self.tenant.as_bytes())
            .chain_update((self.asked.len() as u64).to_be_bytes())
            .chain_update(&self.asked)
            .chain_update(plain)
            .finalize();
        Sha256::new().chain_update(key).chain_update(inner).finalize().into()
    }

    fn seal(&self, store: &Roles, place: &Place) -> Result<String, ErrorAnswer> {
        Ok(self.sealed(&Self::key(store)?, place))
    }

    fn sealed(&self, key: &[u8; 32], place: &Place) -> String {
        let mut bytes = Vec::with_capacity(SEAL_BYTES + PLACE_BYTES);
        let numbers =
            [place.start_us.cast_unsigned(), place.row.cast_unsigned(), place.passed, place.skip, place.total];
        let mut plain: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        plain.push(u8::from(place.total_is_exact));
        plain.extend(place.span.iter().flat_map(SpanId::as_bytes));
        bytes.extend_from_slice(self.seal_of(key, &plain).get(..SEAL_BYTES).unwrap_or_default());
        hide(key, &bytes.clone(), &mut plain);
        bytes.extend_from_slice(&plain);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn open(&self, store: &Roles, cursor: &str) -> Result<Option<Place>, ErrorAnswer> {
        Ok(self.opened(&Self::key(store)?, cursor))
    }

    /// The place that was sealed for this list; `None` where it was not.
    fn opened(&self, key: &[u8; 32], cursor: &str) -> Option<Place> {
        let known =
            |bytes: &Vec<u8>| [SEAL_BYTES + PLACE_BYTES, SEAL_BYTES + PLACE_BYTES + SPAN_BYTES].contains(&bytes.len());
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok().filter(known)?;
        let (seal, hidden) = bytes.split_at(SEAL_BYTES);
        let mut plain = hidden.to_vec();
        hide(key, seal, &mut plain);
        if self.seal_of(key, &plain).get(..SEAL_BYTES) != Some(seal) {
            return None;
        }
        let number = |at: usize| {
            let bytes = plain.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_be_bytes(bytes.unwrap_or_default())
        };
        Some(Place {
            start_us: number(0).cast_signed(),
            row: number(1).cast_signed(),
            passed: number(2),
            skip: number(3),
            total: number(4),
            total_is_exact: plain.get(PLACE_BYTES - 1) == Some(&1),
            span: plain.get(PLACE_BYTES..).and_then(|bytes| bytes.try_into().ok()).map(SpanId::from_bytes),
        })
    }
}

/// One item per line.
pub(super) fn lines_of<T>(
    items: &[T],
    line: impl Fn(&T) -> Result<Vec<u8>, ErrorAnswer>,
) -> Result<Vec<u8>, ErrorAnswer> {
    let mut bytes = Vec::new();
    for item in items {
        bytes.extend(line(item)?);
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// A piece of lines, and where the next one begins.
pub(super) fn as_lines(bytes: Vec<u8>, further: Option<String>) -> Response {
    let mut answer = answer(StatusCode::OK, bytes, LINES);
    if let Some(further) = further {
        answer.extensions_mut().insert(Further(further));
    }
    answer
}

/// A page of whole items, written as it is.
#[derive(Serialize)]
struct Whole<T> {
    data: Vec<T>,
    total: u64,
    total_is_exact: bool,
    limit: u32,
    offset: u64,
    next_cursor: Option<String>,
}

/// Mixes in what only the key and the seal give; a second time takes it out again.
fn hide(key: &[u8; 32], seal: &[u8], plain: &mut [u8]) {
    for (at, block) in plain.chunks_mut(32).enumerate() {
        let mask = Sha256::new().chain_update(key).chain_update([at as u8]).chain_update(seal).finalize();
        block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// These fields of an item.
pub(super) fn some_of<T: Shown>(item: &T, fields: &[String]) -> Result<Value, ErrorAnswer> {
    let names = |name: &str| fields.iter().any(|field| field.strip_prefix("spans.").unwrap_or(field) == name);
    let (talks, asks) = (names("messages"), names("request"));
    let value = if talks || asks { item.with_messages(asks) } else { serde_json::to_value(item) };
    Ok(picked(value.map_err(|_| ErrorAnswer::internal())?, fields))
}

/// The fields of an item that were asked for.
fn picked(item: Value, fields: &[String]) -> Value {
    let Value::Object(mut item) = item else { return item };
    let below: Vec<&str> = fields.iter().filter_map(|field| field.strip_prefix("spans.")).collect();
    if !below.is_empty()
        && !fields.iter().any(|field| field == "spans")
        && let Some(Value::Array(spans)) = item.get_mut("spans")
    {
        for span in spans.iter_mut().filter_map(Value::as_object_mut) {
            span.retain(|name, _| below.contains(&name.as_str()));
        }
    }
    item.retain(|name, _| fields.iter().any(|field| field == name) || name == "spans" && !below.is_empty());
    Value::Object(item)
}

/// The names of a type's fields.
pub(super) fn names_of<T: JsonSchema>() -> Vec<String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the version before sealed `place()` for `list()`, with `KEY`.
    const OLD: &str = "zU5hTvRv4fXnmnms9buaI5aSi0ctXqN_LUC3krEAzmFGgLlw6ph9v14ys01pjsjEbRK7AK1uJU8F";
    const KEY: [u8; 32] = [7; 32];

    fn list(asked: &str) -> List {
        let (tenant, asked) = (TenantId::from_bytes([1; 16]), asked.to_owned());
        List { tenant, asked, page: Page::default(), cursor: None, fields: None, lines: false }
    }

    fn place(span: Option<SpanId>) -> Place {
        Place { start_us: 1_700_000_000_000_000, row: 42, span, passed: 20, skip: 0, total: 99, total_is_exact: true }
    }

    #[test]
    fn a_cursor_of_the_version_before_is_read_and_one_with_a_span_comes_back_whole() {
        let list = list("spans a");
        assert_eq!(list.opened(&KEY, OLD), Some(place(None)));
        assert_eq!(list.sealed(&KEY, &place(None)), OLD, "one gateway's own are as they were");
        let with_span = place(Some(SpanId::from_bytes([9; 16])));
        assert_eq!(list.opened(&KEY, &list.sealed(&KEY, &with_span)), Some(with_span));
    }

    #[test]
    fn a_cursor_that_was_altered_or_is_anothers_is_refused() {
        let with_span = list("spans a").sealed(&KEY, &place(Some(SpanId::from_bytes([9; 16]))));
        for cursor in [OLD, with_span.as_str()] {
            assert!(list("spans a").opened(&KEY, cursor).is_some());
            assert_eq!(list("spans b").opened(&KEY, cursor), None, "another list");
            assert_eq!(list("spans a").opened(&[8; 32], cursor), None, "another store");
            for at in 0..cursor.len() {
                let mut altered = cursor.as_bytes().to_vec();
                altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
                assert_eq!(list("spans a").opened(&KEY, std::str::from_utf8(&altered).unwrap()), None, "{at}");
            }
            assert_eq!(list("spans a").opened(&KEY, &cursor[..cursor.len() - 4]), None, "cut");
        }
        // What was sealed with its span does not open without it: nothing in between is a place.
        let bytes = URL_SAFE_NO_PAD.decode(&with_span).unwrap();
        let cut = URL_SAFE_NO_PAD.encode(&bytes[..SEAL_BYTES + PLACE_BYTES]);
        assert_eq!(list("spans a").opened(&KEY, &cut), None);
    }
}
