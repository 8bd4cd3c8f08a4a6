//! Copies of a run that somebody without the signing key has changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use airlock_grader::receipt::SecretKey;
use airlock_tests::Site;
use nix::sys::stat::Mode;

use crate::copies::{Copy, Original};
use crate::forger::Forger;

/// One byte of every file, one at a time: of an empty file, its emptiness.
fn every_flipped_byte_is_found(original: &Original) {
    let copy = original.copy();
    copy.verify().expect("nobody has touched it");
    let files = copy.files();
    assert!(files.len() > 30, "{files:?}");
    for name in &files {
        let before = fs::read(copy.path(name)).unwrap();
        copy.edit(name, |bytes| match bytes.len() {
            0 => bytes.push(b'x'),
            length => bytes[length / 2] ^= 1,
        });
        copy.is_refused(&[if name == "receipt.json" { "receipt: " } else { name }]);
        fs::write(copy.path(name), before).unwrap();
    }
    copy.verify().expect("everything was put back");
}

#[test]
fn one_byte_of_any_file() {
    every_flipped_byte_is_found(&Original::soup(Site::new()));
    every_flipped_byte_is_found(&Original::direct(Site::new()));
}

#[test]
fn lines_files_candidates_and_keys() {
    let original = Original::soup(Site::new());
    lines_of_the_journal(&original);
    files_that_come_and_go(&original);
    other_things_than_files(&original);
    candidates_and_scores(&original);
    another_key(&original);
}

fn lines(copy: &Copy, change: impl FnOnce(&mut Vec<String>)) {
    copy.edit("journal.jsonl", |bytes| {
        let mut lines: Vec<String> =
            std::str::from_utf8(bytes).unwrap().split_inclusive('\n').map(Into::into).collect();
        change(&mut lines);
        *bytes = lines.concat().into_bytes();
    });
}

fn lines_of_the_journal(original: &Original) {
    let copy = original.copy();
    lines(&copy, |lines| drop(lines.remove(7)));
    copy.is_refused(&["journal.jsonl: line 8, byte ", "it follows"]);
    let copy = original.copy();
    lines(&copy, |lines| lines.swap(7, 8));
    copy.is_refused(&["journal.jsonl: line 8, byte ", "it follows"]);
    let copy = original.copy();
    lines(&copy, |lines| drop(lines.pop()));
    copy.is_refused(&["journal.jsonl: line 46, byte ", "are named"]);
    let copy = original.copy();
    lines(&copy, |lines| lines.truncate(0));
    copy.is_refused(&["journal.jsonl: line 1, byte 0: 0 lines"]);
    let copy = original.copy();
    lines(&copy, |lines| {
        let line = lines.iter_mut().find(|line| line.contains("\"sum\":\"511\"")).unwrap();
        *line = line.replace("\"sum\":\"511\"", "\"sum\":\"599\"");
    });
    copy.is_refused(&["journal.jsonl: line ", "it follows"]);
    // With all digests of the chain computed again, only the receipt knows.
    for change in [|lines: &mut Vec<_>| drop(lines.remove(7)), |lines: &mut Vec<_>| lines.swap(3, 4)] {
        let copy = original.copy();
        Forger::of(&copy).journal(change);
        copy.is_refused(&["journal.jsonl: line 46, byte ", "are named"]);
    }
}

