//! What is fuzzed: one [`Target`] for each reader of bytes from outside.
//!
//! A target's body hands bytes to a reader and asserts what holds for all of them: what was read is written and read
//! again as the same, an error is in one of the reader's own words, nothing outside is touched. Each is run by libFuzzer
//! (`tests/fuzz`) and, over its corpus, by the test `fuzz_corpus`.

mod archives;
mod documents;
mod gpus;
mod kernel;
mod meter;
mod mutants;
mod patches;
mod protocol;
mod receipts;
mod scratch;
mod trees;

use std::path::{Path, PathBuf};

pub use meter::Meter;
pub use mutants::mutants;

/// A reader, and what must hold of it.
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Memory that the body may hold at one time: this many bytes, and some for each byte of input.
    held: (usize, usize),
    body: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    archives::ZIP,
    archives::SAFETENSORS,
    archives::PICKLE,
    archives::ARTIFACT,
    documents::POLICY,
    documents::OCI_CONFIG,
    documents::TASK,
    documents::VERDICT,
    gpus::CDI,
    gpus::LDCACHE,
    kernel::FILTER,
    kernel::MOUNTINFO,
    kernel::STATUS,
    patches::PATCH,
    patches::CHANGESET,
    protocol::PROTOCOL,
    receipts::JOURNAL,
    receipts::RECEIPT,
    receipts::RUN_JSON,
    trees::TREE,
    trees::MANIFEST,
];

/// No reader: it holds its input once more, and may not hold 64 KiB. It fails where memory is counted.
pub const GREEDY: Target =
    Target { name: "greedy", held: (64 << 10, 0), body: |data| drop(std::hint::black_box(data.to_vec())) };

impl Target {
    /// The target of a name.
    ///
    /// # Panics
    /// There is none.
    pub fn named(name: &str) -> &'static Target {
        TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
    }

    /// Runs the body once.
    ///
    /// # Panics
    /// Something does not hold. So it is if the body held more memory than the target allows; that is known only in a
    /// program whose allocator is a [`Meter`].
    pub fn run(&self, data: &[u8]) {
        let held = meter::most_held(|| (self.body)(data));
        let (base, each) = self.held;
        let most = base + each * data.len();
        assert!(
            held <= most,
            "{}: {held} bytes held for {} of input; {most} are allowed",
            self.name,
            data.len()
        );
    }

    /// The files of the target's corpus, by name.
    pub fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(self.name);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }
}

/// Parts of an input that stands for several files: they are divided by a line `%%%`.
fn parts(data: &[u8]) -> Vec<&[u8]> {
    const LINE: &[u8] = b"\n%%%\n";
    let (mut parts, mut rest) = (Vec::new(), data);
    while let Some(at) = rest.windows(LINE.len()).position(|window| window == LINE) {
        // The line end before the divider belongs to the part.
        parts.push(&rest[..=at]);
        rest = &rest[at + LINE.len()..];
    }
    parts.push(rest);
    parts
}

/// A text of an error is one that can be shown: it has no control character but line ends.
fn assert_shown(text: &str) {
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "a control character is shown: {text:?}");
}
