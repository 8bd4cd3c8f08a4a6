//! `airlock score`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::process::{Command, Output};

const ACCURACY: &str = "phi=identity,uninformative=0,baseline=0.127,optimum=1";
const REWARD: &str = "phi=identity,uninformative=-12.76,baseline=5.84,optimum=23.23";
const PERPLEXITY: &str = "phi=neg-log,uninformative=inf,baseline=53.4,optimum=1,below=ratio";

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

/// The command under test where it was built: it needs no sandbox, so no site.
fn airlock() -> Command {
    let built = || {
        let own = std::env::current_exe().expect("own path");
        own.ancestors().nth(2).expect("a build directory").join("airlock")
    };
    Command::new(std::env::var_os("AIRLOCK_BIN").map_or_else(built, PathBuf::from))
}

fn end(command: &mut Command) -> Ended {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("build airlock first, or set AIRLOCK_BIN");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        code: status.code().expect("no signal"),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn score(ladder: &str, values: &[&str]) -> Ended {
    end(airlock().args(["score", "--ladder", ladder]).args(values))
}

fn score_lines(ladder: &str, lines: &[u8]) -> Ended {
    let mut stdin: File = tempfile::tempfile().unwrap();
    stdin.write_all(lines).unwrap();
    stdin.rewind().unwrap();
    end(airlock().args(["score", "--ladder", ladder, "-"]).stdin(stdin))
}

#[test]
fn values_are_placed_one_a_line() {
    for (ladder, values, places) in [
        (
            ACCURACY,
            &["0.127", "1", "0", "0.0635"][..],
            "0.100000\n1.000000\n0.000000\n0.050000\n",
        ),
        (
            REWARD,
            &["-12.76", "-3.46", "-1e-300", "24"],
            "0.000000\n0.050000\n0.068602\n1.000000\n",
        ),
        (
            PERPLEXITY,
            &["53.4", "106.8", "1", "10", "1e300"],
            "0.100000\n0.050000\n1.000000\n0.479028\n0.000000\n",
        ),
    ] {
        let ended = score(ladder, values);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, places),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn stdin_gives_one_value_a_line() {
    for (lines, places) in [
        (&b"0.127\n1\n"[..], "0.100000\n1.000000\n"),
        (b"0.127\n1", "0.100000\n1.000000\n"),
        (b"", ""),
    ] {
        let ended = score_lines(ACCURACY, lines);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, places),
            "{}",
            ended.stderr
        );
    }
    let many = "0.127\n".repeat(100_000);
    assert_eq!(
        score_lines(ACCURACY, many.as_bytes()).stdout,
        "0.100000\n".repeat(100_000)
    );
}

/// gpu-mode's pygpubench (exploit gc_nan) and AgentBench issue 234: a NaN that wins every comparison.
#[test]
fn one_wrong_value_stops_all_and_is_named() {
    for value in [
        "nan", "NaN", "inf", "-inf", "0x1F", "+1", "1,000", "1e999", "1e-999", "", " 1", "1 ", "1\r", ".5",
        "1_0",
    ] {
        let lines = format!("0.127\n0.5\n{value}\n1\n");
        let ended = score_lines(ACCURACY, lines.as_bytes());
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{value}");
        assert!(ended.stderr.contains("line 3: "), "{value}: {}", ended.stderr);
        let ended = score(ACCURACY, &["0.127", value]);
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{value}");
        assert!(ended.stderr.contains("value 2: "), "{value}: {}", ended.stderr);
    }
    let ended = score_lines(ACCURACY, b"0.1\n\xff\n");
    assert!(
        ended.code == 125 && ended.stderr.contains("line 2: "),
        "{}",
        ended.stderr
    );
    let ended = score_lines(ACCURACY, b"0.1\n\x1b[2J\n");
    assert!(
        ended.code == 125 && !ended.stderr.contains('\x1b'),
        "{}",
        ended.stderr
    );
    let ended = score_lines(PERPLEXITY, b"3\n0\n");
    assert!(
        ended.code == 125 && ended.stderr.contains("line 2: `value` is 0"),
        "{}",
        ended.stderr
    );
    let ended = score(ACCURACY, &["0.5", "-"]);
    assert!(
        ended.code == 125 && ended.stderr.contains("value 2: `-`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_ladder_that_contradicts_itself_is_refused() {
    for (ladder, message) in [
        (
            "phi=identity,uninformative=0.5,baseline=0.127,optimum=1",
            "not better than the uninformative",
        ),
        (
            "phi=identity,uninformative=0,baseline=0.127,optimum=0.1",
            "not better than the baseline",
        ),
        (
            "phi=neg-log,uninformative=inf,baseline=53.4,optimum=0",
            "no logarithm",
        ),
        (
            "phi=negate,uninformative=inf,baseline=65.8,optimum=0,below=linear",
            "below=ratio",
        ),
        (
            "phi=identity,uninformative=0,baseline=nan,optimum=1",
            "not a finite decimal",
        ),
        (
            "phi=identity,uninformative=0,baseline=0.1",
            "`optimum` is missing",
        ),
    ] {
        let ended = score(ladder, &["0.5"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{ladder}");
        assert!(ended.stderr.contains(message), "{ladder}: {}", ended.stderr);
    }
    assert_eq!(score(ACCURACY, &[]).code, 125);
}
