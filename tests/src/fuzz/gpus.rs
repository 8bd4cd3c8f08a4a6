//! What hosts and images say of devices and libraries.

use std::collections::BTreeSet;

use airlock_runtime::gpu::cdi::{Document, Name};
use airlock_runtime::gpu::ldcache::{self, Entry};

use super::Target;

pub(super) const CDI: Target = Target { name: "cdi", held: (2 << 20, 1024), body: cdi };

/// Entries may share their strings: a reader holds at most 16 MiB of them, whatever the input's size.
pub(super) const LDCACHE: Target = Target { name: "ldcache", held: (96 << 20, 64), body: ldcache };

/// A document is written, as JSON and as the YAML that JSON is, and read again as the same. Its devices' names are names.
fn cdi(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(name) = text.trim_end().parse::<Name>() {
        assert_eq!(name.to_string(), text.trim_end());
    }
    for yaml in [false, true] {
        let Ok(document) = Document::parse(text, yaml) else { continue };
        let json = serde_json::to_string(&document).unwrap();
        let again = Document::parse(&json, false).unwrap_or_else(|error| panic!("{error}: {json}"));
        // Of what is refused anyway nothing is known but that it is JSON, whose fractions need not be kept to the last digit.
        if !json.contains("intelRdt") && !json.contains("netDevices") {
            assert_eq!(again, document, "{json}");
        }
        for device in &document.devices {
            let name = Name { kind: document.kind.clone(), device: device.name.clone() };
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}

/// What is read is written and read again as the same: for each soname, kind and features the first entry.
fn ldcache(data: &[u8]) {
    let Ok(entries) = ldcache::parse(data) else { return };
    let mut seen = BTreeSet::new();
    let key = |entry: &Entry| (entry.soname.clone(), entry.flags, entry.hwcap);
    let mut first: Vec<&Entry> = entries.iter().filter(|entry| seen.insert(key(entry))).collect();
    let written = ldcache::write(&entries);
    let again = ldcache::parse(&written).unwrap();
    assert_eq!(ldcache::write(&again), written);
    let mut again: Vec<&Entry> = again.iter().collect();
    first.sort();
    again.sort();
    assert_eq!(again, first);
}
