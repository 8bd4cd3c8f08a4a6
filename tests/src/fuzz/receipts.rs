//! What a run leaves, and what is read of it to verify it: the journal, the receipt, `run.json`.

use std::os::unix::fs::PermissionsExt;

use airlock_grader::Digest;
use airlock_grader::journal::{self, Damage, DamageKind, Genesis, JournalError, Record, canonical};
use airlock_grader::receipt::{SecretKey, Statement, sign, verify};
use airlock_grader::run::Manifest;

use super::{Target, scratch};

pub(super) const JOURNAL: Target = Target { name: "journal", held: (384 << 10, 512), body: journal };

pub(super) const RECEIPT: Target = Target { name: "receipt", held: (64 << 10, 256), body: receipt };

pub(super) const RUN_JSON: Target = Target { name: "run_json", held: (64 << 10, 512), body: run_json };

fn genesis() -> Genesis {
    Genesis { run_id: "fuzzed".into(), run: Digest::of(b"run.json") }
}

/// What is read of a journal is all of its bytes, written again. The records of any lines, chained anew, are a journal.
fn journal(data: &[u8]) {
    match read(data) {
        Ok((records, torn)) => {
            let written: Vec<u8> = records.iter().flat_map(|record| record.line().unwrap()).collect();
            assert!(data.starts_with(&written));
            assert_eq!(torn, written.len() < data.len());
        }
        Err(damage) => {
            assert!(damage.offset <= data.len() as u64, "{damage}");
            assert!(damage.line <= 1 + data.split(|byte| *byte == b'\n').count() as u64, "{damage}");
        }
    }
    let mut chained = Vec::new();
    let mut prev = genesis().digest().unwrap();
    let records =
        data.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Record>(line).ok());
    let records: Vec<Record> = records
        .zip(0..)
        .map(|(record, seq)| {
            let record = Record { seq, prev, ..record };
            let line = record.line().unwrap();
            prev = Digest::of(&line);
            chained.extend(line);
            record
        })
        .collect();
    match read(&chained) {
        Ok(all) => assert_eq!(all, (records, false)),
        Err(Damage { kind: DamageKind::ClockBackwards, .. }) => {}
        Err(damage) => panic!("{damage}: {}", chained.escape_ascii()),
    }
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, bool), Damage> {
    let directory = scratch::directory();
    scratch::write(directory.path(), &[("journal.jsonl", bytes)]);
    match journal::peek(directory.path(), &genesis()) {
        Ok(read) => {
            let verified = journal::verify(directory.path(), &genesis(), None);
            assert_eq!(verified.is_ok(), !read.1);
            Ok(read)
        }
        Err(JournalError::Damaged { damage, .. }) => Err(*damage),
        Err(error) => panic!("{error}"),
    }
}

thread_local! {
    /// Of a seed that everybody knows.
    static KEY: SecretKey = {
        let directory = scratch::directory();
        let path = directory.path().join("key");
        std::fs::write(&path, [7; 32]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        SecretKey::load(&path, None).unwrap()
    };
}

/// A receipt is what this key signs, to the byte. Any statement can be signed and verified, and no longer so after a
/// change of one byte.
fn receipt(data: &[u8]) {
    KEY.with(|key| {
        if let Ok(statement) = verify(data, &key.public()) {
            assert_eq!(sign(&statement, key).unwrap(), data);
        }
        let Ok(statement) = serde_json::from_slice::<Statement>(data) else { return };
        let Ok(payload) = canonical(&statement) else { return };
        assert_eq!(serde_json::from_slice::<Statement>(&payload).unwrap(), statement);
        let mut signed = sign(&statement, key).unwrap();
        if let Ok(verified) = verify(&signed, &key.public()) {
            assert_eq!(verified, statement);
        }
        let at = data.len() % signed.len();
        signed[at] ^= 1;
        assert!(verify(&signed, &key.public()).is_err());
    });
}

/// `run.json` has one spelling.
fn run_json(data: &[u8]) {
    let Ok(manifest) = Manifest::from_bytes(data) else { return };
    assert_eq!(manifest.to_bytes().unwrap(), data);
    assert!(manifest.genesis(data).digest().is_ok());
}
