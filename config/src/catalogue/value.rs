//! Typed reads of checked values, for the setters of the table.
//!
//! A value that passed its kind's check always fits; when a row's kind and setter disagree the read fails as
//! [`Unfit`], which loading reports as a violation instead of running with something else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value;

use crate::address;
use crate::vocab::SharedSecret;

/// A value that is not of the type its setter stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value does not have the type of its setting")]
pub struct Unfit;

/// A flag.
pub(super) fn flag(value: &Value) -> Result<bool, Unfit> {
    value.as_bool().ok_or(Unfit)
}

/// A whole number that fits the field.
pub(super) fn int<T: TryFrom<u64>>(value: &Value) -> Result<T, Unfit> {
    value.as_u64().and_then(|number| T::try_from(number).ok()).ok_or(Unfit)
}

/// A whole number that fits the field, or `None` for null.
pub(super) fn optional_int<T: TryFrom<u64>>(value: &Value) -> Result<Option<T>, Unfit> {
    if value.is_null() { Ok(None) } else { int(value).map(Some) }
}

/// A number.
pub(super) fn float(value: &Value) -> Result<f64, Unfit> {
    value.as_f64().ok_or(Unfit)
}

/// A number of which it matters whether somebody wrote it.
pub(super) fn written_float(value: &Value) -> Result<Option<f64>, Unfit> {
    float(value).map(Some)
}

/// A number, or `None` for null.
pub(super) fn optional_float(value: &Value) -> Result<Option<f64>, Unfit> {
    if value.is_null() { Ok(None) } else { float(value).map(Some) }
}

/// A text.
pub(super) fn text(value: &Value) -> Result<&str, Unfit> {
    value.as_str().ok_or(Unfit)
}

/// A text to keep.
pub(super) fn owned_text(value: &Value) -> Result<String, Unfit> {
    text(value).map(str::to_owned)
}

/// A text to keep, or nothing.
pub(super) fn optional_text(value: &Value) -> Result<Option<String>, Unfit> {
    if value.is_null() { Ok(None) } else { owned_text(value).map(Some) }
}

/// A path.
pub(super) fn path(value: &Value) -> Result<PathBuf, Unfit> {
    text(value).map(PathBuf::from)
}

/// A text some vocabulary type reads.
pub(super) fn parsed<T: FromStr>(value: &Value) -> Result<T, Unfit> {
    text(value)?.parse().map_err(|_| Unfit)
}

/// A path, or `None` for null.
pub(super) fn optional_path(value: &Value) -> Result<Option<PathBuf>, Unfit> {
    if value.is_null() { Ok(None) } else { text(value).map(|path| Some(PathBuf::from(path))) }
}

/// An address to listen on.
pub(super) fn listen_addr(value: &Value) -> Result<SocketAddr, Unfit> {
    address::listen_addr(text(value)?).map_err(|_| Unfit)
}

/// An address to listen on, or `None` for null.
pub(super) fn optional_addr(value: &Value) -> Result<Option<SocketAddr>, Unfit> {
    if value.is_null() { Ok(None) } else { listen_addr(value).map(Some) }
}

/// A credential, or `None` for null.
pub(super) fn optional_secret(value: &Value) -> Result<Option<SharedSecret>, Unfit> {
    if value.is_null() { Ok(None) } else { text(value).map(|text| Some(SharedSecret::new(text))) }
}

/// Texts.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(owned_text).collect()
}

/// One of a few texts.
pub(super) fn one_of<T: Copy>(value: &Value, names: &[(&str, T)]) -> Result<T, Unfit> {
    let name = text(value)?;
    names.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning).ok_or(Unfit)
}
