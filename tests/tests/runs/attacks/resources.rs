//! Time, resources, other runs, and the grader's socket.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use airlock_tests::{Graded, skip};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Prints the time that is left; the first time it then waits to be killed.
const TWICE: &str = "/opt/harness/airlock-harness --json status
    if [ -e data/begun ]; then /opt/harness/submit.sh; else touch data/begun; echo waiting; sleep 60; fi";

fn remaining(printed: &str) -> u64 {
    let status: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    status["remaining_ms"].as_u64().unwrap()
}

/// Rows 3, 51, 52 (PostTrainBench's timer.sh; Terminal-Bench's integrity post): neither a restart of the supervisor nor
/// its death gives time back, and the agent that goes on is the one that was registered.
#[test]
fn a_restart_gives_back_no_time_and_takes_no_other_agent() {
    let task = Graded::of("digits-direct").file("agent/main.sh", TWICE);
    let lead = task
        .shell("sh /opt/agent/main.sh")
        .option("--agent-files", task.task("agent"))
        .option("--explore", "60s");
    let live = lead.start();
    live.until(|run| run.printed("explore").contains("waiting"));
    let path = live.path().to_owned();
    let before = remaining(&live.printed("explore"));
    live.live().signal(Signal::SIGKILL);
    live.end();
    std::thread::sleep(Duration::from_secs(2));

    let agent = task.task("agent/main.sh");
    fs::write(&agent, "exit 9\n").unwrap();
    let run = task.resume(&path).end().closed("scored");
    let last = run.phases("explore").pop().unwrap();
    let after = remaining(&fs::read_to_string(last.join("stdout.log")).unwrap());
    assert!(before <= 60_000 && after + 2000 <= before, "{before} {after}");
    assert!(run.receipt()["weaker"].to_string().contains("research has 60000 ms"), "{}", run.receipt());
}

/// Row 57 (PostTrainBench's kill line): processes of others are not seen, let alone ended.
#[test]
fn foreign_processes_live_on() {
    let mut foreign = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    let agent = format!(
        "import os, signal, subprocess
ended = 0
for pid in [{}, *range(3, 5000)]:
    if pid == os.getpid(): continue
    try: os.kill(pid, signal.SIGKILL); ended += 1
    except ProcessLookupError: pass
print('ended', ended, flush=True)
child = subprocess.Popen(['sleep', '60'])
child.kill(); print('own', child.wait(), flush=True)
subprocess.run(['/opt/harness/submit.sh'])",
        foreign.id()
    );
    let task = Graded::of("digits-soup");
    let run = task.python(&agent).end().closed("scored");
    assert!(run.printed("explore").starts_with("ended 0\nown -9\n"), "{}", run.printed("explore"));
    assert!(foreign.try_wait().unwrap().is_none());
    foreign.kill().unwrap();
    foreign.wait().unwrap();
}

/// Row 59 (ScienceIDE_Env 28): a run that forks without end and fills its memory and its disk, while another is graded.
#[test]
fn a_fork_bomb_does_not_disturb_another_runs_validation() {
    let bomb = Graded::of("digits-soup").edit(
        "task.toml",
        "name = \"explore\"\n",
        "name = \"explore\"\nlimits = { pids = 64, tmp = \"16MiB\" }\n",
    );
    if !bomb.site().limits() {
        skip!("no cgroups, no limits");
    }
    let agent = "import os, sys
try:
    with open('/tmp/full', 'wb') as file:
        while True: file.write(bytes(1 << 20))
except OSError as error: print(error.strerror, flush=True)
while True:
    try: os.fork()
    except OSError as error: print(error.strerror, flush=True) if os.getpid() < 9 else None";
    let live = bomb.python(agent).option("--explore", "6s").start();
    live.until(|run| run.printed("explore").contains("temporarily unavailable"));
    let task = Graded::of("digits-direct");
    let run = task
        .shell("/opt/harness/validate.sh . --wait >/dev/null; /opt/harness/submit.sh")
        .end()
        .closed("scored");
    assert_eq!(run.event("validation_result")["score"]["sum"], "94");
    assert_eq!(run.score(), "180/400");
    let bombed = live.end().closed("deadline_passed");
    assert!(bombed.printed("explore").contains("No space left on device"));
}

/// Floods, stalls and tricks the socket, and then goes on as if nothing had been.
const ABUSE: &str = r#"
import array, json, os, socket, subprocess, time
PLACE = "/run/airlock/grader.sock"
def connect():
    while True:
        there = socket.socket(socket.AF_UNIX); there.settimeout(5)
        try: there.connect(PLACE); return there
        except OSError: time.sleep(0.1)
HELLO = b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{}}\n'
print("places", [name for name in os.listdir("/run/airlock")], open("/proc/net/unix").read().count("grader.sock"), flush=True)
half = connect(); half.sendall(b'{"jsonrpc":')
long = connect()
try: long.sendall(b"x" * (1 << 20))
except OSError: pass
try: print("long", json.loads(long.recv(4096).split(b"\n")[0])["error"]["code"], flush=True)
except OSError as error: print("long", error.strerror, flush=True)
passing = connect()
try:
    passing.sendmsg([HELLO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    print("descriptor", passing.recv(4096)[:1], flush=True)
except OSError as error: print("descriptor", error.strerror, flush=True)
opened = 0
for turn in range(2000):
    try: there = socket.socket(socket.AF_UNIX); there.setblocking(False); there.connect(PLACE); there.close(); opened += 1
    except OSError: pass
print("opened", opened > 0, flush=True)
flood = connect(); flood.setblocking(False)
try:
    while True: flood.send(HELLO * 100)
except OSError: print("flooded", flush=True)
flood.close(); half.close()
for turn in range(100):
    done = subprocess.run(["/opt/harness/airlock-harness", "validate", ".", "--wait"], capture_output=True, text=True)
    if done.returncode == 0: break
    time.sleep(0.2)
print(done.stdout.splitlines()[3], flush=True)
subprocess.run(["/opt/harness/submit.sh"])
"#;

/// Row 62: herdr 3727, alien 390, lens-sandbox 69. That the same holds frame by frame is shown by the tests of the
/// protocol; here the run goes on to its score.
#[test]
fn who_abuses_the_socket_is_served_its_own_run_alone() {
    let (task, other) = (Graded::of("digits-direct"), Graded::of("digits-soup"));
    let neighbour =
        other.shell("/opt/harness/airlock-harness hello; sleep 60").option("--explore", "20s").start();
    neighbour.until(|run| run.printed("explore").contains("run "));
    let run = task.python(ABUSE).end().closed("scored");
    let printed = run.printed("explore");
    // One socket, its own, in a network of its own.
    assert!(printed.contains("'grader.sock'") && printed.contains("] 0\n"), "{printed}");
    for line in ["opened True", "flooded", "score        0.47"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(!printed.contains("descriptor b'{'"), "{printed}");
    assert_eq!(run.score(), "180/400");
    // The journal holds what was asked, and nothing of the noise.
    assert_eq!(run.all("validation_requested").len(), 1);
    let events = neighbour.events();
    assert!(!events.iter().any(|event| event["type"] == "chosen"), "{events:?}");
    neighbour.live().signal(Signal::SIGTERM);
    assert_eq!(neighbour.end().ended.code, 125);
}
