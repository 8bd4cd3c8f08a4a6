//! How long a validation takes that grades next to nothing, against a bare start of the same scorer.
//!
//! A whole run of `airlock task run` with an agent that asks for validations, one after the other or all at once;
//! times are those of the run's journal.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

type Failure = Box<dyn Error>;

const TASK: &str = r#"
version = "1.0"

[airlock]
version = 1
lifecycle = "direct"
submission = "tree"

[airlock.editable]
data = ["number"]

[airlock.budget]
explore = "30m"

[airlock.proxy]
name = "proxy"
direction = "max"
items = ["one"]

[airlock.metric]
name = "final"
direction = "max"
items = ["one"]

[[airlock.phase]]
name = "explore"

[[airlock.phase]]
name = "validate"
command = ["/bin/sh", "/tests/score.sh"]
limits = { wall = "1m" }

[[airlock.phase]]
name = "score"
command = ["/bin/sh", "/tests/score.sh"]
limits = { wall = "1m" }
"#;

const SCORER: &str = r#"echo '{"items":[{"id":"one","attempts":[{"status":"ok","score":"1","wall_ms":0}]}]}' >&3
"#;

/// One candidate after the other, each waited for.
const SEQUENTIAL: &str = "i=0
while [ $i -lt COUNT ]; do
    i=$((i + 1)); echo $i > number
    ticket=$(/opt/harness/airlock-harness --json validate . | sed 's/.*\"ticket\":\"\\([^\"]*\\)\".*/\\1/')
    until /opt/harness/airlock-harness --json result $ticket | grep -q '\"state\":\"done\"'; do :; done
done
exec /opt/harness/submit.sh
";

/// All candidates at once; a full queue is asked again.
const PARALLEL: &str = "i=0
while [ $i -lt COUNT ]; do
    i=$((i + 1)); echo $i > number
    until /opt/harness/validate.sh . > /dev/null 2>&1; do sleep 0.01; done
done
while /opt/harness/airlock-harness --json status | grep -q '\"ticket\"'; do sleep 0.02; done
exec /opt/harness/submit.sh
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(200);
    let airlock = arguments.next().map_or_else(beside, PathBuf::from);
    match bench(count, &airlock) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-validations: {error}");
            ExitCode::FAILURE
        }
    }
}

fn beside() -> PathBuf {
    std::env::current_exe().map(|own| own.with_file_name("airlock")).unwrap_or_default()
}

fn bench(count: usize, airlock: &Path) -> Result<(), Failure> {
    let place = tempfile::tempdir()?;
    let task = place.path().join("task");
    fs::create_dir_all(task.join("environment"))?;
    fs::create_dir_all(task.join("tests"))?;
    fs::write(task.join("environment/number"), "0\n")?;
    fs::write(task.join("tests/score.sh"), SCORER)?;
    fs::write(task.join("task.toml"), TASK)?;
    fs::write(task.join("instruction.md"), "Change the number.\n")?;
    let bare = bare(count, &task.join("tests/score.sh"))?;
    println!("{count} validations that grade one item\n");
    println!("{:36} {:>9} {:>9} {:>9}", "per validation, ms", "p50", "p95", "whole/n");
    show("scorer alone, fork to wait", &bare, bare.iter().sum::<Duration>() / u32::try_from(count)?);
    for (name, agent, at_once) in [
        ("one after the other", SEQUENTIAL, 1),
        ("queued together", PARALLEL, 1),
        ("queued, 2 at once", PARALLEL, 2),
    ] {
        let run = place.path().join(format!("run-{at_once}-{}", name.len()));
        let agent = agent.replace("COUNT", &count.to_string());
        let status = Command::new(airlock)
            .args(["task", "run"])
            .arg(&task)
            .arg("--run")
            .arg(&run)
            .arg("--key")
            .arg(place.path().join("key"))
            .args(["--validations-at-once", &at_once.to_string(), "--agent", "sh", "-c", &agent])
            .stdout(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(format!("{name}: airlock task run ended with {status}").into());
        }
        let (graded, whole) = times(&run)?;
        if graded.len() != count {
            return Err(format!("{name}: {} of {count} validations were graded", graded.len()).into());
        }
        show(&format!("{name}: sandbox to verdict"), &graded, whole / u32::try_from(count)?);
    }
    println!("\nwhole/n: from the first request to the last verdict, by the number of validations.");
    Ok(())
}

/// The scorer without any sandbox.
fn bare(count: usize, scorer: &Path) -> Result<Vec<Duration>, Failure> {
    let one = || -> Result<Duration, Failure> {
        let begin = Instant::now();
        let mut command = Command::new("/bin/sh");
        let status = command.arg("-c").arg(r#"exec 3>/dev/null; . "$0""#).arg(scorer).status()?;
        if status.success() { Ok(begin.elapsed()) } else { Err("the scorer failed".into()) }
    };
    (0..count).map(|_| one()).collect()
}

/// From the start of each scorer's phase to its verdict, and from the first request to the last verdict.
fn times(run: &Path) -> Result<(Vec<Duration>, Duration), Failure> {
    let (mut started, mut graded) = (std::collections::HashMap::new(), Vec::new());
    let (mut first, mut last) = (None, 0);
    for line in fs::read_to_string(run.join("journal.jsonl"))?.lines() {
        let record: Value = serde_json::from_str(line)?;
        let at = record["boot_ns"].as_u64().ok_or("no time")?;
        let event = &record["event"];
        match event["type"].as_str() {
            Some("validation_requested") => first = first.or(Some(at)),
            Some("phase_started") => drop(started.insert(event["phase"].as_u64(), at)),
            Some("validation_result") => {
                let begin = started.get(&event["phase"].as_u64()).ok_or("a verdict without a phase")?;
                graded.push(Duration::from_nanos(at - begin));
                last = at;
            }
            _ => {}
        }
    }
    Ok((graded, Duration::from_nanos(last - first.ok_or("no validation")?)))
}

fn show(name: &str, times: &[Duration], each: Duration) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("{name:36} {:9.2} {:9.2} {:9.2}", ms(at(50)), ms(at(95)), ms(each));
}
