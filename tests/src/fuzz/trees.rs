//! Trees that somebody else made, and the texts of their manifests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use airlock_grader::Digest;
use airlock_grader::seal::{Entry, Limits, Manifest, SealError, Store, TreePath, read_tree, seal};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{Target, assert_shown, scratch};

pub(super) const TREE: Target = Target { name: "tree", held: (1 << 20, 512), body: tree };

pub(super) const MANIFEST: Target = Target { name: "manifest", held: (64 << 10, 512), body: manifest };

/// Acts at most, so that a run stays short.
const MOST_ACTS: usize = 64;

/// What the walk must find: executable files and their bytes; directories have none.
type Model = BTreeMap<String, Option<(bool, Vec<u8>)>>;

/// An entry, for comparison: its path, and of a file the executable bit, the size and the digest.
type Listed = (String, Option<(bool, u64, Digest)>);

/// A tree in the making.
struct Maker<'a> {
    /// The tree's root; beside it lies a file that links lead to.
    root: &'a Path,
    at: PathBuf,
    depth: usize,
    model: Model,
    /// All of it may be sealed.
    plain: bool,
    last: Option<PathBuf>,
}

/// The bytes are acts that make a tree: what is plain is read as it was made, anything else is refused, and what links
/// lead to is never read. With narrow limits no more is read than they say.
fn tree(data: &[u8]) {
    let directory = scratch::directory();
    scratch::write(directory.path(), &[("outside", b"a secret"), ("tree/.first", b"")]);
    let root = directory.path().join("tree");
    fs::remove_file(root.join(".first")).unwrap();
    let mut maker =
        Maker { root: &root, at: PathBuf::new(), depth: 0, model: Model::new(), plain: true, last: None };
    let mut rest = data;
    for _ in 0..MOST_ACTS {
        let Some(after) = maker.act(rest) else { break };
        rest = after;
    }
    let Maker { model, plain, .. } = maker;
    let handle = File::open(&root).unwrap();
    let found = read_tree(handle.as_fd(), &Limits::default());
    match &found {
        Ok(manifest) => {
            assert!(plain, "{model:?}");
            assert_eq!(of_manifest(manifest), of_model(&model));
            assert_eq!(Manifest::from_text(&manifest.to_text()).as_ref(), Ok(manifest));
        }
        Err(error) => {
            assert!(!plain, "{error}: {model:?}");
            assert_shown(&error.to_string());
        }
    }
    let narrow = Limits { entries: 4, file_bytes: 3, logical_bytes: 6, depth: 2, ..Limits::default() };
    match read_tree(handle.as_fd(), &narrow) {
        Ok(manifest) => {
            assert!(manifest.entries().count() <= 4 && manifest.bytes() <= 6);
            assert!(manifest.entries().all(|(path, _)| path.names().count() <= 2));
            assert_eq!(found.as_ref().ok(), Some(&manifest));
        }
        Err(SealError::Limit { .. }) => {}
        Err(_) => assert!(!plain),
    }
    let store = Store::open(&directory.path().join("store")).unwrap();
    if let (Ok(sealed), Ok(manifest)) = (seal(handle.as_fd(), &store, &Limits::default()), found) {
        assert_eq!((sealed.manifest(), sealed.digest()), (&manifest, manifest.digest()));
        sealed.verify().unwrap();
    }
}

fn of_manifest(manifest: &Manifest) -> Vec<Listed> {
    let entry = |entry: &Entry| entry.as_file().map(|file| (file.executable, file.size, file.digest));
    let mut all: Vec<_> =
        manifest.entries().map(|(path, found)| (path.as_str().to_owned(), entry(found))).collect();
    all.sort();
    all
}

fn of_model(model: &Model) -> Vec<Listed> {
    let file = |(executable, bytes): &(bool, Vec<u8>)| (*executable, bytes.len() as u64, Digest::of(bytes));
    model.iter().map(|(path, made)| (path.clone(), made.as_ref().map(file))).collect()
}

impl Maker<'_> {
    /// Takes one act from the bytes: what to make, the length of its name and of its contents, then both.
    fn act<'d>(&mut self, bytes: &'d [u8]) -> Option<&'d [u8]> {
        let ([act, sizes], rest) = bytes.split_first_chunk::<2>()?;
        let (name, rest) = rest.split_at_checked(usize::from(sizes & 7))?;
        let (contents, rest) = rest.split_at_checked(usize::from(sizes >> 4))?;
        self.make(act % 8, name, contents);
        Some(rest)
    }

    fn make(&mut self, act: u8, name: &[u8], contents: &[u8]) {
        if act == 7 {
            if self.at.pop() {
                self.depth -= 1;
            }
            return;
        }
        let dots = matches!(name, b"" | b"." | b"..");
        if dots || name.contains(&b'/') || name.contains(&0) || self.depth > 8 {
            return;
        }
        let below = self.at.join(OsStr::from_bytes(name));
        let path = self.root.join(&below);
        if path.symlink_metadata().is_ok() {
            return;
        }
        if act == 5 && self.last.is_none() {
            return;
        }
        self.plain &= act <= 3;
        self.plain &= str::from_utf8(name).is_ok_and(|name| TreePath::new(name).is_ok());
        let shown = below.to_string_lossy().into_owned();
        match act {
            0 => {
                fs::create_dir(&path).unwrap();
                self.at = below;
                self.depth += 1;
                self.model.insert(shown, None);
            }
            1..=3 => {
                let executable = act == 3;
                fs::write(&path, contents).unwrap();
                let mode = if executable { 0o700 } else { 0o600 };
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                self.model.insert(shown, Some((executable, contents.to_vec())));
                self.last = Some(path);
            }
            4 => {
                let up = "../".repeat(self.depth + 1);
                symlink(format!("{up}{}", if contents.is_empty() { "outside" } else { "" }), &path).unwrap();
            }
            5 => self.last.iter().for_each(|last| fs::hard_link(last, &path).unwrap()),
            _ => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
        }
    }
}

/// A manifest has one text; its digest is that of what it lists, and each entry's directory is listed before it.
fn manifest(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Manifest::from_text(text) {
        Ok(manifest) => {
            assert_eq!(manifest.to_text(), text);
            let mut shorter = text.trim_end_matches('\n').rsplitn(2, '\n');
            let _ = shorter.next();
            // Without its last line it is another tree.
            if let Some(Ok(other)) = shorter.next().map(|head| Manifest::from_text(&format!("{head}\n"))) {
                assert_ne!(other.digest(), manifest.digest());
            }
            for (path, _) in manifest.entries() {
                let up = path.parent().unwrap();
                assert!(up.is_root() || manifest.get(&up) == Some(&Entry::Directory), "{path}");
            }
        }
        Err(error) => assert!(error.line <= text.lines().count() + 1, "{error}"),
    }
    let line = text.lines().next().unwrap_or_default();
    if let Ok(path) = TreePath::new(line) {
        assert_eq!((path.as_str(), path.to_string().contains('\u{1b}')), (line, false));
        let joined = path.parent().unwrap().join(path.name());
        assert_eq!(joined.as_ref(), Ok(&path));
    }
}
