//! Round trips, agreement with git, and patches that are refused.

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
            fs::set_permissions(
                path,
                Permissions::from_mode(if *executable { 0o755 } else { 0o644 }),
            )
            .unwrap();
        }
        File::open(self.path(name)).unwrap()
    }

    fn frozen(&self, files: &Files) -> Sealed {
        seal(
            self.tree("frozen", files).as_fd(),
            &self.store,
            &Limits::default(),
        )
        .unwrap()
    }

    fn compare(&self, frozen: &Sealed, files: &Files) -> Changeset {
        let tree = self.tree("candidate", files);
        compare(
            frozen,
            tree.as_fd(),
            &GlobSet::empty(),
            &self.store,
            &Limits::default(),
        )
        .unwrap()
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
    files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), false)))
        .collect()
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
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
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
        let named = [
            format!("--git-dir={}", repository.display()),
            format!("--work-tree={}", tree.display()),
        ];
        let all: Vec<&str> = named
            .iter()
            .map(String::as_str)
            .chain(args.iter().copied())
            .collect();
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
    let frozen = place.frozen(&text(&[
        ("keep", "1\n"),
        ("edit", "1\n"),
        ("gone/x", "1\n"),
        ("mode", ""),
    ]));
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
        compare(
            &frozen,
            tree.as_fd(),
            &GlobSet::empty(),
            &place.store,
            &Limits::default(),
        )
        .unwrap()
    };
    assert!(nothing.is_empty());
    assert_eq!(nothing.contents(), Manifest::default().digest());
}

#[test]
fn excluded_paths_are_neither_read_nor_missed() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("src", "1"), ("out/frozen", "1")]));
    let tree = place.tree(
        "candidate",
        &text(&[("src", "1"), ("src.pyc", "x"), ("deep/__pycache__/m.pyc", "x")]),
    );
    symlink("/etc/passwd", place.path("candidate/deep/__pycache__/link")).unwrap();
    let all = |globs: &[&str]| {
        let mut set = GlobSetBuilder::new();
        globs.iter().for_each(|glob| {
            set.add(Glob::new(glob).unwrap());
        });
        compare(
            &frozen,
            tree.as_fd(),
            &set.build().unwrap(),
            &place.store,
            &Limits::default(),
        )
    };
    assert!(all(&["**/__pycache__", "out", "*.pyc"]).unwrap().is_empty());
    assert_eq!(all(&["**/__pycache__", "*.pyc"]).unwrap().files().len(), 1);
    let error = all(&["out"]).unwrap_err();
    assert!(
        matches!(error, ChangesetError::Seal(SealError::Kind { .. })),
        "{error}"
    );
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
    git(
        &directory,
        &[
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "commit",
            "-q",
            "-m",
            "root",
        ],
    )
    .unwrap();
    assert_eq!(
        git(&directory, &["status", "--porcelain"]).unwrap(),
        "",
        "git itself sees no change"
    );
    let excluded = GlobSetBuilder::new()
        .add(Glob::new(".git").unwrap())
        .build()
        .unwrap();
    let changeset = compare(&frozen, tree.as_fd(), &excluded, &place.store, &Limits::default()).unwrap();
    assert!(
        render_patch(&changeset, &place.store)
            .unwrap()
            .contains("-score = 0\n+score = 1\n")
    );
}

#[test]
fn renders_as_git_does() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[
        ("a b", "1\n2\n3\n4\n5\n"),
        ("bin", "x"),
        ("gone", "1\n"),
        ("run", "x"),
    ]));
    let mut new = text(&[
        ("a b", "1\n2\n3\n4\n6"),
        ("bin", "\0"),
        ("empty", ""),
        ("run", "x"),
    ]);
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

#[test]
fn reads_a_plain_unified_diff_with_times() {
    let place = Place::new();
    let frozen = place.frozen(&text(&[("f", "1\r\n2\r\n"), ("old", "x\n")]));
    let patch = "\
--- a/f\t2026-01-01 00:00:00
+++ b/f\t2026-01-02 00:00:00
@@ -1,2 +1,2 @@ def f():
 1\r
-2\r
+3\r
--- /dev/null
+++ b/d/new
@@ -0,0 +1 @@
+text
\\ No newline at end of file
--- a/old
+++ /dev/null
@@ -1 +0,0 @@
-x
";
    let changeset = place.import(&frozen, patch).unwrap();
    let expected = place.compare(&frozen, &text(&[("f", "1\r\n3\r\n"), ("d/new", "text")]));
    assert_eq!(changeset, expected);
}

