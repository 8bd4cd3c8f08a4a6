//! Changes to a tree, as patches and as changesets.

use std::fs::File;
use std::os::fd::AsFd;

use airlock_grader::changeset::{Changeset, ChangesetError, import_patch, render_patch};
use airlock_grader::seal::{Limits, Store, seal};

use super::{Target, assert_shown, scratch};

pub(super) const PATCH: Target = Target { name: "patch", held: (1 << 20, 512), body: patch };

pub(super) const CHANGESET: Target = Target { name: "changeset", held: (64 << 10, 128), body: changeset };

/// The frozen tree that patches are made against.
const FROZEN: [(&str, &[u8]); 5] = [
    ("train.py", b"import a\nimport b\n\ndef run():\n    return 1\n"),
    ("a b", b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"),
    ("dir/quo\"te", b"no newline at the end"),
    ("dir/empty", b""),
    ("dir/binary", b"\0\x01\x02"),
];

/// A patch that is taken is rendered as one that makes the same change; one that is not names a line of itself.
fn patch(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let directory = scratch::directory();
    scratch::write(&directory.path().join("frozen"), &FROZEN);
    let store = Store::open(&directory.path().join("store")).unwrap();
    let tree = File::open(directory.path().join("frozen")).unwrap();
    let frozen = seal(tree.as_fd(), &store, &Limits::default()).unwrap();
    match import_patch(text, &frozen, &store, &Limits::default()) {
        Ok(changeset) => {
            let json = changeset.to_json().unwrap();
            assert_eq!(Changeset::from_json(&json).unwrap(), changeset);
            let result = changeset.result(frozen.manifest()).unwrap();
            assert_eq!(result == *frozen.manifest(), changeset.is_empty());
            let rendered = render_patch(&changeset, &store).unwrap();
            // A file that is empty before or after has no lines to show, and binary content is only named.
            match import_patch(&rendered, &frozen, &store, &Limits::default()) {
                Ok(again) => assert_eq!(again, changeset, "{rendered}"),
                Err(error) => assert!(rendered.contains("\nBinary files "), "{error}: {rendered}"),
            }
        }
        Err(ChangesetError::Patch(error)) => {
            assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}");
            assert_shown(&error.to_string());
        }
        Err(error) => assert_shown(&error.to_string()),
    }
}

/// A changeset has one spelling, and its paths are sorted.
fn changeset(data: &[u8]) {
    let Ok(changeset) = Changeset::from_json(data) else { return };
    assert_eq!(changeset.to_json().unwrap(), data);
    assert!(changeset.files().is_sorted_by(|a, b| a.path() < b.path()));
    for change in changeset.files() {
        assert!(change.path().names().all(|name| name != ".."));
    }
}
