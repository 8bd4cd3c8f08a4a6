//! What a submitted artifact may be: archives, safetensors, pickles, and a gate over all of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::AsFd;

use airlock_grader::gate::{
    ArtifactGate, ArtifactRules, Pickles, ZipEntry, is_pickle, read_entries, read_header, scan_pickles,
};
use airlock_grader::seal::{Limits, Store, seal};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{Target, assert_shown, scratch};

pub(super) const ZIP: Target = Target { name: "zip", held: (64 << 10, 64), body: zip };

pub(super) const SAFETENSORS: Target =
    Target { name: "safetensors", held: (64 << 10, 64), body: safetensors };

pub(super) const PICKLE: Target = Target { name: "pickle", held: (64 << 10, 256), body: pickle };

pub(super) const ARTIFACT: Target = Target { name: "artifact", held: (1 << 20, 256), body: artifact };

/// A file that holds these bytes.
fn file(bytes: &[u8]) -> File {
    let mut file = File::from(memfd_create("fuzzed", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file
}

/// The entries lie one after the other between the first byte and the directory, each under a name of its own that
/// stands right before it.
fn zip(data: &[u8]) {
    let Ok(entries) = read_entries(&file(data)) else { return };
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), entries.len());
    let mut free = 0;
    for ZipEntry { name, start, len } in &entries {
        let (start, end) = (usize::try_from(*start).unwrap(), usize::try_from(start + len).unwrap());
        assert!(start >= free + 30 + name.len() && end <= data.len(), "{name:?} at {start}..{end}");
        assert!(
            data[free..start].windows(name.len().max(1)).any(|window| window == name.as_bytes())
                || name.is_empty()
        );
        free = end;
    }
}

/// The tensors cover all bytes behind the header, each once.
fn safetensors(data: &[u8]) {
    let Ok(header) = read_header(&file(data)) else { return };
    let length = u64::from_le_bytes(data[..8].try_into().unwrap());
    let mut at = 8 + length;
    for tensor in &header.tensors {
        assert_eq!(tensor.start, at, "{}", tensor.name);
        at += tensor.len;
    }
    assert_eq!(at, data.len() as u64);
    let names: BTreeSet<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names.len(), header.tensors.len());
}

/// How the bytes arrive makes no difference, and what is found in the beginning of a stream is found in all of it.
fn pickle(data: &[u8]) {
    let whole = scan_pickles(data).ok();
    let pieces = scan_pickles(BufReader::with_capacity(2, data)).ok();
    assert_eq!(whole, pieces);
    assert_eq!(is_pickle(data), is_pickle(BufReader::with_capacity(2, data)));
    let Some(facts) = whole else { return };
    assert!((1..=5).contains(&facts.pickles));
    let longer = scan_pickles(&[data, b"N."].concat()[..]).unwrap();
    assert!(longer.unknown >= facts.unknown && longer.imports.is_superset(&facts.imports));
}

/// What the first byte calls the file.
const NAMES: [&str; 8] = [
    "m.safetensors",
    "m.pt",
    "config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "weights.dat",
    "m.npz",
    "run.py",
];

/// Where pickles are refused at least as much is refused as where they are scanned, and a refusal can be shown.
fn artifact(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let directory = scratch::directory();
    let name = NAMES[usize::from(*first) % NAMES.len()];
    scratch::write(&directory.path().join("tree"), &[(name, bytes)]);
    let store = Store::open(&directory.path().join("store")).unwrap();
    let tree = File::open(directory.path().join("tree")).unwrap();
    let sealed = seal(tree.as_fd(), &store, &Limits::default()).unwrap();
    let refused = |pickles| {
        let refusals =
            ArtifactGate::new(ArtifactRules { pickles, ..ArtifactRules::default() }).check(&sealed).unwrap();
        refusals.iter().for_each(|refusal| assert_shown(&refusal.to_string()));
        refusals
    };
    let (all, some) = (refused(Pickles::Refuse), refused(Pickles::Scan));
    assert!(all.len() >= some.len(), "{some:?} and not {all:?}");
}
