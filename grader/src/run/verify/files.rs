//! The files of a run: all of them, and nothing else.
//!
//! They are listed first, with their kinds and sizes, and read when something names them: what the receipt does not know
//! is told before a byte of it is read.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use serde_json::Value;

use super::{Mismatch, VerifyError};
use crate::Digest;
use crate::journal::canonical;
use crate::receipt::Subject;
use crate::run::directory::{at, read_file};
use crate::run::finish::RECEIPT;
use crate::seal::{Entry, Found, Limits, Manifest, SealError, TreePath, Visit, read_tree, walk};

/// Directories that are there even if nothing lies in them.
const ALWAYS: [&str; 3] = ["changesets", "phases", "store"];

/// What lies in a run directory.
pub(super) struct Files {
    run: PathBuf,
    /// Everything but what the trees of the store hold, and the digests of what was read.
    files: BTreeMap<String, OnceCell<Digest>>,
    directories: BTreeSet<String>,
    /// The store's trees by the names of their directories.
    trees: BTreeMap<String, Tree>,
    /// The first file whose mode is none of a run's.
    odd_mode: Option<(String, u32)>,
    pub(super) bytes: u64,
}

/// A tree of the store.
#[derive(Default)]
struct Tree {
    paths: BTreeSet<TreePath>,
    read: OnceCell<Manifest>,
}

impl Visit for Files {
    fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
        match in_tree(path) {
            Some((tree, below)) => self.trees.entry(tree.to_owned()).or_default().paths.extend(below),
            None => drop(self.directories.insert(path.as_str().to_owned())),
        }
        Ok(())
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
        self.bytes += found.size();
        let mut wrong = Mode::SUID | Mode::SGID | Mode::SVTX | Mode::WOTH;
        match in_tree(found.path) {
            Some((tree, below)) => self.trees.entry(tree.to_owned()).or_default().paths.extend(below),
            None => {
                wrong |= Mode::XUSR | Mode::XGRP | Mode::XOTH;
                self.files.insert(found.path.as_str().to_owned(), OnceCell::new());
            }
        }
        if found.mode().intersects(wrong) && self.odd_mode.is_none() {
            self.odd_mode = Some((found.path.as_str().to_owned(), found.mode().as_raw_mode() & 0o7777));
        }
        Ok(())
    }
}

/// Of a path `store/X/tree/…` the X, and what follows.
fn in_tree(path: &TreePath) -> Option<(&str, Option<TreePath>)> {
    let (name, below) = path.as_str().strip_prefix("store/")?.split_once('/')?;
    match below.strip_prefix("tree")? {
        "" => Some((name, None)),
        // A part of a valid path is one.
        below => Some((name, Some(TreePath::new(below.strip_prefix('/')?).ok()?))),
    }
}

impl Files {
    /// Lists everything by handles. Nothing but regular files and directories may lie there.
    pub(super) fn list(run: &Path) -> Result<Files, VerifyError> {
        let root = File::open(run).map_err(at("opening", run))?;
        let mut files = Files {
            run: run.to_owned(),
            files: BTreeMap::new(),
            directories: BTreeSet::new(),
            trees: BTreeMap::new(),
            odd_mode: None,
            bytes: 0,
        };
        walk(root.as_fd(), &Limits::NONE, &mut files)?;
        Ok(files)
    }

    /// How many files there are, those in trees included. To be asked once the trees are checked.
    pub(super) fn count(&self) -> usize {
        let read = self.trees.values().filter_map(|tree| tree.read.get());
        self.files.len() + read.map(|tree| tree.files().count()).sum::<usize>()
    }

    /// How many trees there are.
    pub(super) fn tree_count(&self) -> usize {
        self.trees.len()
    }

    /// A tree of the store.
    pub(super) fn tree(&self, digest: Digest, by: impl FnOnce() -> String) -> Result<&Manifest, VerifyError> {
        let hex = digest.hex();
        self.read_tree(&hex)?
            .ok_or_else(|| VerifyError::Missing { path: format!("store/{hex}/tree"), by: by() })
    }

