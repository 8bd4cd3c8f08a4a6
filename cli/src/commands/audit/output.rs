//! Where the result of an audit goes.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use crate::audit_args::AuditArgs;
use crate::output;

/// What was asked for. The files are open before the audit begins.
pub(super) struct Output {
    json: bool,
    html: Option<Place>,
    sarif: Option<Place>,
}

/// Where one of the documents goes.
enum Place {
    Stdout,
    File(Opened),
}

/// A file that is written at the end. One that was made for it, and is not written, is taken away again.
struct Opened {
    path: PathBuf,
    file: File,
    made: bool,
}

impl Output {
    /// # Errors
    /// Two documents go to one place, or a file cannot be written.
    pub(super) fn of(args: &AuditArgs) -> Result<Output> {
        let stdout = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
        let wanted =
            [("--json", args.json), ("--html -", stdout(&args.html)), ("--sarif -", stdout(&args.sarif))];
        let wanted: Vec<&str> =
            wanted.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect();
        if wanted.len() > 1 {
            bail!(
                "{} write to standard output; only one can, so name a file instead of `-`",
                wanted.join(" and ")
            );
        }
        if args.html.is_some() && args.html == args.sarif {
            bail!("--html and --sarif name the same file; name two");
        }
        let html = args.html.as_deref().map(Place::open).transpose()?;
        let sarif = args.sarif.as_deref().map(Place::open).transpose()?;
        if same(html.as_ref().and_then(Place::file), sarif.as_ref().and_then(Place::file)) {
            bail!("--html and --sarif name the same file; name two");
        }
        for (flag, place) in [("--html", &html), ("--sarif", &sarif)] {
            let inputs = args.names.iter().map(Path::new);
            let inputs =
                inputs.flat_map(|name| [name.into(), name.join("config.json"), name.join("task.toml")]);
            for input in inputs {
                let read = fs::metadata(&input).ok();
                if same(place.as_ref().and_then(Place::file), read.map(|read| (read.dev(), read.ino()))) {
                    bail!("{flag} would overwrite {}, which is audited; name another file", input.display());
                }
            }
        }
        Ok(Output { json: args.json, html, sarif })
    }

    /// Prints a result, unless a file of [`Output::page`] or [`Output::sarif`] is standard output.
    pub(super) fn say(&self, result: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        match [&self.html, &self.sarif].into_iter().flatten().any(|place| matches!(place, Place::Stdout)) {
            true => Ok(()),
            false if self.json => output::json(result),
            false => output::print(&output::escape(&text())),
        }
    }

    /// Writes the page for people.
    pub(super) fn page(&mut self, page: impl FnOnce() -> String) -> Result<()> {
        self.html.as_mut().map_or(Ok(()), |place| place.write(&page()))
    }

    /// Writes SARIF.
    pub(super) fn sarif(&mut self, log: impl FnOnce() -> Value) -> Result<()> {
        let Some(place) = &mut self.sarif else { return Ok(()) };
        place.write(&format!("{}\n", serde_json::to_string_pretty(&log())?))
    }
}

/// Two files that are one.
fn same(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> bool {
    one.is_some() && one == other
}

impl Place {
    /// Device and inode of a file that was there before.
    fn file(&self) -> Option<(u64, u64)> {
        let Place::File(opened) = self else { return None };
        opened.file.metadata().ok().map(|file| (file.dev(), file.ino()))
    }

    fn open(path: &Path) -> Result<Place> {
        if path == Path::new("-") {
            return Ok(Place::Stdout);
        }
        let made = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("write {}", path.display()))?;
        Ok(Place::File(Opened { path: path.to_owned(), file, made }))
    }

    fn write(&mut self, text: &str) -> Result<()> {
        let opened = match self {
            Place::Stdout => return output::print(text),
            Place::File(opened) => opened,
        };
        opened.replace(text).with_context(|| format!("write {}", opened.path.display()))?;
        opened.made = false;
        Ok(())
    }
}

impl Opened {
    fn replace(&mut self, text: &str) -> std::io::Result<()> {
        // A pipe has no length and no place.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.made {
            // Empty, and nobody's but this audit's.
            let _ = fs::remove_file(&self.path);
        }
    }
}
