use std::fs;
use std::process::Command;

use airlock_runtime::gpu::Counters;

use super::super::{PhaseEvidence, PhaseGpu, PhaseGpus, Predicate, Subject, Summary};
use super::*;
use crate::journal::{Head, Outcome};
use crate::score::{Counts, Score};

fn statement() -> Statement {
    let digest = Digest::of(b"something");
    let result = Summary {
        outcome: Outcome::Scored,
        candidate: Some(digest),
        score: Some(Score { sum: 87u64.into(), n: 512.try_into().unwrap() }),
        sigma: Some("0.099954".parse().unwrap()),
        counts: Some(Counts { planned: 512, ok: 87, wrong: 425, ..Counts::default() }),
        in_process: false,
    };
    let state = Counters {
        memory_used: 85_520_809_984,
        ecc_corrected: Some(1),
        ecc_uncorrected: Some(0),
        sm_clock: Some(1980),
        sm_clock_max: None,
        memory_clock: None,
        temperature: Some(31),
        power_limit: None,
    };
    let gpu = PhaseGpu {
        uuid: "GPU-1".into(),
        slice_of: None,
        name: "NVIDIA H100".into(),
        before: state.clone(),
        after: Some(state),
        memory_peak: Some(1 << 36),
        energy: None,
        xids: vec![31],
    };
    let gpus = PhaseGpus {
        driver: "550.54.15".into(),
        cuda: "12.4".into(),
        devices: vec![gpu],
        left: Vec::new(),
        exceeded: None,
        reset: Some(true),
    };
    let phase = PhaseEvidence {
        phase: 0,
        name: "explore".into(),
        policy: digest,
        spec: digest,
        evidence: digest,
        gpus: Some(gpus),
    };
    Statement::new(
        vec![Subject::new("run.json", Digest::of(b"{}")), Subject::new("journal.jsonl", digest)],
        Predicate {
            airlock: "0.1.0".into(),
            run_id: "soup-1 é\n".into(),
            task: digest,
            result,
            journal: Head { lines: 9, bytes: 1234, digest },
            phases: vec![phase],
            weaker: vec!["no device filter".into()],
        },
    )
}

fn key() -> (tempfile::TempDir, SecretKey) {
    let folder = tempfile::tempdir().unwrap();
    let key = SecretKey::generate(&folder.path().join("key")).unwrap();
    (folder, key)
}

/// An envelope with a change made to it, written as Airlock would.
fn changed(receipt: &[u8], change: impl FnOnce(&mut Envelope)) -> Vec<u8> {
    let mut envelope = serde_json::from_slice(receipt).unwrap();
    change(&mut envelope);
    file(&envelope).unwrap()
}

