//! The frozen parts of a task as they lie on the disk.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::resolved::PARTS;

/// Far more than a task has beside its assets.
const MOST_ENTRIES: usize = 200_000;
/// Deepest nesting that is walked; the stack and the seal take as much.
const DEEPEST: usize = 64;

impl Draft<'_> {
    /// Checks that what a task must have is there and is made of files and directories alone. Returns the files
    /// of `environment/`, relative to it.
    pub(super) fn layout(&mut self, has_table: bool) -> Vec<PathBuf> {
        for (name, file, help) in [
            ("instruction.md", true, "it is what the agent gets to read"),
            ("environment", false, "it holds the frozen source, from which every workspace is made"),
            ("tests/test.sh", true, "a task without [airlock] is graded by it"),
        ] {
            if has_table && name.starts_with("tests") {
                continue;
            }
            match fs::symlink_metadata(self.dir.join(name)) {
                Err(error) => self.tree(Path::new(name), error, help),
                Ok(found) if found.is_symlink() => {}
                Ok(found) if file && !found.is_file() => self.tree(Path::new(name), "not a file", help),
                Ok(found) if !file && !found.is_dir() => self.tree(Path::new(name), "not a directory", help),
                Ok(_) => {}
            }
        }
        let mut walk = Walk { draft: self, files: Vec::new(), entries: 0 };
        for part in PARTS {
            walk.visit(Path::new(part), 0);
        }
        let files = walk.files;
        files.iter().filter_map(|file| file.strip_prefix("environment").ok().map(Path::to_owned)).collect()
    }

    /// Checks an asset that lies in the task directory.
    pub(super) fn asset_tree(&mut self, path: &Path) {
        Walk { draft: self, files: Vec::new(), entries: 0 }.visit(path, 0);
    }
}

struct Walk<'a, 'b> {
    draft: &'a mut Draft<'b>,
    files: Vec<PathBuf>,
    entries: usize,
}

impl Walk<'_, '_> {
    fn visit(&mut self, path: &Path, depth: usize) {
        self.entries += 1;
        if self.entries == MOST_ENTRIES || depth == DEEPEST {
            let message = format!("more than {MOST_ENTRIES} entries, or deeper than {DEEPEST} levels");
            self.draft.tree(path, message, "make it an asset that the operator supplies");
        }
        if self.entries >= MOST_ENTRIES || depth >= DEEPEST {
            return;
        }
        let found = match fs::symlink_metadata(self.draft.dir.join(path)) {
            Ok(found) => found,
            // A part that a task may do without.
            Err(error) if error.kind() == io::ErrorKind::NotFound && depth == 0 => return,
            Err(error) => return self.draft.tree(path, error, "the whole task must be readable"),
        };
        if found.is_file() {
            self.files.push(path.to_owned());
        } else if found.is_dir() {
            self.directory(path, depth);
        } else {
            let help = "a task is made of files and directories; put a copy there";
            self.draft.tree(path, kind(found.file_type()), help);
        }
    }

    fn directory(&mut self, path: &Path, depth: usize) {
        let entries =
            fs::read_dir(self.draft.dir.join(path)).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match entries {
            Ok(mut entries) => {
                entries.sort_by_key(fs::DirEntry::file_name);
                for entry in entries {
                    let name = entry.file_name();
                    if name.to_str().is_none() {
                        self.draft.tree(&path.join(&name), "the name is not UTF-8", "rename it");
                        continue;
                    }
                    self.visit(&path.join(name), depth + 1);
                }
            }
            Err(error) => self.draft.tree(path, error, "the whole task must be readable"),
        }
    }
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
