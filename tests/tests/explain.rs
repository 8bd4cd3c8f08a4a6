//! What `airlock policy explain` answers is what happens inside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::path::Path;

use airlock_tests::Site;
use serde_json::Value;

/// Does what each line of its first argument asks, and prints `yes` or `no` and the errno for each.
const DO: &str = r#"
import ctypes, errno, os, shutil, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
# Arguments with which a call that runs fails otherwise than by EPERM or ENOSYS, or does nothing.
CALLS = {"keyctl": (250, 0x7fffffff), "unshare": (272, 0), "clone3": (435, 0, 0), "getpid": (39,),
         "ptrace": (101, 1, 0x7fffffff), "process_vm_readv": (310, 0x7fffffff, 0, 0, 0, 0, 0),
         "memfd_create": (319, 0, 0), "add_key": (248, 0, 0, 0, 0, 0)}

def act(verb, what):
    if verb in ("open", "read"):
        if os.path.isdir(what):
            return os.listdir(what)
        with open(what, "rb") as file:
            file.read(1)
    elif verb == "write":
        os.close(os.open(what, os.O_WRONLY | os.O_CREAT, 0o644))
    elif verb == "exec":
        try:
            if not os.path.exists(what):
                shutil.copyfile("/usr/bin/env", what)
                os.chmod(what, 0o755)
        except OSError:
            pass  # Then there is nothing to run.
        subprocess.run([what, "true"], check=True)
    elif verb == "see":
        os.stat(what)
    elif verb == "connect" and what.startswith("/"):
        socket.socket(socket.AF_UNIX).connect(what)
    elif verb == "connect":
        host, port = what.rsplit(":", 1)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            socket.socket(family).connect((host.strip("[]"), int(port)))
        except ConnectionRefusedError:
            pass  # It was reached.
    elif verb == "syscall":
        number, *args = CALLS[what]
        ctypes.set_errno(0)
        if libc.syscall(number, *args) < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), "refused")

for question in sys.argv[1].splitlines():
    try:
        act(*question.split(" ", 1))
        print("yes", question)
    except OSError as error:
        print("no", question, errno.errorcode.get(error.errno, error))
"#;

const FILES: [&str; 25] = [
    "read /etc/passwd",
    "open /etc/shadow",
    "write /etc/passwd",
    "see /root",
    "see /home",
    "see /sys",
    "see /var/run/docker.sock",
    "exec /usr/bin/env",
    "write /usr/bin/env",
    "exec /bin/true",
    "exec /usr/bin/none",
    "read /usr",
    "write /tmp/x",
    "exec /tmp/y",
    "read /tmp/none",
    "write /var/tmp/z",
    "write /dev/shm/x",
    "exec /dev/shm/y",
    "write /run/x",
    "write /x",
    "see /dev/nvidia0",
    "write /dev/null",
    "see /dev/sda",
    "write /proc/sys/kernel/core_pattern",
    "read /proc/self/status",
];

const REACH: [&str; 12] = [
    "connect 127.0.0.1:80",
    "connect [::1]:80",
    "connect 1.2.3.4:443",
    "connect /run/docker.sock",
    "syscall keyctl",
    "syscall add_key",
    "syscall unshare",
    "syscall clone3",
    "syscall ptrace",
    "syscall process_vm_readv",
    "syscall memfd_create",
    "syscall getpid",
];

fn questions(more: &[&str]) -> Vec<String> {
    FILES.iter().chain(&REACH).chain(more).map(ToString::to_string).collect()
}