/// The example of DSSE's protocol.md.
#[test]
fn the_encoding_is_that_of_the_specification() {
    let bytes = pae("http://example.com/HelloWorld", b"hello world");
    assert_eq!(bytes, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    assert_eq!(pae("é", &[0, 255]), b"DSSEv1 2 \xc3\xa9 2 \0\xff");
}

#[test]
fn what_was_signed_is_verified() {
    let (_folder, key) = key();
    let receipt = sign(&statement(), &key).unwrap();
    assert_eq!(verify(&receipt, &key.public()).unwrap(), statement());
    assert_eq!(sign(&statement(), &key).unwrap(), receipt, "Ed25519 has no chance in it");
}

#[test]
fn every_flipped_bit_is_found() {
    let (_folder, key) = key();
    let receipt = sign(&statement(), &key).unwrap();
    let payload = 100..receipt.len() - 300;
    // A signature over each of the payload's bytes would take long in a debug build.
    for at in (0..receipt.len()).filter(|at| !payload.contains(at) || at % 16 == 0) {
        let mut bad = receipt.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(verify(&bad, &key.public()).is_err(), "byte {at}");
    }
    for bad in [&receipt[..receipt.len() - 1], &receipt[1..], b"", &[&receipt[..], b"\n"].concat()] {
        assert!(verify(bad, &key.public()).is_err());
    }
}

#[test]
fn each_wrong_has_its_name() {
    let ((_folder, key), (_other_folder, other)) = (key(), key());
    let receipt = sign(&statement(), &key).unwrap();
    let error = |receipt: &[u8]| verify(receipt, &key.public()).unwrap_err();

    assert!(matches!(error(&sign(&statement(), &other).unwrap()), ReceiptError::WrongKey { .. }));
    let renamed = changed(&sign(&statement(), &other).unwrap(), |envelope| {
        envelope.signatures[0].keyid = key.public().id().to_string();
    });
    assert!(matches!(error(&renamed), ReceiptError::Altered));
    let mut better = statement();
    better.predicate.result.sigma = Some("1.000000".parse().unwrap());
    let altered =
        changed(&receipt, |envelope| envelope.payload = STANDARD.encode(canonical(&better).unwrap()));
    assert!(matches!(error(&altered), ReceiptError::Altered));
    let other_type = changed(&receipt, |envelope| envelope.payload_type = "text/plain".into());
    assert!(matches!(error(&other_type), ReceiptError::UnknownPayloadType(_)));
    let twice = changed(&receipt, |envelope| {
        let EnvelopeSignature { keyid, sig } = &envelope.signatures[0];
        envelope.signatures.push(EnvelopeSignature { keyid: keyid.clone(), sig: sig.clone() });
    });
    assert!(matches!(error(&twice), ReceiptError::SignatureCount(2)));
    let none = changed(&receipt, |envelope| envelope.signatures.clear());
    assert!(matches!(error(&none), ReceiptError::SignatureCount(0)));
    let short = changed(&receipt, |envelope| envelope.signatures[0].sig.truncate(40));
    assert!(matches!(error(&short), ReceiptError::NotBase64("sig")));
    let url_safe = changed(&receipt, |envelope| envelope.payload.replace_range(..1, "-"));
    assert!(matches!(error(&url_safe), ReceiptError::NotBase64("payload")));
    let pretty = [&b" "[..], &receipt].concat();
    assert!(matches!(error(&pretty), ReceiptError::NotCanonical(0)));
    let extra =
        String::from_utf8(receipt.clone()).unwrap().replace("{\"payload\"", "{\"extra\":1,\"payload\"");
    assert!(matches!(error(extra.as_bytes()), ReceiptError::NotAnEnvelope(_)));
    assert!(matches!(error(&vec![b' '; MAX_RECEIPT + 1]), ReceiptError::TooLong));
}

#[test]
fn what_was_signed_must_be_a_receipt() {
    let (_folder, key) = key();
    let mut other = statement();
    other.predicate_type = "https://slsa.dev/provenance/v1".into();
    let error = verify(&sign(&other, &key).unwrap(), &key.public()).unwrap_err();
    assert!(matches!(error, ReceiptError::UnknownStatement { field: "predicateType", .. }), "{error}");
    let payload = b"{\"_type\":1}";
    let envelope = changed(&sign(&other, &key).unwrap(), |envelope| {
        envelope.payload = STANDARD.encode(payload);
        envelope.signatures[0].sig = STANDARD.encode(key.sign(&pae(PAYLOAD_TYPE, payload)));
    });
    assert!(matches!(verify(&envelope, &key.public()), Err(ReceiptError::NotAStatement(_))));
}

/// As FORMATS.md tells people to do it.
#[test]
fn openssl_verifies_a_receipt_too() {
    let present = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !present("openssl") || !present("python3") {
        eprintln!("skipped: openssl or python3 is not installed");
        return;
    }
    let (folder, key) = key();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("receipt.json"), sign(&statement(), &key).unwrap()).unwrap();
    fs::write(at("key.pem"), key.public().to_pem()).unwrap();
    let run = |program: &str, words: &[&str]| {
        Command::new(program).args(words).current_dir(folder.path()).output().unwrap()
    };
    let output =
        run("python3", &["-I", "-c", &crate::formats_program("receipt.py"), "receipt.json", "pae", "sig"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Statement = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read, statement());
    let words =
        ["pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "pae", "-sigfile", "sig"];
    let output = run("openssl", &words);
    assert!(output.status.success(), "{output:?}");
    let mut bytes = fs::read(at("pae")).unwrap();
    bytes[100] ^= 1;
    fs::write(at("pae"), bytes).unwrap();
    assert!(!run("openssl", &words).status.success(), "openssl does look at it");
}