/// Everything that a patch may not do, with the place that the refusal names.
#[test]
fn refuses_patches_that_are_not_exact() {
    const HEAD: &str = "diff --git a/f b/f\n--- a/f\n+++ b/f\n";
    let add = |mode: &str| {
        format!("diff --git a/n b/n\nnew file mode {mode}\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n")
    };
    let edit = |hunk: &str| format!("{HEAD}{hunk}");
    let at = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    let good = edit("@@ -1,3 +1,3 @@\n 1\n-2\n+x\n 3\n");
    let cases: Vec<(String, &str)> = vec![
        // Modes: a link, a submodule, a set-id bit (AI4AI's gate, VibeTraining App. C.2).
        (add("120000"), "line 2, file n: the mode 120000 is refused"),
        (add("160000"), "line 2, file n: the mode 160000 is refused"),
        (add("104755"), "line 2, file n: the mode 104755 is refused"),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 120000\n".into(),
            "line 3, file f: the mode 120000",
        ),
        (
            "diff --git a/f b/f\nold mode 100755\nnew mode 100644\n".into(),
            "file f: the mode stated is not that",
        ),
        (
            "diff --git a/f b/f\nindex 1234567..89abcde 160000\n".into(),
            "line 2, file f: the mode 160000",
        ),
        (
            "diff --git a/f b/f\nindex 1234567..89abcde 100644\n".into(),
            "it changes nothing",
        ),
        // Binary content.
        (
            "diff --git a/n b/n\nnew file mode 100644\nGIT binary patch\nliteral 1\nIcmZ\n".into(),
            "line 3, file n: binary",
        ),
        (
            "diff --git a/f b/f\nBinary files a/f and b/f differ\n".into(),
            "line 2, file f: binary",
        ),
        (at("n").replace("+x", "+x\0"), "line 4, file n, hunk 1: binary"),
        // Renames and copies.
        (
            "diff --git a/f b/f\nsimilarity index 100%\nrename from f\nrename to g\n".into(),
            "line 2, file f: renames",
        ),
        (
            "diff --git a/f b/f\ncopy from f\ncopy to g\n".into(),
            "line 2, file f: renames",
        ),
        (
            "diff --git a/f b/g\n--- a/f\n+++ b/g\n".into(),
            "line 1: the section names two different files",
        ),
        (
            "--- a/f\n+++ b/g\n@@ -1 +1 @@\n-1\n+x\n".into(),
            "line 2: the section names two different files",
        ),
        // Paths.
        (
            at("../n"),
            "line 2: a path with the name of a directory itself or of its parent",
        ),
        (at("/etc/n"), "line 2: a path with an empty name"),
        (
            at("d/.git/hooks/post-commit"),
            "line 2: a path into a git directory",
        ),
        (at(".GIT/config"), "line 2: a path into a git directory"),
        (
            "--- /dev/null\n+++ \"b/a\\nb\"\n@@ -0,0 +1 @@\n+x\n".into(),
            "line 2: a path with the character U+000A",
        ),
        (
            "--- /dev/null\n+++ n\n@@ -0,0 +1 @@\n+x\n".into(),
            "line 2: expected paths that start with a/ and b/",
        ),
        (
            "--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n".into(),
            "line 2: the section names two",
        ),
        // Context: no offset, no fuzz.
        (
            edit("@@ -1,3 +1,3 @@\n 1\n-x\n+y\n 3\n"),
            "line 6, file f, hunk 1: the line is not line 2 of the frozen file",
        ),
        (
            edit("@@ -2,3 +2,3 @@\n 1\n-2\n+x\n 3\n"),
            "line 5, file f, hunk 1: the line is not line 2",
        ),
        (
            edit("@@ -1,3 +2,3 @@\n 1\n-2\n+x\n 3\n"),
            "line 4, file f, hunk 1: the hunk's header does not fit",
        ),
        (
            edit("@@ -9 +9 @@\n-2\n+x\n"),
            "line 4, file f, hunk 1: the hunk's header does not fit",
        ),
        (
            edit("@@ -1,3 +1,3 @@\n 1\n-2\n+x\n 3\n@@ -2 +2 @@\n-2\n+y\n"),
            "line 9, file f, hunk 2: the hunk's header",
        ),
        (
            edit("@@ -1,3 +1,3 @@\n 1\r\n-2\n+x\n 3\n"),
            "line 5, file f, hunk 1: the line is not line 1",
        ),
        (
            edit("@@ -4 +4 @@\n-4\n+x\n"),
            "line 5, file f, hunk 1: the line is not line 4",
        ),
        (
            edit("@@ -3 +3,2 @@\n-3\n+x\n\\ No newline at end of file\n+y\n"),
            "line 8, file f, hunk 1: a line without",
        ),
        (
            edit("@@ -1 +1 @@\n-1\n+x\n\\ No newline at end of file\n"),
            "file f, hunk 1: a line without newline is not the last",
        ),
        // Shape.
        (
            edit("@@ -1,2 +1,2 @@\n 1\n-2\n+x\n 3\n"),
            "line 8: expected a line `diff --git` or `---`",
        ),
        (
            edit("@@ -1,4 +1,4 @@\n 1\n-2\n+x\n 3\n"),
            "line 9, file f, hunk 1: expected a line of the hunk",
        ),
        (
            edit("@@ -1,3 +1,3 @@\n 1\n-2\n+x\n\n"),
            "line 8, file f, hunk 1: expected a line of the hunk",
        ),
        (
            edit("@@ -1 +1 @@\n 1\n"),
            "line 5, file f, hunk 1: it changes nothing",
        ),
        (
            edit("@@ -1 +1 @@\n-1\n+1\n"),
            "line 1, file f: it changes nothing",
        ),
        (
            edit("@@ -0 +0 @@\n-1\n+x\n"),
            "line 4, file f, hunk 1: expected a hunk header",
        ),
        (
            edit("@@ -+1 +1 @@\n-1\n+x\n"),
            "line 4, file f, hunk 1: expected a hunk header",
        ),
        (edit(""), "line 4, file f: expected a hunk"),
        (
            good.trim_end().to_owned(),
            "line 8: the patch does not end with a newline",
        ),
        (
            format!("From: someone\n{good}"),
            "line 1: expected a line `diff --git` or `---`",
        ),
        (
            format!("{good}-- \n2.47.3\n"),
            "line 9: expected a line `diff --git` or `---`",
        ),
        (
            format!("{good}{good}"),
            "line 9, file f: a second section for the same file",
        ),
        (
            good.replace(
                "a/f b/f\n",
                "a/f b/f\nnew file mode 100644\nnew file mode 100644\n",
            ),
            "each header once",
        ),
        (
            good.replace("a/f b/f\n", "a/f b/f\nnew file mode 100644\n"),
            "sides that agree with the headers",
        ),
        // Against the frozen tree.
        (at("f"), "line 1, file f: the frozen tree has the file already"),
        (
            good.replace("/f", "/missing"),
            "line 1, file missing: the frozen tree has no such file",
        ),
        (
            "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n".into(),
            "line 1, file f: the removed file has lines left",
        ),
        (
            good.replace("/f", "/bin"),
            "line 1, file bin: the frozen file is not text",
        ),
        (
            at("f/below"),
            "f/below: a file has the name of one of its directories",
        ),
        (
            format!("{}{}", at("n"), at("n/below")),
            "n/below: a file has the name of one of its directories",
        ),
        (at("d"), "d: it is a directory that holds files"),
    ];
    let place = Place::new();
    let mut files = text(&[("f", "1\n2\n3\n"), ("d/x", "")]);
    files.insert("bin".into(), (vec![0, 1, b'\n'], false));
    let frozen = place.frozen(&files);
    place.import(&frozen, &good).unwrap();
    place.import(&frozen, &add("100755")).unwrap();
    for (patch, expected) in &cases {
        let error = place
            .import(&frozen, patch)
            .map(|_| patch)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expected),
            "{patch}\n  is refused by: {error}\n  not by:        {expected}"
        );
    }
}

#[test]
fn a_patch_has_a_size() {
    let place = Place::new();
    let frozen = place.frozen(&Files::new());
    let add = |name: &str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+1234567\n");
    let two = add("a") + &add("b");
    let limits = Limits {
        entries: 2,
        file_bytes: 8,
        logical_bytes: 16,
        ..Limits::default()
    };
    import_patch(&two, &frozen, &place.store, &limits).unwrap();
    for (limits, expected) in [
        (
            Limits { entries: 1, ..limits },
            "patch line 1: files 2, more than 1",
        ),
        (
            Limits {
                file_bytes: 7,
                ..limits
            },
            "patch line 1, file a: bytes in the file 8, more than 7",
        ),
        (
            Limits {
                logical_bytes: 15,
                ..limits
            },
            "patch line 5, file b: bytes in all files 16, more than 15",
        ),
    ] {
        let error = import_patch(&two, &frozen, &place.store, &limits).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
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
    assert!(matches!(
        render_patch(&missing, &place.store),
        Err(ChangesetError::Missing { .. })
    ));
}
