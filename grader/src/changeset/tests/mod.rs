//! Round trips, agreement with git, and what a changeset holds.

mod patches;
mod texts;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use globset::{Glob, GlobSet, GlobSetBuilder};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::journal::canonical;
use crate::seal::{Limits, SealError, read_tree, seal};

/// Files by path: bytes and the executable bit.
type Files = BTreeMap<String, (Vec<u8>, bool)>;

struct Place {
    dir: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tree(&self, name: &str, files: &Files) -> File {
        fs::create_dir(self.path(name)).unwrap();
        for (path, (bytes, executable)) in files {
            let path = self.path(name).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(path, Permissions::from_mode(if *executable { 0o755 } else { 0o644 }))
                .unwrap();
        }
        File::open(self.path(name)).unwrap()
    }

    fn frozen(&self, files: &Files) -> Sealed {
        seal(self.tree("frozen", files).as_fd(), &self.store, &Limits::default()).unwrap()
    }

    fn compare(&self, frozen: &Sealed, files: &Files) -> Changeset {
        let tree = self.tree("candidate", files);
        compare(frozen, tree.as_fd(), &GlobSet::empty(), &self.store, &Limits::default()).unwrap()
    }

    fn import(&self, frozen: &Sealed, patch: &str) -> Result<Changeset, ChangesetError> {
        import_patch(patch, frozen, &self.store, &Limits::default())
    }

    /// What a fresh copy of the frozen tree holds after the changes.
    fn applied(&self, frozen: &Sealed, changeset: &Changeset) -> Manifest {
        fs::create_dir(self.path("target")).unwrap();
        let target = File::open(self.path("target")).unwrap();
        frozen.copy_to(target.as_fd()).unwrap();
        apply(changeset, &self.store, target.as_fd()).unwrap();
        read_tree(target.as_fd(), &Limits::default()).unwrap()
    }
}

fn text(files: &[(&str, &str)]) -> Files {
    files.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), false))).collect()
}

fn manifest(tree: &File) -> Manifest {
    read_tree(tree.as_fd(), &Limits::default()).unwrap()
}

