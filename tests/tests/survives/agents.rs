//! Agents that do to the socket what they can, through a whole run.

use std::fs;

use crate::support::{Bench, count, events, score};

/// Floods, sends half a frame and waits, sends long lines, passes descriptors, and opens ten thousand connections.
const RUDE: &str = r#"
import array, json, os, socket, threading, time
PATH = "/run/airlock/grader.sock"
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(PATH); return s
def call(s, method, **params):
    s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
    line = b""
    while not line.endswith(b"\n"):
        part = s.recv(65536)
        if not part: raise OSError("closed")
        line += part
    return json.loads(line)
def quietly(work):
    try: return work()
    except OSError: return None
held = []
for n in range(8):
    s = connect(); s.sendall(b'{"jsonrpc": "2.0", "id"'); held.append(s)
quietly(lambda: connect().sendall(b"x" * (1 << 20) + b"\n"))
def flood():
    s = connect(); s.settimeout(1); s.sendall(b"\n" * (8 << 20))
quietly(flood)
def pass_descriptors():
    s = connect(); fds = array.array("i", [0, 1, 2])
    s.sendmsg([b"{}\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]); s.recv(100)
quietly(pass_descriptors)
def many(count):
    for n in range(count):
        def one():
            s = socket.socket(socket.AF_UNIX); s.setblocking(False); s.connect(PATH); s.close()
        quietly(one)
threads = [threading.Thread(target=many, args=(2500,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
for s in held: s.close()
print("rude", flush=True)
"#;

const SUBMIT: &str = r#"
open("answer", "w").write("good\n")
end = time.monotonic() + 30
while time.monotonic() < end:
    reply = quietly(lambda: call(connect(), "submit", candidate="."))
    if reply and "result" in reply: time.sleep(20)
    print(reply, flush=True)
    time.sleep(0.2)
"#;

fn python(bench: &Bench, program: &str) -> std::path::PathBuf {
    let files = bench.site().folder("agent");
    fs::write(files.join("agent.py"), program).unwrap();
    let run = bench.site().path("private/rude");
    let options = ["--agent-files", files.to_str().unwrap()];
    let led = bench.run_at(run.clone(), "exec python3 /opt/agent/agent.py", &options);
    led.end().with(0, &[]);
    run
}

#[test]
fn an_agent_that_abuses_the_socket_is_served_and_scored() {
    let bench = Bench::direct();
    let run = python(&bench, &format!("{RUDE}{SUBMIT}"));
    assert_eq!(score(&run), "2");
    let events = events(&run);
    assert_eq!(count(&events, "phase_started", Some(("name", "grader"))), 1, "it was never replaced");
    assert!(fs::read_to_string(run.join("phases/1-explore/stdout.log")).unwrap().starts_with("rude"));
    assert!(fs::metadata(run.join("journal.jsonl")).unwrap().len() < 64 << 10);
    assert!(fs::metadata(run.join("phases/0-grader/stderr.log")).unwrap().len() <= (16 << 20) + 200);
    bench.receipt(&run);
    bench.is_empty();
}

/// What a run keeps of it grows with the time, not with how fast it is asked.
#[test]
fn an_agent_that_validates_without_end_is_bounded() {
    let bench = Bench::direct();
    let program = r#"
def ask():
    s = connect(); end = time.monotonic() + 6
    while time.monotonic() < end:
        reply = call(s, "validate", candidate=".")
        if "result" in reply: call(s, "cancel", ticket=reply["result"]["ticket"])
        else: refused.append(reply["error"]["code"])
refused = []
threads = [threading.Thread(target=lambda: quietly(ask)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(len(refused), set(refused), flush=True)
"#;
    let begin = RUDE.split("held = []").next().unwrap();
    let run = python(&bench, &format!("{begin}{program}{SUBMIT}"));
    assert_eq!(score(&run), "2");
    let events = events(&run);
    let sealed = count(&events, "candidate_sealed", Some(("sealed_for", "validation")));
    assert!((10..256 + 4 * 30).contains(&sealed), "{sealed} were sealed");
    // The same bytes are kept once: the frozen source, the agent's files and the candidate.
    assert!(fs::read_dir(run.join("store")).unwrap().count() <= 4);
    bench.receipt(&run);
}
