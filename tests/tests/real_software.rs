//! Real software under the policies `base` and `research`.
//!
//! What had to be allowed, and why. "Nothing" means that it runs under the filter `strict`, too.
//!
//! | software | needs | because |
//! | --- | --- | --- |
//! | numpy, scikit-learn | `exec = true` on the directory with the packages | the loader maps their shared objects executable |
//! | multiprocessing (locks, shared memory) | `/dev/shm` of some size: `limits.shm` | its semaphores and shared memory are files there |
//! | multiprocessing (`forkserver`) | the filter `default`: sockets of the family unix | the server listens on one in `/tmp` |
//! | `mkfifo` | the filter `default`: mknod of a FIFO | `strict` makes no nodes at all |
//! | `./program` made by gcc | `exec` on the workspace, which `--workspace` sets | it is run from there |
//! | gcc, git, pipelines, Node with threads and children, asyncio, sqlite | nothing | |
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_tests::{Ended, Outcome, Site, skip};

const STRICT: &str = "[seccomp]\nprofile = \"strict\"\n";

/// Runs a shell script in a new workspace, under a built-in policy and these clauses.
fn script(built_in: &str, clauses: &str, text: &str) -> Ended {
    let site = Site::new();
    let workspace = site.folder("workspace");
    let policy = site.policy_extending(built_in, clauses);
    let run = site.run().policy(policy).workspace(&workspace);
    run.end(["/bin/sh", "-c", &format!("set -e; cd /workspace; {text}")])
}

/// The script prints this under both policies and under the filter `strict`.
#[track_caller]
fn needs_nothing(text: &str, output: &str) {
    for (built_in, clauses) in [("base", ""), ("research", ""), ("base", STRICT)] {
        let ended = script(built_in, clauses, text).succeeded();
        assert_eq!(ended.stdout, output, "{built_in} {clauses}: {ended}");
    }
}

/// The script prints this under both policies, and fails in this way under the filter `strict`.
#[track_caller]
fn needs_the_default_filter(text: &str, output: &str, failure: &str) {
    for built_in in ["base", "research"] {
        let ended = script(built_in, "", text).succeeded();
        assert_eq!(ended.stdout, output, "{built_in}: {ended}");
    }
    let ended = script("base", STRICT, text);
    assert!(ended.code != 0 && ended.stderr.contains(failure), "{ended}");
}

/// Skips the test if a program is not installed.
macro_rules! needs {
    ($program:literal) => {
        if !Path::new($program).exists() {
            skip!("{} is not installed", $program);
        }
    };
}

const LEARN: &str = r#"
import multiprocessing
from multiprocessing import shared_memory

import numpy
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split


def total(name):
    block = shared_memory.SharedMemory(name=name)
    value = int(numpy.ndarray((1000,), dtype=numpy.int64, buffer=block.buf).sum())
    block.close()
    return value


if __name__ == "__main__":
    digits = load_digits()
    learn, test, wanted, truth = train_test_split(digits.data, digits.target, random_state=0)
    model = LogisticRegression(max_iter=3000).fit(learn, wanted)
    assert model.score(test, truth) > 0.9
    assert cross_val_score(LogisticRegression(max_iter=300), learn[:300], wanted[:300], n_jobs=2).mean() > 0.8
    block = shared_memory.SharedMemory(create=True, size=8000)
    numpy.ndarray((1000,), dtype=numpy.int64, buffer=block.buf)[:] = numpy.arange(1000)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(total, [block.name] * 4) == [499500] * 4, method
    block.close()
    block.unlink()
    print("learnt")
"#;

#[test]
fn python_with_numpy_and_scikit_learn() {
    needs!("/usr/bin/python3");
    let Some(packages) = std::env::var_os("AIRLOCK_PYTHON_SITE").map(PathBuf::from) else {
        skip!("AIRLOCK_PYTHON_SITE names no directory with numpy and scikit-learn")
    };
    let site = Site::new();
    let package = packages.join("numpy/__init__.py");
    if site.outside(["open".as_ref(), package.as_os_str(), "r".as_ref()]) != Outcome::Done("opened".into()) {
        skip!("the user cannot read {}", package.display());
    }
    let workspace = site.folder("workspace");
    site.file("workspace/learn.py", LEARN);
    let run = |built_in: &str, exec: bool| {
        let clauses = format!(
            "[env]\nset = {{ PYTHONPATH = \"/packages\" }}\n\
             [[mount]]\nsource = {packages:?}\ntarget = \"/packages\"\nexec = {exec}\n"
        );
        let policy = site.policy_extending(built_in, &clauses);
        let run = site.run().policy(policy).workspace(&workspace);
        run.limit(Duration::from_secs(120)).end(["/usr/bin/python3", "/workspace/learn.py"])
    };
    for built_in in ["base", "research"] {
        let ended = run(built_in, true).succeeded();
        assert_eq!(ended.stdout, "learnt\n", "{built_in}: {ended}");
    }
    let ended = run("base", false);
    assert!(ended.stderr.contains("failed to map segment from shared object"), "{ended}");
}

