//! What documents say is shown, is shown by a test that exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of all test functions below a directory.
fn tests_below(place: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(place).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|suffix| suffix == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            // Up to the function there are other attributes; the tests of `main.rs` without a harness have none.
            for piece in text.split("test]\n").skip(1) {
                let function = piece.split_once("fn ").map(|(_, rest)| rest);
                found.extend(function.and_then(|rest| rest.split_once('(')).map(|(name, _)| name.to_owned()));
            }
        }
    }
}

fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for place in ["grader/src", "grader/tests", "runtime/src/gpu", "tests/tests"] {
        tests_below(&root().join(place), &mut found);
    }
    found
}

/// The rows of a document's tables: the number, and the names in the last cell.
fn rows(text: &str) -> Vec<(u32, Vec<String>)> {
    let cells = text
        .lines()
        .filter_map(|line| line.trim_start_matches("//! ").strip_prefix("| ")?.strip_suffix(" |"));
    let rows = cells.filter_map(|line| {
        let (number, _) = line.split_once(" | ")?;
        let (_, last) = line.rsplit_once(" | ")?;
        let names = last.split('`').skip(1).step_by(2).map(str::to_owned);
        Some((number.parse().ok()?, names.collect()))
    });
    rows.collect()
}

#[track_caller]
fn all_named_tests_exist(rows: &[(u32, Vec<String>)]) {
    let tests = tests();
    for (number, names) in rows {
        assert!(!names.is_empty(), "{number} is shown by nothing");
        for name in names {
            assert!(tests.contains(name), "{number}: there is no test `{name}`");
        }
    }
}

#[test]
fn every_requirement_has_its_test() {
    let rows = rows(&fs::read_to_string(root().join("grader/REQUIREMENTS.md")).unwrap());
    let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=74).collect::<Vec<_>>());
    all_named_tests_exist(&rows);
}

#[test]
fn every_attack_that_needs_no_gpu_has_its_test() {
    let rows = rows(include_str!("attacks/mod.rs"));
    let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
    let expected = [
        1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
        33, 35, 36, 38, 39, 40, 42, 43, 44, 46, 47, 48, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 62, 64,
    ];
    assert_eq!(numbers, expected);
    all_named_tests_exist(&rows);
}
