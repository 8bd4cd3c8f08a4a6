//! What a tree holds, and the tree digest.
//!
//! Both formats are written down to the byte in `FORMATS.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter::Peekable;

use sha2::{Digest as _, Sha256};

use super::TreePath;
use crate::Digest;

/// First line of a manifest.
const HEADER: &str = "airlock manifest 1";

/// Prefix of what a directory's digest is made of.
const DIRECTORY: &[u8] = b"airlock directory 1\0";

/// One entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileEntry),
}

/// What counts of a regular file. Owner, times, extended attributes and the rest of the mode do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    /// Whether the owner may execute it.
    pub executable: bool,
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its bytes.
    pub digest: Digest,
}

impl Entry {
    pub(crate) const fn file(executable: bool, size: u64, digest: Digest) -> Self {
        Self::File(FileEntry { executable, size, digest })
    }

    /// The file, unless it is a directory.
    pub const fn as_file(&self) -> Option<&FileEntry> {
        match self {
            Self::File(file) => Some(file),
            Self::Directory => None,
        }
    }
}

/// The entries of a tree below its root, in the order of a walk.
///
/// Each entry's directory is an entry as well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    entries: BTreeMap<TreePath, Entry>,
}

/// Where a text is not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the manifest {why}")]
pub struct ManifestError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Manifest {
    /// Adds an entry and the directories above it. Nothing may lie below a file.
    pub(crate) fn insert(&mut self, path: TreePath, entry: Entry) {
        if let Some(parent) = path.parent().filter(|parent| !parent.is_root())
            && !self.entries.contains_key(&parent)
        {
            self.insert(parent, Entry::Directory);
        }
        self.entries.insert(path, entry);
    }

    /// Takes a file out, and the directories that it leaves empty.
    pub(crate) fn remove(&mut self, path: &TreePath) {
        self.entries.remove(path);
        let Some(parent) = path.parent().filter(|parent| !parent.is_root()) else {
            return;
        };
        if self.below(&parent).next().is_none() {
            self.remove(&parent);
        }
    }

    /// Takes out one entry, and nothing else.
    pub(crate) fn forget(&mut self, path: &TreePath) {
        self.entries.remove(path);
    }

    /// The entries below a directory.
    pub(crate) fn below<'a>(
        &'a self,
        directory: &TreePath,
    ) -> impl Iterator<Item = (&'a TreePath, &'a Entry)> {
        let prefix = format!("{}/", directory.as_str());
        self.entries
            .range(directory.clone()..)
            .skip_while({
                let directory = directory.clone();
                move |(path, _)| **path == directory
            })
            .take_while(move |(path, _)| path.as_str().starts_with(&prefix))
    }

    /// The entry `path`.
    pub fn get(&self, path: &TreePath) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// The file `path`.
    pub fn file(&self, path: &TreePath) -> Option<&FileEntry> {
        self.get(path).and_then(Entry::as_file)
    }

    /// All entries, in the order of a walk.
    pub fn entries(&self) -> impl Iterator<Item = (&TreePath, &Entry)> {
        self.entries.iter()
    }

    /// All files, in the order of a walk.
    pub fn files(&self) -> impl Iterator<Item = (&TreePath, &FileEntry)> {
        self.entries().filter_map(|(path, entry)| Some((path, entry.as_file()?)))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files().map(|(_, file)| file.size).sum()
    }

    /// The tree digest: that of the root directory.
    ///
    /// A directory's digest is the SHA-256 of `airlock directory 1`, a zero byte, and then for each entry in the
    /// order of the bytes of its name: one letter (`d` directory, `f` file, `x` executable file), the length of
    /// the name as 2 bytes, the name, for a file its size as 8 bytes, and the digest of the directory or of the
    /// file's bytes. Numbers are big-endian.
    pub fn digest(&self) -> Digest {
        directory(&mut self.entries.iter().peekable(), &TreePath::ROOT)
    }

    /// The manifest as text: one line per entry, in the order of a walk.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (path, entry) in &self.entries {
            let path = path.as_str();
            // Writing to a string cannot fail.
            let _ = match entry {
                Entry::Directory => writeln!(text, "d {path}"),
                Entry::File(FileEntry { executable, size, digest }) => {
                    writeln!(text, "{} {size} {} {path}", if *executable { 'x' } else { 'f' }, digest.hex())
                }
            };
        }
        text
    }

    /// Reads what [`Manifest::to_text`] writes, and nothing else.
    pub fn from_text(text: &str) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why| ManifestError { line: index + 1, why };
            if index == 0 {
                if line != HEADER {
                    return Err(wrong("is not the header"));
                }
                continue;
            }
            let (path, entry) = parse(line).ok_or_else(|| wrong("is not an entry"))?;
            manifest.entries.insert(path, entry);
        }
        // One spelling only: sorted, no path twice, every directory listed, a newline at the end.
        let orphan = manifest.entries.keys().any(|path| {
            path.parent().is_some_and(|up| !up.is_root() && manifest.get(&up) != Some(&Entry::Directory))
        });
        if orphan || manifest.to_text() != text {
            return Err(ManifestError {
                line: text.lines().count(),
                why: "ends a text that is not canonical",
            });
        }
        Ok(manifest)
    }
}