/// Runs git in a directory, with no configuration but the given one; gives what it wrote.
fn git(directory: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new("git")
        .args(["-c", "core.quotePath=false", "-c", "core.autocrlf=false"])
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Trees whose names collide often, as files and as directories, with texts that share lines.
fn trees() -> impl Strategy<Value = Files> {
    let path = proptest::collection::vec("[ab]( c)?|\"q|ü", 1..4).prop_map(|names| names.join("/"));
    let line = prop_oneof!["[xyz]{0,2}\n", "[xyz]\r\n", "--- [ab]/x\n", "@@ -1 \\+1 @@\n"];
    let body =
        (proptest::collection::vec(line, 0..12), "|end|\r").prop_map(|(lines, end)| lines.concat() + &end);
    proptest::collection::btree_map(path, (body.prop_map(String::into_bytes), any::<bool>()), 0..6).prop_map(
        |files| {
            // A path below a file cannot be.
            let names: Vec<String> = files.keys().cloned().collect();
            let below = |path: &str| names.iter().any(|other| path.starts_with(&format!("{other}/")));
            files.into_iter().filter(|(path, _)| !below(path)).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn applying_the_difference_gives_the_candidate(old in trees(), new in trees()) {
        let place = Place::new();
        let frozen = place.frozen(&old);
        let changeset = place.compare(&frozen, &new);
        let candidate = manifest(&File::open(place.path("candidate")).unwrap());
        prop_assert_eq!(&changeset.result(frozen.manifest()).unwrap(), &candidate);
        prop_assert_eq!(&place.applied(&frozen, &changeset), &candidate);
        let json = changeset.to_json().unwrap();
        prop_assert_eq!(&Changeset::from_json(&json).unwrap(), &changeset);

        let patch = render_patch(&changeset, &place.store).unwrap();
        prop_assert_eq!(&place.import(&frozen, &patch).unwrap(), &changeset);
    }

    /// git reads our patches as we mean them, and we read git's.
    #[test]
    fn agrees_with_git(old in trees(), new in trees()) {
        let place = Place::new();
        let frozen = place.frozen(&old);
        let changeset = place.compare(&frozen, &new);
        let patch = render_patch(&changeset, &place.store).unwrap();
        let candidate = manifest(&File::open(place.path("candidate")).unwrap());
        let ours = place.path("ours");
        place.tree("ours", &old);
        fs::write(place.path("patch"), &patch).unwrap();
        if !patch.is_empty() {
            git(&ours, &["apply", "--whitespace=nowarn", "../patch"]).unwrap();
        }
        prop_assert_eq!(&manifest(&File::open(&ours).unwrap()), &candidate);

        prop_assert_eq!(place.import(&frozen, &git_diff(&place)).unwrap(), changeset);
    }
}

/// git's own difference between the trees `frozen` and `candidate`.
fn git_diff(place: &Place) -> String {
    let work_tree = |name: &str, args: &[&str]| {
        let tree = place.path(name);
        let repository = place.path("repository");
        let named =
            [format!("--git-dir={}", repository.display()), format!("--work-tree={}", tree.display())];
        let all: Vec<&str> = named.iter().map(String::as_str).chain(args.iter().copied()).collect();
        git(&tree, &all).unwrap()
    };
    git(place.dir.path(), &["init", "-q", "--bare", "repository"]).unwrap();
    work_tree("frozen", &["add", "-A"]);
    let frozen = work_tree("frozen", &["write-tree"]);
    work_tree("candidate", &["add", "-A"]);
    work_tree("candidate", &["diff", "--cached", "--no-renames", frozen.trim()])
}

#[test]
fn lists_what_was_added_changed_and_removed() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("keep", "1\n"), ("edit", "1\n"), ("gone/x", "1\n"), ("mode", "")]));
    let mut new = text(&[("keep", "1\n"), ("edit", "2\n"), ("new/y", "y"), ("mode", "")]);
    new.get_mut("mode").unwrap().1 = true;
    let changeset = place.compare(&frozen, &new);
    let json = String::from_utf8(changeset.to_json().unwrap()).unwrap();
    let (two, y, none) = (Digest::of(b"2\n"), Digest::of(b"y"), Digest::of(b""));
    let expected = format!(
        r#"{{"contents":"{}","files":[{{"change":"changed","digest":"{two}","executable":false,"path":"edit","size":2}},{{"change":"removed","path":"gone/x"}},{{"change":"changed","digest":"{none}","executable":true,"path":"mode","size":0}},{{"change":"added","digest":"{y}","executable":false,"path":"new/y","size":1}}],"frozen":"{}","version":1}}"#,
        changeset.contents(),
        frozen.digest(),
    );
    assert_eq!(json, expected);
    assert_eq!(canonical(&changeset).unwrap(), json.as_bytes());
    assert_eq!(changeset.digest().unwrap(), Digest::of(json.as_bytes()));
    for wrong in [
        json.replace("\"version\":1", "\"version\":2"),
        json.replace("\"size\":2", "\"size\":2.0"),
        json.replace("\"path\":\"edit\"", "\"path\":\"../edit\""),
        json.replace("\"path\":\"edit\"", "\"path\":\"zzz\""),
        json.replace("{\"contents\"", "{\"extra\":1,\"contents\""),
        json.replace("\"version\"", " \"version\""),
        json + " ",
    ] {
        assert!(Changeset::from_json(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn unchanged_files_are_not_copied() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("big", "0123456789"), ("edit", "1\n")]));
    let changeset = place.compare(&frozen, &text(&[("big", "0123456789"), ("edit", "2\n")]));
    let contents = place.store.get(changeset.contents()).unwrap().unwrap();
    assert_eq!(contents.manifest().entries().count(), 1);
    let nothing = {
        let tree = place.tree("same", &text(&[("big", "0123456789"), ("edit", "1\n")]));
        compare(&frozen, tree.as_fd(), &GlobSet::empty(), &place.store, &Limits::default()).unwrap()
    };
    assert!(nothing.is_empty());
    assert_eq!(nothing.contents(), Manifest::default().digest());
}

#[test]
fn excluded_paths_are_neither_read_nor_missed() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("src", "1"), ("out/frozen", "1")]));
    let tree =
        place.tree("candidate", &text(&[("src", "1"), ("src.pyc", "x"), ("deep/__pycache__/m.pyc", "x")]));
    symlink("/etc/passwd", place.path("candidate/deep/__pycache__/link")).unwrap();
    let all = |globs: &[&str]| {
        let mut set = GlobSetBuilder::new();
        globs.iter().for_each(|glob| {
            set.add(Glob::new(glob).unwrap());
        });
        compare(&frozen, tree.as_fd(), &set.build().unwrap(), &place.store, &Limits::default())
    };
    assert!(all(&["**/__pycache__", "out", "*.pyc"]).unwrap().is_empty());
    assert_eq!(all(&["**/__pycache__", "*.pyc"]).unwrap().files().len(), 1);
    let error = all(&["out"]).unwrap_err();
    assert!(matches!(error, ChangesetError::Seal(SealError::Kind { .. })), "{error}");
}