/// Asks, does, and compares; the answers by question.
#[track_caller]
fn agree(site: &Site, policy: &Path, questions: &[String]) -> BTreeMap<String, Value> {
    let mut words = vec!["policy", "explain", policy.to_str().unwrap(), "--json"];
    questions.iter().for_each(|question| words.extend(["--what", question]));
    let told = site.airlock_with(words);
    let answers: Vec<Value> = serde_json::from_str(&told.stdout).unwrap_or_else(|_| panic!("{told}"));
    let asked = questions.join("\n");
    let done = site.run().policy(policy).end(["/usr/bin/python3", "-I", "-S", "-c", DO, &asked]).succeeded();
    let happened: Vec<&str> = done.stdout.lines().collect();
    assert_eq!((answers.len(), happened.len()), (questions.len(), questions.len()), "{done}");
    let mut wrong = Vec::new();
    for (answer, line) in answers.iter().zip(&happened) {
        let yes = answer["yes"] == true;
        if yes != line.starts_with("yes ") {
            wrong.push(format!("{line}, but: {answer}"));
        }
        assert!(answer["place"]["line"].as_u64() > Some(0), "{answer}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    questions.iter().cloned().zip(answers).collect()
}

fn decided<'a>(answers: &'a BTreeMap<String, Value>, question: &str) -> (bool, &'a str) {
    (answers[question]["yes"] == true, answers[question]["clause"].as_str().unwrap())
}

#[test]
fn of_a_policy_with_mounts() {
    let site = Site::new();
    let (data, work) = (site.folder("data"), site.folder("work"));
    site.file("data/x", "x");
    let secret = site.file("data/secret", "x");
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let policy = site.policy(&format!(
        "[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\n\
         [[mount]]\nsource = \"{}\"\ntarget = \"/job\"\nmode = \"rw\"\nexec = true\n",
        data.display(),
        work.display()
    ));
    let more = [
        "read /data",
        "read /data/x",
        "write /data/x",
        "write /data/y",
        "exec /data/x",
        "write /job/x",
        "exec /job/y",
        "see /job/none",
        "write /job/none/x",
        "read /data/secret",
    ];
    let answers = agree(&site, &policy, &questions(&more));
    assert_eq!(decided(&answers, "write /data/y"), (false, "[[mount]] /data"));
    assert_eq!(decided(&answers, "exec /job/y"), (true, "[[mount]] /job"));
    assert_eq!(decided(&answers, "write /x"), (false, "root.writable"));
    assert_eq!(decided(&answers, "open /etc/shadow"), (false, "root.kind"));
    assert_eq!(decided(&answers, "connect 1.2.3.4:443"), (false, "network.mode"));
    assert_eq!(decided(&answers, "syscall keyctl"), (false, "seccomp.profile"));
}

#[test]
fn of_a_strict_policy() {
    let site = Site::new();
    let answers = agree(&site, &site.policy_extending("strict", ""), &questions(&[]));
    assert_eq!(decided(&answers, "exec /tmp/y"), (false, "limits.tmp"));
    assert_eq!(decided(&answers, "connect 127.0.0.1:80"), (false, "seccomp.profile"));
}

#[test]
fn of_clauses_that_change_the_answer() {
    let site = Site::new();
    let work = site.folder("work");
    let policy = site.policy(&format!(
        "[network]\nmode = \"loopback\"\n\
         [seccomp]\nallow = [\"keyctl\", \"ptrace\"]\ndeny = [\"memfd_create\"]\n\
         [landlock]\nwrite = [\"/tmp\", \"/dev/shm\"]\n\
         [root]\nwritable = \"tmpfs\"\n\
         [[mount]]\nsource = \"{}\"\ntarget = \"/job\"\nmode = \"rw\"\n",
        work.display()
    ));
    let answers = agree(&site, &policy, &questions(&["write /job/x", "exec /job/y"]));
    assert_eq!(decided(&answers, "write /job/x"), (false, "landlock.write"));
    assert_eq!(decided(&answers, "connect 127.0.0.1:80"), (true, "network.mode"));
    assert_eq!(decided(&answers, "syscall ptrace"), (true, "seccomp.allow"));
    assert_eq!(decided(&answers, "syscall memfd_create"), (false, "seccomp.deny"));
}

#[test]
fn of_a_root_that_is_a_directory() {
    let site = Site::new();
    let root = site.folder("root");
    for name in ["etc", "usr", "closed"] {
        site.folder(&format!("root/{name}"));
    }
    for name in ["bin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    for (name, bits) in [("etc/issue", 0o644), ("etc/secret", 0o000), ("closed/x", 0o644)] {
        mode(&site.file(&format!("root/{name}"), "x"), bits);
    }
    mode(&root.join("closed"), 0o600);
    let policy = site.policy(&format!(
        "[root]\nkind = \"dir\"\npath = \"{}\"\n\
         [[mount]]\nsource = \"/usr\"\ntarget = \"/usr\"\nexec = true\n",
        root.display()
    ));
    let more = [
        "read /etc/issue",
        "read /etc/secret",
        "write /etc/issue",
        "see /closed/x",
        "see /closed",
        "see /bin",
    ];
    agree(&site, &policy, &questions(&more));
}

#[test]
fn a_question_that_is_none_is_named() {
    let site = Site::new();
    let ended = site.airlock_with(["policy", "explain", "base", "--what", "syscall keyctrl"]);
    assert!(ended.code == 125 && ended.stderr.contains("did you mean `keyctl`?"), "{ended}");
    let lowered =
        ["policy", "explain", "grader", "--best-effort", "limits,devices", "--what", "syscall keyctl"];
    assert_eq!(site.airlock_with(lowered).code, 1);
}
