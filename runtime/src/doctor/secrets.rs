//! Secrets that everyone on the host may read, in what a `host` root shows to every sandbox.
//!
//! A bounded search by name, in a child: it looks into files only to tell a private key from a certificate, a shadow file from its namesakes,
//! and a file system that does not answer costs no more than the patience for it.

use std::fs::{self, DirEntry, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::{Check, Topic};
use crate::attempt::forked;

const SECRETS: Topic = Topic::new("readable-secrets", "readable secrets");

/// Directories that `base`, and all that extend it, show inside, as far as secrets have been found there.
const SHOWN: [&str; 6] =
    ["/usr", "/opt", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/perl"];
/// Directories whose files are published with the software: examples, test keys.
const PUBLIC: [&[u8]; 8] =
    [b"test", b"tests", b"testing", b"testdata", b"certdata", b"doc", b"examples", b"test_data"];
/// Time for the whole search.
const PATIENCE: Duration = Duration::from_millis(500);
const MOST_ENTRIES: usize = 200_000;
const DEEPEST: usize = 24;
/// Most files that are named.
const MOST_NAMED: usize = 5;
/// Ends the list of a search that came to its end.
const DONE: &[u8] = b"done";

pub(super) fn check(root: bool) -> Check {
    let user = (!root).then(|| rustix::process::geteuid().as_raw());
    let answer = forked(PATIENCE, |mut pipe| {
        let mut search = Search { user, left: MOST_ENTRIES, whole: true, pipe: &mut pipe };
        SHOWN.iter().for_each(|directory| search.directory(Path::new(directory), DEEPEST));
        if search.whole {
            // The parent takes a missing word for a search cut short.
            let _ = pipe.write_all(DONE);
        }
    });
    match answer {
        Ok(answer) => judge(&answer),
        Err(error) => SECRETS.advice(format!("not searched: {error}"), "see fork(2), ERRORS"),
    }
}

/// `answer`: paths, each ended by NUL; then [`DONE`] if all was searched.
fn judge(answer: &[u8]) -> Check {
    let mut parts: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
    // What follows the last NUL is the mark, nothing, or a path cut short.
    let whole = parts.pop() == Some(DONE);
    let extent = if whole { "" } else { " (searched in part)" };
    if parts.is_empty() {
        return SECRETS.ok(format!("none found in what `base` mounts{extent}"));
    }
    let mut named: Vec<String> =
        parts.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    named.sort_unstable();
    let more = named.len().saturating_sub(MOST_NAMED);
    named.truncate(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    SECRETS.advice(
        format!("every sandbox can read {}{more}{extent}", named.join(", ")),
        "take the read permission of others away, or move the files out of /usr, /opt and the shown parts of /etc",
    )
}

struct Search<'a> {
    /// An ordinary user's sandbox reads as that user; root's reads as nobody in particular.
    user: Option<u32>,
    left: usize,
    /// No bound was met.
    whole: bool,
    pipe: &'a mut File,
}

impl Search<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) {
        // Absent, or closed to the caller: then there is nothing to report.
        let Ok(entries) = fs::read_dir(directory) else {
            return;
        };
        for entry in entries.flatten() {
            if self.left == 0 {
                self.whole = false;
                return;
            }
            self.left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            if kind.is_file() && self.is_secret(&entry, name.as_bytes()) {
                self.report(&entry.path());
            } else if kind.is_dir() && !PUBLIC.contains(&name.as_bytes()) {
                match depth.checked_sub(1) {
                    Some(depth) => self.directory(&entry.path(), depth),
                    None => self.whole = false,
                }
            }
        }
    }

    fn is_secret(&self, entry: &DirEntry, name: &[u8]) -> bool {
        match suspicion(name) {
            Suspicion::None => false,
            Suspicion::Name => self.is_readable(&entry.path()),
            Suspicion::Content(marks) => self.is_readable(&entry.path()) && holds(&entry.path(), marks),
        }
    }

    /// A user inside reaches the file: it, and each directory on the way.
    fn is_readable(&self, path: &Path) -> bool {
        let allows = |path: &Path, others: u32, owner: u32| {
            fs::symlink_metadata(path).is_ok_and(|metadata| {
                metadata.mode() & others != 0
                    || self.user == Some(metadata.uid()) && metadata.mode() & owner != 0
            })
        };
        allows(path, 0o004, 0o400)
            && path.ancestors().skip(1).all(|directory| allows(directory, 0o001, 0o100))
    }

    fn report(&mut self, path: &Path) {
        let line = [path.as_os_str().as_bytes(), b"\0"].concat();
        self.whole &= self.pipe.write_all(&line).is_ok();
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// The name says it.
    Name,
    /// It is one if any of these is in its head.
    Content(&'static [&'static [u8]]),
}