fn parse(line: &str) -> Option<(TreePath, Entry)> {
    let (kind, rest) = line.split_once(' ')?;
    if kind == "d" {
        return Some((TreePath::new(rest).ok()?, Entry::Directory));
    }
    let executable = match kind {
        "f" => false,
        "x" => true,
        _ => return None,
    };
    let (size, rest) = rest.split_once(' ')?;
    let (digest, path) = rest.split_once(' ')?;
    let entry = Entry::file(executable, size.parse().ok()?, Digest::from_hex(digest).ok()?);
    Some((TreePath::new(path).ok()?, entry))
}

/// The digest of a directory whose entries come next.
fn directory<'a>(
    entries: &mut Peekable<impl Iterator<Item = (&'a TreePath, &'a Entry)>>,
    path: &TreePath,
) -> Digest {
    let mut hash = Sha256::new();
    hash.update(DIRECTORY);
    while let Some((entry_path, entry)) = entries.next_if(|(next, _)| next.parent().as_ref() == Some(path)) {
        let name = entry_path.name().as_bytes();
        let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
        let (kind, size, digest) = match entry {
            Entry::Directory => (b'd', None, directory(entries, entry_path)),
            Entry::File(file) => (if file.executable { b'x' } else { b'f' }, Some(file.size), file.digest),
        };
        hash.update([kind]);
        hash.update(length.to_be_bytes());
        hash.update(name);
        if let Some(size) = size {
            hash.update(size.to_be_bytes());
        }
        hash.update(digest.as_bytes());
    }
    <[u8; 32]>::from(hash.finalize()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text).unwrap()
    }

    fn sample() -> Manifest {
        let mut manifest = Manifest::default();
        manifest.insert(path("run"), Entry::file(true, 3, Digest::of(b"abc")));
        manifest.insert(path("src/a b"), Entry::file(false, 0, Digest::of(b"")));
        manifest.insert(path("src.txt"), Entry::file(false, 1, Digest::of(b"x")));
        manifest
    }

    #[test]
    fn digests_a_tree_as_the_format_says() {
        let mut inner = b"airlock directory 1\0f\0\x03a b\0\0\0\0\0\0\0\0".to_vec();
        inner.extend(Digest::of(b"").as_bytes());
        let mut root = b"airlock directory 1\0x\0\x03run\0\0\0\0\0\0\0\x03".to_vec();
        root.extend(Digest::of(b"abc").as_bytes());
        root.extend(b"d\0\x03src");
        root.extend(Digest::of(&inner).as_bytes());
        root.extend(b"f\0\x07src.txt\0\0\0\0\0\0\0\x01");
        root.extend(Digest::of(b"x").as_bytes());
        assert_eq!(sample().digest(), Digest::of(&root));
        assert_eq!(Manifest::default().digest(), Digest::of(b"airlock directory 1\0"));
    }

    #[test]
    fn every_part_of_an_entry_counts() {
        let base = sample().digest();
        let with = |text: &str, entry| {
            let mut manifest = sample();
            manifest.insert(path(text), entry);
            manifest.digest()
        };
        for changed in [
            with("run", Entry::file(false, 3, Digest::of(b"abc"))),
            with("run", Entry::file(true, 4, Digest::of(b"abc"))),
            with("run", Entry::file(true, 3, Digest::of(b"abd"))),
            with("empty", Entry::Directory),
            with("src/empty", Entry::Directory),
        ] {
            assert_ne!(changed, base);
        }
    }

    #[test]
    fn text_has_one_spelling() {
        let text = sample().to_text();
        assert_eq!(Manifest::from_text(&text), Ok(sample()));
        let lines: Vec<&str> = text.lines().collect();
        let joined = |lines: &[&str]| lines.join("\n") + "\n";
        for wrong in [
            text.trim_end().to_owned(),
            text.replace("manifest 1", "manifest 2"),
            joined(&[lines[0], lines[2], lines[1], lines[3], lines[4]]),
            joined(&[lines[0], lines[1], lines[1], lines[2], lines[3], lines[4]]),
            joined(&[lines[0], lines[1], lines[3], lines[4]]),
            text.replace("x 3", "x 03"),
            text.replace("src/a b", "src/../b"),
        ] {
            assert!(Manifest::from_text(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn removing_a_file_removes_the_directories_it_leaves_empty() {
        let mut manifest = sample();
        manifest.insert(path("src/deep/er"), Entry::file(false, 1, Digest::of(b"x")));
        manifest.remove(&path("src/deep/er"));
        assert_eq!(manifest, sample());
    }

    proptest::proptest! {
        /// One manifest has one text: an edited one is another manifest's, or refused at one of its lines.
        #[test]
        fn no_two_texts_are_one_manifest(
            at in 0..200_usize,
            length in 0..8_usize,
            with in "[dfx0-9a /.\\n]{0,8}",
        ) {
            let mut text = sample().to_text();
            let at = at % text.len();
            text.replace_range(at..(at + length).min(text.len()), &with);
            match Manifest::from_text(&text) {
                Ok(manifest) => proptest::prop_assert_eq!(manifest.to_text(), text),
                Err(error) => proptest::prop_assert!(error.line <= text.lines().count() + 1, "{}", error.line),
            }
        }
    }
}
