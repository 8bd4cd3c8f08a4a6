//! The receipt: a signed statement of how a run went, which anyone can verify offline.
//!
//! `RUN/receipt.json` is an in-toto Statement v1 in a DSSE envelope, signed with Ed25519. Its subjects are the
//! run's files by digest; its predicate sums up the result and names the journal's head, so that the whole
//! journal is bound. FORMATS.md has the format to the byte, and how to check it with openssl alone.

mod envelope;
mod key;
mod statement;

pub use envelope::{ReceiptError, pae, sign, verify};
pub use key::{KeyError, PublicKey, SecretKey};
pub use statement::{PhaseEvidence, PhaseGpu, PhaseGpus, Predicate, Statement, Subject, Summary};