    /// What the tree of that name holds, every byte of it read once.
    fn read_tree(&self, name: &str) -> Result<Option<&Manifest>, VerifyError> {
        let Some(tree) = self.trees.get(name) else { return Ok(None) };
        if tree.read.get().is_none() {
            let place = self.run.join("store").join(name).join("tree");
            let root = File::open(&place).map_err(at("opening", &place))?;
            let read = read_tree(root.as_fd(), &Limits::NONE)?;
            return Ok(Some(tree.read.get_or_init(|| read)));
        }
        Ok(tree.read.get())
    }

    /// Whether there is such a file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Files whose path ends so.
    pub(super) fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str).filter(move |path| path.ends_with(end))
    }

    /// The bytes of a file, which are the same whenever they are read.
    pub(super) fn read(&self, path: &str, by: impl FnOnce() -> String) -> Result<Vec<u8>, VerifyError> {
        let Some(known) = self.files.get(path) else {
            return Err(VerifyError::Missing { path: path.to_owned(), by: by() });
        };
        let bytes = read_file(&self.run.join(path))?;
        let digest = Digest::of(&bytes);
        if *known.get_or_init(|| digest) != digest {
            let path = TreePath::new(path).unwrap_or(TreePath::ROOT);
            return Err(SealError::Changed { path }.into());
        }
        Ok(bytes)
    }

    /// The bytes of a file that must have this digest.
    pub(super) fn read_as(
        &self,
        path: &str,
        expected: Digest,
        by: impl Fn() -> String,
    ) -> Result<Vec<u8>, VerifyError> {
        self.same(path, expected, &by)?;
        self.read(path, by)
    }

    /// Checks that a file has this digest.
    pub(super) fn same(
        &self,
        path: &str,
        expected: Digest,
        by: impl Fn() -> String,
    ) -> Result<(), VerifyError> {
        let found = Digest::of(&self.read(path, &by)?);
        if found == expected {
            return Ok(());
        }
        let (path, by) = (path.to_owned(), by());
        let byte = self.first_fault(&path);
        Err(VerifyError::Digest(Box::new(Mismatch { path, byte, by, expected, found })))
    }

    /// Checks that the files are those that the receipt names, each with its digest. What it does not name is told
    /// first, by its name alone.
    pub(super) fn check_subjects(&self, subjects: &[Subject]) -> Result<(), VerifyError> {
        let mut known = BTreeSet::from([RECEIPT]);
        if let Some(twice) = subjects.iter().find(|subject| !known.insert(&subject.name)) {
            let why = format!("it names {} twice", twice.name);
            return Err(VerifyError::Document { path: RECEIPT.into(), byte: None, why });
        }
        if let Some(path) = self.files.keys().find(|path| !known.contains(path.as_str())) {
            return Err(VerifyError::Unknown(path.clone()));
        }
        let holds = |directory: &str| {
            let below = format!("{directory}/");
            known.range(below.as_str()..).next().is_some_and(|name| name.starts_with(&below))
        };
        let empty = |directory: &&String| !ALWAYS.contains(&directory.as_str()) && !holds(directory);
        if let Some(path) = self.directories.iter().find(empty) {
            return Err(VerifyError::Unknown(path.clone()));
        }
        if let Some((path, mode)) = &self.odd_mode {
            return Err(VerifyError::Mode { path: path.clone(), mode: *mode });
        }
        subjects
            .iter()
            .try_for_each(|subject| self.same(&subject.name, subject.digest(), || "the receipt".into()))
    }

    /// Checks that each tree of the store holds what its manifest says, and is named by its digest.
    pub(super) fn check_trees(&self) -> Result<(), VerifyError> {
        for (name, tree) in &self.trees {
            let place = format!("store/{name}");
            let Ok(digest) = Digest::from_hex(name) else { return Err(VerifyError::Unknown(place)) };
            let path = format!("{place}/manifest");
            let bytes = self.read(&path, || format!("{place}/tree"))?;
            let wrong = |why: String| VerifyError::Document { path: path.clone(), byte: None, why };
            let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
            let manifest = Manifest::from_text(&text).map_err(|error| wrong(error.to_string()))?;
            if manifest.digest() != digest {
                let (found, by) = (manifest.digest(), "its directory".to_owned());
                return Err(VerifyError::Digest(Box::new(Mismatch {
                    path,
                    byte: None,
                    by,
                    expected: digest,
                    found,
                })));
            }
            if let Some(path) = tree.paths.iter().find(|path| manifest.get(path).is_none()) {
                return Err(VerifyError::Unknown(format!("{place}/tree/{}", path.as_str())));
            }
            if let Some(tree) = self.read_tree(name)? {
                same_tree(&place, &manifest, tree)?;
            }
        }
        // A manifest whose tree is gone.
        let manifests =
            self.files.keys().filter_map(|path| path.strip_prefix("store/")?.strip_suffix("/manifest"));
        let alone = manifests.filter(|name| !self.trees.contains_key(*name)).map(str::to_owned).next();
        alone.map_or(Ok(()), |name| {
            Err(VerifyError::Missing {
                path: format!("store/{name}/tree"),
                by: format!("store/{name}/manifest"),
            })
        })
    }

    /// Where a file that has not the right digest goes wrong, if that can be known: in JSON that is none, in canonical
    /// JSON that is not canonical, in the manifest of a tree that is whole.
    fn first_fault(&self, path: &str) -> Option<usize> {
        let bytes = read_file(&self.run.join(path)).ok()?;
        if let Some(name) = path.strip_prefix("store/").and_then(|path| path.strip_suffix("/manifest")) {
            let tree = self.read_tree(name).ok()?.filter(|tree| tree.digest().hex() == name)?;
            return first_difference(tree.to_text().as_bytes(), &bytes);
        }
        if !path.ends_with(".json") {
            return None;
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        match serde_json::from_slice::<Value>(text) {
            Err(error) if error.is_eof() => Some(text.len()),
            Err(error) => {
                let before = text.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
                Some(before.map(<[u8]>::len).sum::<usize>() + error.column().saturating_sub(1))
            }
            // These two are JSON, but not canonical.
            Ok(_) if path.ends_with("/spec.json") || path.ends_with("/end.json") => None,
            Ok(value) => first_difference(&canonical(&value).ok()?, text),
        }
    }
}

