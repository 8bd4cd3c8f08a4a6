//! `airlock score`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::fs::File;
use std::process::{Command, Output};

use airlock_tests::Site;

const ACCURACY: &str = "phi=identity,uninformative=0,baseline=0.127,optimum=1";
const REWARD: &str = "phi=identity,uninformative=-12.76,baseline=5.84,optimum=23.23";
const PERPLEXITY: &str = "phi=neg-log,uninformative=inf,baseline=53.4,optimum=1,below=ratio";

struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn end(command: &mut Command) -> Ended {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("airlock runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        code: status.code().expect("no signal"),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn score(site: &Site, ladder: &str, values: &[&str]) -> Ended {
    end(Command::new(site.airlock())
        .args(["score", "--ladder", ladder])
        .args(values))
}

fn score_lines(site: &Site, ladder: &str, lines: &[u8]) -> Ended {
    let file = site.file("values", lines);
    let stdin = File::open(file).unwrap();
    end(Command::new(site.airlock())
        .args(["score", "--ladder", ladder, "-"])
        .stdin(stdin))
}

#[test]
fn values_are_placed_one_a_line() {
    let site = Site::new();
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
        let ended = score(&site, ladder, values);
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
    let site = Site::new();
    for (lines, places) in [
        (&b"0.127\n1\n"[..], "0.100000\n1.000000\n"),
        (b"0.127\n1", "0.100000\n1.000000\n"),
        (b"", ""),
    ] {
        let ended = score_lines(&site, ACCURACY, lines);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, places),
            "{}",
            ended.stderr
        );
    }
    let many = "0.127\n".repeat(100_000);
    assert_eq!(
        score_lines(&site, ACCURACY, many.as_bytes()).stdout,
        "0.100000\n".repeat(100_000)
    );
}

/// gpu-mode's pygpubench (exploit gc_nan) and AgentBench issue 234: a NaN that wins every comparison.
#[test]
fn one_wrong_value_stops_all_and_is_named() {
    let site = Site::new();
    for value in [
        "nan", "NaN", "inf", "-inf", "0x1F", "+1", "1,000", "1e999", "1e-999", "", " 1", "1 ", "1\r", ".5",
        "1_0",
    ] {
        let lines = format!("0.127\n0.5\n{value}\n1\n");
        let ended = score_lines(&site, ACCURACY, lines.as_bytes());
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{value}");
        assert!(ended.stderr.contains("line 3: "), "{value}: {}", ended.stderr);
        let ended = score(&site, ACCURACY, &["0.127", value]);
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{value}");
        assert!(ended.stderr.contains("value 2: "), "{value}: {}", ended.stderr);
    }
    let ended = score_lines(&site, ACCURACY, b"0.1\n\xff\n");
    assert!(
        ended.code == 125 && ended.stderr.contains("line 2: "),
        "{}",
        ended.stderr
    );
    let ended = score_lines(&site, ACCURACY, b"0.1\n\x1b[2J\n");
    assert!(
        ended.code == 125 && !ended.stderr.contains('\x1b'),
        "{}",
        ended.stderr
    );
    let ended = score_lines(&site, PERPLEXITY, b"3\n0\n");
    assert!(
        ended.code == 125 && ended.stderr.contains("line 2: `value` is 0"),
        "{}",
        ended.stderr
    );
    let ended = score(&site, ACCURACY, &["0.5", "-"]);
    assert!(
        ended.code == 125 && ended.stderr.contains("value 2: `-`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_ladder_that_contradicts_itself_is_refused() {
    let site = Site::new();
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
        let ended = score(&site, ladder, &["0.5"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (125, ""), "{ladder}");
        assert!(ended.stderr.contains(message), "{ladder}: {}", ended.stderr);
    }
    assert_eq!(score(&site, ACCURACY, &[]).code, 125);
}