/// The end of the first line of a private key, in the form of RFC 7468 or OpenSSH's own.
const PRIVATE_KEY: Suspicion = Suspicion::Content(&[b"PRIVATE KEY-----\n", b"PRIVATE KEY-----\r"]);
/// The first account of shadow(5).
const SHADOW: Suspicion = Suspicion::Content(&[b"root:"]);

fn suspicion(name: &[u8]) -> Suspicion {
    match name {
        b".env" | b".netrc" | b".pgpass" | b".pypirc" | b".git-credentials" | b".my.cnf" => Suspicion::Name,
        b"id_rsa" | b"id_dsa" | b"id_ecdsa" | b"id_ed25519" => PRIVATE_KEY,
        b"shadow" | b"shadow-" | b"shadow.bak" | b"gshadow" | b"gshadow-" => SHADOW,
        [_, .., b'.', b'p', b'e', b'm'] | [_, .., b'.', b'k', b'e', b'y'] => PRIVATE_KEY,
        _ => Suspicion::None,
    }
}

fn holds(path: &Path, marks: &[&[u8]]) -> bool {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else {
        return false;
    };
    let mut head = Vec::new();
    let is_read = file.take(4096).read_to_end(&mut head).is_ok();
    is_read && marks.iter().any(|mark| head.windows(mark.len()).any(|window| window == *mark))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Status;
    use super::*;

    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAw\n-----END PRIVATE KEY-----\n";

    #[test]
    fn names_raise_suspicion() {
        for (name, expected) in [
            (".env", Suspicion::Name),
            (".git-credentials", Suspicion::Name),
            ("shadow-", SHADOW),
            ("id_ed25519", PRIVATE_KEY),
            ("server.pem", PRIVATE_KEY),
            ("tls.key", PRIVATE_KEY),
        ] {
            assert_eq!(suspicion(name.as_bytes()), expected, "{name}");
        }
        for name in ["id_rsa.pub", ".pem", "environment", "shadow.mo", "keys"] {
            assert_eq!(suspicion(name.as_bytes()), Suspicion::None, "{name}");
        }
    }

    fn found(base: &Path, left: usize) -> (Vec<String>, bool) {
        let answer = forked(Duration::from_secs(5), |mut pipe| {
            let mut search = Search { user: None, left, whole: true, pipe: &mut pipe };
            search.directory(base, 3);
            if search.whole {
                pipe.write_all(DONE).unwrap();
            }
        });
        let text = String::from_utf8(answer.unwrap()).unwrap();
        let mut names: Vec<String> = text.split('\0').map(str::to_owned).collect();
        let whole = names.pop().unwrap() == "done";
        let short = |name: &String| Path::new(name).strip_prefix(base).unwrap().display().to_string();
        let mut names: Vec<String> = names.iter().map(short).collect();
        names.sort();
        (names, whole)
    }

    #[test]
    fn only_keys_that_others_can_reach_are_found() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        let put = |name: &str, content: &str, mode| {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("open.pem", KEY, 0o644);
        put("closed.pem", KEY, 0o640);
        put("backup/shadow", "root:$y$j9T$x:19000:0:99999:7:::\n", 0o644);
        put("overrides/shadow", "shadow: no-manual-page\n", 0o644);
        put("certificate.pem", "-----BEGIN CERTIFICATE-----\n", 0o644);
        put("app/.env", "TOKEN=x", 0o604);
        put("app/tests/server.key", KEY, 0o644);
        put("private/id_rsa", KEY, 0o644);
        put("a/b/c/d/deep.pem", KEY, 0o644);
        fs::set_permissions(base.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(base.join("open.pem"), base.join("link.pem")).unwrap();
        assert_eq!(
            found(base, 1000),
            (vec!["app/.env".into(), "backup/shadow".into(), "open.pem".into()], false),
            "d lies too deep"
        );
        fs::remove_dir_all(base.join("a")).unwrap();
        assert!(found(base, 1000).1);
        assert!(!found(base, 2).1, "the number of entries is bounded");
    }

    #[test]
    fn findings_are_capped_and_a_search_cut_short_says_so() {
        assert_eq!(judge(b"done").status, Status::Ok);
        assert!(judge(b"").found.contains("in part"));
        let check = judge(b"/a\0/b\0/c\0/d\0/e\0/f\0/g\0don");
        assert_eq!(check.status, Status::Advice);
        assert!(check.found.contains("/e and 2 more (searched in part)"), "{}", check.found);
    }
}