/// The first byte of `found` that is not as in `expected`; none if there is no difference.
pub(super) fn first_difference(expected: &[u8], found: &[u8]) -> Option<usize> {
    (expected != found).then(|| expected.iter().zip(found).take_while(|(a, b)| a == b).count())
}

fn same_tree(place: &str, manifest: &Manifest, tree: &Manifest) -> Result<(), VerifyError> {
    let path_of = |path: &TreePath| format!("{place}/tree/{}", path.as_str());
    let by = || format!("{place}/manifest");
    for (path, expected) in manifest.entries() {
        match (expected, tree.get(path)) {
            (_, None) => return Err(VerifyError::Missing { path: path_of(path), by: by() }),
            (expected, Some(found)) if expected == found => {}
            (Entry::File(expected), Some(Entry::File(found))) if expected.digest != found.digest => {
                let (expected, found) = (expected.digest, found.digest);
                let (path, by) = (path_of(path), by());
                return Err(VerifyError::Digest(Box::new(Mismatch {
                    path,
                    byte: None,
                    by,
                    expected,
                    found,
                })));
            }
            (expected, Some(found)) => {
                let why = format!("it is {}, but was sealed as {}", kind(found), kind(expected));
                return Err(VerifyError::Document { path: path_of(path), byte: None, why });
            }
        }
    }
    Ok(())
}

fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Directory => "a directory",
        Entry::File(file) if file.executable => "an executable file",
        Entry::File(_) => "a file",
    }
}