fn files_that_come_and_go(original: &Original) {
    let all = original.copy().files();
    for place in
        ["note.txt", "phases/7-score/more.json", "changesets/x", "store/x", "phases/99-score/verdict.json"]
    {
        let copy = original.copy();
        let path = copy.path(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{}").unwrap();
        copy.is_refused(&[place, "does not belong there"]);
    }
    let tree = |end: &str| {
        let manifest =
            all.iter().find(|path| path.starts_with("store/") && path.ends_with("/manifest")).unwrap();
        manifest.replace("/manifest", end)
    };
    for place in [tree("/tree/more"), tree("/more"), tree("/more/more")] {
        let copy = original.copy();
        fs::create_dir_all(copy.path(&place).parent().unwrap()).unwrap();
        fs::write(copy.path(&place), "").unwrap();
        copy.is_refused(&[&place, "does not belong there"]);
    }
    // Directories in which nothing lies, at the top, among phases, in the store and in a tree.
    for place in ["phases/99-score", "work", "changesets/x/y", "store/x/y", &tree("/x"), &tree("/tree/x")] {
        let copy = original.copy();
        fs::create_dir_all(copy.path(place)).unwrap();
        let named = place.strip_suffix("/y").unwrap_or(place);
        copy.is_refused(&[named, "does not belong there"]);
    }
    let sealed = all.iter().find(|path| path.ends_with("tree/model.py")).unwrap();
    for (name, mode) in
        [("run.json", 0o700), ("report.html", 0o602), ("journal.jsonl", 0o4600), (sealed, 0o2444)]
    {
        let copy = original.copy();
        fs::set_permissions(copy.path(name), fs::Permissions::from_mode(mode)).unwrap();
        copy.is_refused(&[name, &format!("has the mode {mode:04o}")]);
    }
    // What is not of the run is not read: a terabyte of nothing would take its time.
    for place in ["note.txt".to_owned(), tree("/tree/more")] {
        let copy = original.copy();
        fs::File::create(copy.path(&place)).unwrap().set_len(1 << 40).unwrap();
        copy.is_refused(&[&place, "does not belong there"]);
    }
    for name in all.iter().filter(|name| *name != "receipt.json") {
        let copy = original.copy();
        fs::remove_file(copy.path(name)).unwrap();
        // The journal is asked for before the list of files is gone through.
        copy.is_refused(&[name, if name == "journal.jsonl" { "cannot open" } else { "is missing" }]);
    }
    let copy = original.copy();
    fs::remove_file(copy.path("receipt.json")).unwrap();
    copy.is_refused(&["no receipt.json", "46, which closes it"]);
    fs::create_dir(copy.path("receipt.json")).unwrap();
    copy.is_refused(&["receipt.json", "it is a directory"]);
    let copy = original.copy();
    let weights = copy.files().into_iter().find(|path| path.ends_with("tree/weights.json")).unwrap();
    copy.edit(&weights, |bytes| bytes.truncate(bytes.len() / 2));
    copy.is_refused(&[&weights, "has the digest"]);
    fs::remove_dir_all(copy.path(weights.strip_suffix("/weights.json").unwrap())).unwrap();
    copy.is_refused(&[weights.strip_suffix("/weights.json").unwrap(), "is missing"]);
    let copy = original.copy();
    let soup = copy.files().into_iter().find(|path| path.ends_with("tree/soup.py")).unwrap();
    fs::set_permissions(copy.path(&soup), fs::Permissions::from_mode(0o755)).unwrap();
    copy.is_refused(&[&soup, "an executable file"]);
}

fn other_things_than_files(original: &Original) {
    let names = [
        "receipt.json",
        "run.json",
        "journal.jsonl",
        "phases/7-score/verdict.json",
        "phases/7-score/stdout.log",
    ];
    let copy = original.copy();
    let weights = copy.files().into_iter().find(|path| path.ends_with("tree/weights.json")).unwrap();
    for name in names.into_iter().chain([weights.as_str()]) {
        let (path, aside) = (copy.path(name), copy.run().with_file_name("aside"));
        fs::rename(&path, &aside).unwrap();
        nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o644)).unwrap();
        // By the command, which has a minute.
        let ended = original.command(&copy.run());
        assert_eq!(ended.code, 1, "{ended}");
        assert!(ended.stderr.contains(name) && ended.stderr.contains("is a FIFO"), "{ended}");
        fs::remove_file(&path).unwrap();
        symlink(&aside, &path).unwrap();
        copy.is_refused(&[name, "is a symbolic link"]);
        fs::remove_file(&path).unwrap();
        fs::hard_link(&aside, &path).unwrap();
        copy.is_refused(&[name, "2 hard links"]);
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    copy.verify().expect("everything was put back");
}

fn candidates_and_scores(original: &Original) {
    let copy = original.copy();
    let weights: Vec<_> =
        copy.files().into_iter().filter(|path| path.ends_with("tree/weights.json")).collect();
    let other = fs::read(copy.path(&weights[1])).unwrap();
    fs::write(copy.path(&weights[0]), other).unwrap();
    copy.is_refused(&[&weights[0], "has the digest"]);
    // With its manifest, so that the tree is whole in itself.
    let manifest = |path: &str| path.replace("tree/weights.json", "manifest");
    fs::copy(copy.path(&manifest(&weights[1])), copy.path(&manifest(&weights[0]))).unwrap();
    copy.is_refused(&[&manifest(&weights[0]), "the receipt names"]);
    let copy = original.copy();
    copy.edit("phases/7-score/verdict.json", |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes = text.replace(r#""score":"0","status":"wrong""#, r#""score":"1","status":"ok""#).into_bytes();
    });
    copy.is_refused(&["phases/7-score/verdict.json has the digest", "the receipt names"]);
    // Where it can be known, the byte is told.
    let copy = original.copy();
    copy.edit("phases/7-score/verdict.json", |bytes| bytes.insert(1, b' '));
    copy.is_refused(&["phases/7-score/verdict.json, byte 1, has the digest"]);
    let copy = original.copy();
    copy.edit("run.json", |bytes| bytes.insert(1, b' '));
    copy.is_refused(&["run.json, byte 1, has the digest"]);
}

fn another_key(original: &Original) {
    let copy = original.copy();
    let place = tempfile::tempdir().unwrap();
    let key = SecretKey::generate(&place.path().join("key")).unwrap();
    Forger::of(&copy).sign(&key, |_| {});
    copy.is_refused(&["receipt: signed with the key", &key.public().id().to_string()]);
    // Whoever trusts that key is told that the run was made for another one.
    fs::write(place.path().join("pub"), key.public().to_pem()).unwrap();
    let error = airlock_grader::run::verify::verify(&copy.run(), &key.public()).unwrap_err().to_string();
    assert!(error.starts_with("run.json: the run was made for the key"), "{error}");
}
