//! The files of a run: all of them, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Mismatch, VerifyError};
use crate::Digest;
use crate::journal::canonical;
use crate::receipt::Subject;
use crate::run::directory::{at, read_file};
use crate::run::finish::RECEIPT;
use crate::seal::{Copier, Entry, FileEntry, Found, Limits, Manifest, SealError, TreePath, Visit, walk};

/// What lies in a run directory, every byte of it read once.
pub(super) struct Files {
    run: PathBuf,
    /// Everything but what the trees of the store hold.
    files: BTreeMap<String, FileEntry>,
    /// The store's trees by the names of their directories.
    trees: BTreeMap<String, Manifest>,
    pub(super) bytes: u64,
}

/// Reads a whole run directory by handles. Nothing but regular files and directories may lie in it.
struct Reader {
    files: Files,
    copier: Copier,
}

impl Visit for Reader {
    fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
        // Elsewhere a directory is nothing by itself.
        if let Some((tree, below)) = in_tree(path) {
            let tree = self.files.trees.entry(tree.to_owned()).or_default();
            if let Some(below) = below {
                tree.insert(below, Entry::Directory);
            }
        }
        Ok(())
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
        let entry = self.copier.hash(found)?;
        self.files.bytes += found.size();
        match (in_tree(found.path), entry) {
            (Some((tree, Some(below))), entry) => {
                self.files.trees.entry(tree.to_owned()).or_default().insert(below, entry);
            }
            (_, Entry::File(file)) => {
                self.files.files.insert(found.path.as_str().to_owned(), file);
            }
            (_, Entry::Directory) => {}
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
    /// Reads everything.
    pub(super) fn read_all(run: &Path) -> Result<Files, VerifyError> {
        let root = File::open(run).map_err(at("opening", run))?;
        let (files, trees) = (BTreeMap::new(), BTreeMap::new());
        let files = Files { run: run.to_owned(), files, trees, bytes: 0 };
        let mut reader = Reader { files, copier: Copier::new() };
        walk(root.as_fd(), &Limits::NONE, &mut reader)?;
        Ok(reader.files)
    }

    /// How many files there are, those in trees included.
    pub(super) fn count(&self) -> usize {
        self.files.len() + self.trees.values().map(|tree| tree.files().count()).sum::<usize>()
    }

    /// How many trees there are.
    pub(super) fn tree_count(&self) -> usize {
        self.trees.len()
    }

    /// A tree of the store, which line `line` of the journal names.
    pub(super) fn tree(&self, digest: Digest, by: impl FnOnce() -> String) -> Result<&Manifest, VerifyError> {
        let hex = digest.hex();
        self.trees
            .get(&hex)
            .ok_or_else(|| VerifyError::Missing { path: format!("store/{hex}/tree"), by: by() })
    }

    /// Whether there is such a file.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Files whose path ends so.
    pub(super) fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a str> {
        self.files.keys().map(String::as_str).filter(move |path| path.ends_with(end))
    }

    /// The bytes of a file, as they were when everything was read.
    pub(super) fn read(&self, path: &str, by: impl FnOnce() -> String) -> Result<Vec<u8>, VerifyError> {
        let Some(entry) = self.files.get(path) else {
            return Err(VerifyError::Missing { path: path.to_owned(), by: by() });
        };
        let bytes = read_file(&self.run.join(path))?;
        if Digest::of(&bytes) != entry.digest {
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
        match self.files.get(path).map(|entry| entry.digest) {
            None => Err(VerifyError::Missing { path: path.to_owned(), by: by() }),
            Some(found) if found != expected => {
                let byte = self.first_fault(path);
                Err(VerifyError::Digest(Box::new(Mismatch {
                    path: path.to_owned(),
                    byte,
                    by: by(),
                    expected,
                    found,
                })))
            }
            Some(_) => Ok(()),
        }
    }

    /// Checks that the files are those that the receipt names, each with its digest.
    pub(super) fn check_subjects(&self, subjects: &[Subject]) -> Result<(), VerifyError> {
        let mut known = BTreeSet::from([RECEIPT]);
        for subject in subjects {
            if !known.insert(&subject.name) {
                let why = format!("it names {} twice", subject.name);
                return Err(VerifyError::Document { path: RECEIPT.into(), byte: None, why });
            }
            self.same(&subject.name, subject.digest(), || "the receipt".into())?;
        }
        match self.files.keys().find(|path| !known.contains(path.as_str())) {
            Some(path) => Err(VerifyError::Unknown(path.clone())),
            None => Ok(()),
        }
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
            same_tree(&place, &manifest, tree)?;
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
            let tree = self.trees.get(name).filter(|tree| tree.digest().hex() == name)?;
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
    match tree.entries().find(|(path, _)| manifest.get(path).is_none()) {
        Some((path, _)) => Err(VerifyError::Unknown(path_of(path))),
        None => Ok(()),
    }
}

fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Directory => "a directory",
        Entry::File(file) if file.executable => "an executable file",
        Entry::File(_) => "a file",
    }
}