#[test]
fn locks_are_files_in_shm() {
    needs!("/usr/bin/python3");
    let text = "/usr/bin/python3 -c '
import multiprocessing
locks = [multiprocessing.Lock() for _ in range(4)]
print(len(locks))'";
    needs_nothing(text, "4\n");
    let ended = script("base", "[limits]\nshm = \"4KiB\"\n", text);
    assert!(ended.code != 0 && ended.stderr.contains("No space left"), "{ended}");
}

#[test]
fn the_fork_server_listens_on_a_socket() {
    needs!("/usr/bin/python3");
    let text = "/usr/bin/python3 -c '
import multiprocessing
with multiprocessing.get_context(\"forkserver\").Pool(2) as pool:
    print(pool.map(abs, [-1, 2]))'";
    needs_the_default_filter(text, "[1, 2]\n", "PermissionError");
}

#[test]
fn gcc_compiles_a_program_that_runs() {
    needs!("/usr/bin/gcc");
    let text = "printf '#include <stdio.h>\\nint main(void) { return puts(\"compiled\") < 0; }\\n' > a.c; \
                gcc -O2 -Wall -o a a.c; ./a";
    needs_nothing(text, "compiled\n");
}

#[test]
fn git_clones_a_local_repository() {
    needs!("/usr/bin/git");
    let text = "export PATH=/usr/bin:/bin GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a; \
                export GIT_COMMITTER_EMAIL=a@b; \
                git init -q one; cd one; echo text > file; git add file; git commit -qm first; cd ..; \
                git clone -q one two; git clone -q --no-local one three; cat two/file; git -C three log --format=%s";
    needs_nothing(text, "text\nfirst\n");
}

#[test]
fn a_shell_pipeline() {
    let text = "seq 1 20000 | sort -rn | head -3 | tr '\\n' ' '; find /usr/bin -name 'env' | wc -l";
    needs_nothing(text, "20000 19999 19998 1\n");
}

#[test]
fn a_pipe_with_a_name() {
    let text = "mkfifo pipe; (echo through > pipe) & cat pipe; wait";
    needs_the_default_filter(text, "through\n", "cannot create fifo");
}

#[test]
fn node_runs() {
    needs!("/usr/bin/node");
    let text = "/usr/bin/node -e '
        const { Worker } = require(\"worker_threads\");
        const { execFileSync } = require(\"child_process\");
        const said = execFileSync(\"/bin/echo\", [\"child\"]).toString().trim();
        const worker = new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(6 * 7)\", { eval: true });
        worker.on(\"message\", (answer) => console.log(said, answer));
    '";
    needs_nothing(text, "child 42\n");
}

#[test]
fn threads_and_timers_of_the_c_library() {
    needs!("/usr/bin/python3");
    let text = "/usr/bin/python3 -c '
import asyncio, concurrent.futures, os, signal, sqlite3, ssl, subprocess, tempfile, threading, time
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
async def main():
    process = await asyncio.create_subprocess_exec(\"/bin/echo\", \"async\", stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()
print(asyncio.run(main()))
with sqlite3.connect(tempfile.mktemp()) as base:
    print(base.execute(\"select 6 * 7\").fetchone()[0])
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.signal(signal.SIGALRM, lambda *_: print(\"alarm\"))
time.sleep(0.1)
os.posix_spawn(\"/bin/true\", [\"true\"], {})
os.sched_setaffinity(0, os.sched_getaffinity(0))
assert os.getrandom(8) and os.memfd_create(\"m\") > 0
'";
    needs_nothing(text, "async\n42\nalarm\n");
}
