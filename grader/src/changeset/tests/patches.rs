//! Patches that are read, and patches that are refused.

use super::*;

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
