//! `/api/v1/receipts/key`: the public key of receipts, for whoever checks them.

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::receipts::PublicKey;

/// A public key.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReceiptKey {
    /// `Ed25519`.
    algorithm: &'static str,
    /// By which receipts name it: the first 16 digits of its SHA-256.
    key: String,
    /// Its 32 bytes in hexadecimal.
    public_key: String,
    /// The same as SubjectPublicKeyInfo (RFC 8410), PEM.
    public_key_pem: String,
}

pub(super) async fn key(api: Api, _ask: Ask) -> Answer {
    let key: PublicKey =
        api.receipt_key.ok_or_else(|| ErrorAnswer::not_found("receipts are off (`receipts.enabled`)"))?;
    let shown =
        ReceiptKey { algorithm: "Ed25519", key: key.id(), public_key: key.to_hex(), public_key_pem: key.to_pem() };
    Ok(answer(StatusCode::OK, to_json(&shown)?, "application/json"))
}