/// tlaps-bench#13: the baseline of the difference was rewritten by amending the commit. The frozen tree is named by
/// its digest and lies in the host's store: no git state of the candidate counts.
#[test]
fn the_candidates_git_history_changes_nothing() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("metric.py", "score = 0\n")]));
    let edited = text(&[("metric.py", "score = 1\n")]);
    let tree = place.tree("candidate", &edited);
    let directory = place.path("candidate");
    git(&directory, &["init", "-q"]).unwrap();
    git(&directory, &["add", "."]).unwrap();
    git(&directory, &["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "-m", "root"]).unwrap();
    assert_eq!(git(&directory, &["status", "--porcelain"]).unwrap(), "", "git itself sees no change");
    let excluded = GlobSetBuilder::new().add(Glob::new(".git").unwrap()).build().unwrap();
    let changeset = compare(&frozen, tree.as_fd(), &excluded, &place.store, &Limits::default()).unwrap();
    assert!(render_patch(&changeset, &place.store).unwrap().contains("-score = 0\n+score = 1\n"));
}

#[test]
fn renders_as_git_does() {
    let place = Place::new();
    let frozen =
        place.frozen(&text(&[("a b", "1\n2\n3\n4\n5\n"), ("bin", "x"), ("gone", "1\n"), ("run", "x")]));
    let mut new = text(&[("a b", "1\n2\n3\n4\n6"), ("bin", "\0"), ("empty", ""), ("run", "x")]);
    new.get_mut("run").unwrap().1 = true;
    let changeset = place.compare(&frozen, &new);
    let expected = "\
diff --git a/a b b/a b
--- a/a b\t
+++ b/a b\t
@@ -2,4 +2,4 @@
 2
 3
 4
-5
+6
\\ No newline at end of file
diff --git a/bin b/bin
Binary files a/bin and b/bin differ
diff --git a/empty b/empty
new file mode 100644
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-1
diff --git a/run b/run
old mode 100644
new mode 100755
";
    assert_eq!(render_patch(&changeset, &place.store).unwrap(), expected);
}

/// MLE-bench's fixed upload name: a link planted where a privileged process writes.
#[test]
fn applying_writes_through_no_link_of_the_target() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("d/f", "1\n")]));
    let changeset = place.compare(&frozen, &text(&[("d/f", "1\n"), ("d/new", "x")]));
    fs::create_dir(place.path("outside")).unwrap();
    fs::write(place.path("outside/file"), b"precious").unwrap();
    for planted in ["d", "d/new"] {
        let target = place.path("target");
        let _ = fs::remove_dir_all(&target);
        fs::create_dir(&target).unwrap();
        let handle = File::open(&target).unwrap();
        frozen.copy_to(handle.as_fd()).unwrap();
        let link = target.join(planted);
        if planted == "d" {
            fs::remove_dir_all(&link).unwrap();
            symlink("../outside", &link).unwrap();
        } else {
            symlink("../../outside/file", &link).unwrap();
        }
        apply(&changeset, &place.store, handle.as_fd()).unwrap_err();
        assert_eq!(fs::read(place.path("outside/file")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 1);
    }
    fs::remove_dir_all(place.path("target")).unwrap();
    place.applied(&frozen, &changeset);
}

#[test]
fn a_file_may_take_the_name_of_an_empty_directory() {
    let place = Place::new();
    fs::create_dir_all(place.path("frozen/d/e/f")).unwrap();
    let tree = File::open(place.path("frozen")).unwrap();
    let frozen = seal(tree.as_fd(), &place.store, &Limits::default()).unwrap();
    let changeset = place.compare(&frozen, &text(&[("d/e", "x")]));
    let candidate = manifest(&File::open(place.path("candidate")).unwrap());
    assert_eq!(changeset.result(frozen.manifest()).unwrap(), candidate);
    assert_eq!(place.applied(&frozen, &changeset), candidate);
}

#[test]
fn contents_must_be_those_that_the_changeset_names() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("f", "1\n")]));
    let one = place.compare(&frozen, &text(&[("f", "2\n")]));
    fs::remove_dir_all(place.path("candidate")).unwrap();
    let two = place.compare(&frozen, &text(&[("f", "3\n")]));
    let json = String::from_utf8(one.to_json().unwrap()).unwrap();
    let swapped = json.replace(&one.contents().to_string(), &two.contents().to_string());
    let swapped = Changeset::from_json(swapped.as_bytes()).unwrap();
    let error = render_patch(&swapped, &place.store).unwrap_err();
    assert_eq!(error.to_string(), "f: its contents are another file's");
    let missing = json.replace(&one.contents().to_string(), &Digest::of(b"").to_string());
    let missing = Changeset::from_json(missing.as_bytes()).unwrap();
    assert!(matches!(render_patch(&missing, &place.store), Err(ChangesetError::Missing { .. })));
}
