//! The DSSE envelope (secure-systems-lab/dsse, protocol.md and envelope.md, version 1).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::statement::{PREDICATE_TYPE, STATEMENT_TYPE};
use super::{PublicKey, SecretKey, Statement};
use crate::Digest;
use crate::journal::{CanonicalError, canonical};

/// `payloadType` of an in-toto statement.
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// Longest receipt, in bytes.
const MAX_RECEIPT: usize = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeSignature {
    keyid: String,
    sig: String,
}

/// Why a receipt is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// Longer than any receipt.
    #[error("receipt: longer than {MAX_RECEIPT} bytes")]
    TooLong,
    /// Not a DSSE envelope.
    #[error("receipt: not a DSSE envelope")]
    NotAnEnvelope(#[source] serde_json::Error),
    /// An envelope, but not the bytes that Airlock writes for it.
    #[error("receipt: byte {0} is not as Airlock writes it (canonical JSON and a newline)")]
    NotCanonical(usize),
    /// Something else was signed.
    #[error("receipt: the payload is of type `{0}`, not {PAYLOAD_TYPE}")]
    UnknownPayloadType(String),
    /// A receipt has one signature.
    #[error("receipt: {0} signatures, not one")]
    SignatureCount(usize),
    /// It names another key.
    #[error("receipt: signed with the key {found}, not with {expected}")]
    WrongKey {
        /// The id of the key that was to verify it.
        expected: Digest,
        /// The id that it names.
        found: String,
    },
    /// Not base64.
    #[error("receipt: `{0}` is not base64 of the right length")]
    NotBase64(&'static str),
    /// It names the right key, but the payload or the signature is not what that key signed.
    #[error("receipt: the signature does not fit: the payload or the signature was altered")]
    Altered,
    /// Rightly signed, but not a statement.
    #[error("receipt: the payload is not an in-toto statement with a receipt")]
    NotAStatement(#[source] serde_json::Error),
    /// Rightly signed, but a statement of another version or about something else.
    #[error("receipt: `{field}` is `{found}`, not {known}")]
    UnknownStatement {
        /// The field.
        field: &'static str,
        /// What it says.
        found: String,
        /// What this version of Airlock knows.
        known: &'static str,
    },
    /// A statement that cannot be written.
    #[error("receipt: the statement cannot be written")]
    Canonical(#[from] CanonicalError),
}

/// The bytes that are signed (DSSE's pre-authentication encoding).
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend(payload);
    bytes
}

/// The bytes of `RUN/receipt.json`.
pub fn sign(statement: &Statement, key: &SecretKey) -> Result<Vec<u8>, ReceiptError> {
    let payload = canonical(statement)?;
    let envelope = Envelope {
        payload: STANDARD.encode(&payload),
        payload_type: PAYLOAD_TYPE.to_owned(),
        signatures: vec![EnvelopeSignature {
            keyid: key.public().id().to_string(),
            sig: STANDARD.encode(key.sign(&pae(PAYLOAD_TYPE, &payload))),
        }],
    };
    file(&envelope)
}

/// The statement of a receipt that this key has signed. Nothing of the payload is read before that is known.
pub fn verify(receipt: &[u8], key: &PublicKey) -> Result<Statement, ReceiptError> {
    if receipt.len() > MAX_RECEIPT {
        return Err(ReceiptError::TooLong);
    }
    let envelope: Envelope = serde_json::from_slice(receipt).map_err(ReceiptError::NotAnEnvelope)?;
    let written = file(&envelope)?;
    if written != receipt {
        return Err(ReceiptError::NotCanonical(
            written.iter().zip(receipt).take_while(|(a, b)| a == b).count(),
        ));
    }
    if envelope.payload_type != PAYLOAD_TYPE {
        return Err(ReceiptError::UnknownPayloadType(envelope.payload_type));
    }
    let [signature] = &envelope.signatures[..] else {
        return Err(ReceiptError::SignatureCount(envelope.signatures.len()));
    };
    if signature.keyid != key.id().to_string() {
        return Err(ReceiptError::WrongKey { expected: key.id(), found: signature.keyid.clone() });
    }
    let payload = STANDARD.decode(&envelope.payload).map_err(|_| ReceiptError::NotBase64("payload"))?;
    let bytes = STANDARD.decode(&signature.sig).ok().and_then(|bytes| bytes.try_into().ok());
    if !key.signed(&pae(PAYLOAD_TYPE, &payload), &bytes.ok_or(ReceiptError::NotBase64("sig"))?) {
        return Err(ReceiptError::Altered);
    }
    let statement: Statement = serde_json::from_slice(&payload).map_err(ReceiptError::NotAStatement)?;
    known("_type", &statement.statement_type, STATEMENT_TYPE)?;
    known("predicateType", &statement.predicate_type, PREDICATE_TYPE)?;
    Ok(statement)
}

fn file(envelope: &Envelope) -> Result<Vec<u8>, ReceiptError> {
    let mut bytes = canonical(envelope)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn known(field: &'static str, found: &str, known: &'static str) -> Result<(), ReceiptError> {
    if found == known {
        Ok(())
    } else {
        Err(ReceiptError::UnknownStatement { field, found: found.to_owned(), known })
    }
}

#[cfg(test)]
mod tests;
