//! Runs of tiny tasks, whose parts are found and killed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use airlock_grader::Digest;
use airlock_grader::receipt::{PublicKey, Statement, verify};
use airlock_tests::{Census, Site, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Nothing of these tests takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that asks a candidate, item by item, and wants `good` for an answer.
pub(crate) const ASK: &str = "\
for item in row-0 row-1; do
  echo $item >&4
  IFS= read -r answer <&4 || answer=
  test \"$answer\" = good && score=1 || score=0
  items=\"$items${items:+,}{\\\"id\\\":\\\"$item\\\",\\\"attempts\\\":[{\\\"status\\\":\\\"ok\\\",\\\"score\\\":$score,\\\"wall_ms\\\":1}]}\"
done
echo \"{\\\"items\\\":[$items]}\" >&3
";

/// What the candidate runs: says what it was made to say.
pub(crate) const SERVE: &str = "while read -r item <&4; do cat /candidate/answer >&4; done\n";

/// An agent that makes a good candidate, asks once, and submits.
pub(crate) const HONEST: &str =
    "echo good > answer; /opt/harness/validate.sh . --wait && /opt/harness/submit.sh";

const DIRECT: &str = r#"
version = "1.0"
[environment]
cpus = 1
memory_mb = 256
[airlock]
version = 1
id = "tiny"
lifecycle = "direct"
submission = "tree"
[airlock.editable]
data = ["answer", "begun", "big", "hello", "late", "why"]
[airlock.budget]
explore = "1m"
grace = "1s"
validation_counts = true
[airlock.proxy]
name = "good"
direction = "max"
items = { count = 2, prefix = "row-" }
[airlock.metric]
name = "good"
direction = "max"
items = { count = 2, prefix = "row-" }
[[airlock.asset]]
name = "rows"
path = "assets/rows"
visibility = "hidden"
[[airlock.phase]]
name = "explore"
[[airlock.phase]]
name = "validate"
command = ["sh", "/tests/score.sh"]
limits = { wall = "3s" }
[[airlock.phase]]
name = "score"
command = ["sh", "/tests/score.sh"]
mounts = [{ source = "asset:rows", target = "/rows" }]
limits = { wall = "3s" }
[[airlock.phase]]
name = "candidate"
command = ["sh", "/candidate/serve.sh"]
"#;

/// An agent that makes a good source.
pub(crate) const BUILDER: &str = "sed -i s/bad/good/ build.sh; sh build.sh /output
/opt/harness/validate.sh ck-2 --wait && /opt/harness/submit.sh";

const REPLAY: &str = r#"
version = "1.0"
[environment]
cpus = 1
memory_mb = 256
[airlock]
version = 1
id = "tiny"
lifecycle = "replay"
submission = "patch"
[airlock.editable]
allow_create = false
trainer = ["build.sh"]
[airlock.budget]
explore = "1m"
grace = "1s"
replay = "10s"
[airlock.checkpoints]
limit = 2
name = "ck-{progress}"
payload = ["w"]
command = ["sh", "/tests/check.sh"]
[airlock.proxy]
name = "good"
direction = "max"
items = { count = 2, prefix = "row-" }
[airlock.metric]
name = "good"
direction = "max"
items = { count = 2, prefix = "row-" }
[[airlock.phase]]
name = "explore"
[[airlock.phase]]
name = "replay"
command = ["sh", "build.sh", "/output"]
[[airlock.phase]]
name = "validate"
command = ["sh", "/tests/score.sh"]
limits = { wall = "10s" }
[[airlock.phase]]
name = "score"
command = ["sh", "/tests/score.sh"]
limits = { wall = "10s" }
"#;

/// A program that looks at a checkpoint.
const LOOK: &str = "\
grep -q good /candidate/w && score=1 || score=0
for item in row-0 row-1; do
  items=\"$items${items:+,}{\\\"id\\\":\\\"$item\\\",\\\"attempts\\\":[{\\\"status\\\":\\\"ok\\\",\\\"score\\\":$score,\\\"wall_ms\\\":1}]}\"
done
echo \"{\\\"items\\\":[$items]}\" >&3
";

/// A site, a task, and runs of it.
pub(crate) struct Bench {
    site: Site,
    runs: Cell<u32>,
    said: Cell<u32>,
}

/// A supervisor that runs.
pub(crate) struct Led<'a> {
    bench: &'a Bench,
    child: Child,
    pub(crate) run: PathBuf,
    said: PathBuf,
}

/// How a supervisor ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None: by a signal.
    pub(crate) code: Option<i32>,
    /// What it printed.
    pub(crate) said: String,
}

impl Bench {
    /// With the task whose candidate is asked item by item.
    pub(crate) fn direct() -> Bench {
        let bench = Bench::empty();
        bench.write("task.toml", DIRECT);
        bench.write("environment/answer", "bad\n");
        bench.write("environment/serve.sh", SERVE);
        bench.write("assets/rows", "hidden\n");
        bench.write("tests/score.sh", ASK);
        bench
    }

    /// With the task whose source builds checkpoints.
    pub(crate) fn replay() -> Bench {
        let bench = Bench::empty();
        bench.write("task.toml", REPLAY);
        let build = "for n in 1 2; do mkdir -p $1/ck-$n; echo bad $n > $1/ck-$n/w; done\n";
        bench.write("environment/build.sh", build);
        bench.write("tests/check.sh", "test -s /candidate/w\n");
        bench.write("tests/score.sh", LOOK);
        bench
    }

    fn empty() -> Bench {
        let site = Site::new();
        for name in ["airlock-harness", "airlock-grader"] {
            fs::copy(built(name), site.airlock().with_file_name(name)).unwrap();
        }
        let place = site.path("private");
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        site.caller().own(&place);
        let bench = Bench { site, runs: Cell::new(0), said: Cell::new(0) };
        bench.write("instruction.md", "Say good.\n");
        bench
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// A path of the task.
    pub(crate) fn task(&self, path: &str) -> PathBuf {
        self.site.path("private/task").join(path)
    }

    /// Writes a file of the task.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.task(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        for path in path.ancestors().take_while(|path| *path != self.site.path("private")) {
            self.site.caller().own(path);
        }
    }

    /// Changes a passage of a file of the task, which must be there.
    pub(crate) fn edit(&self, path: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.task(path)).unwrap();
        assert!(text.contains(from), "{path} does not hold {from:?}");
        self.write(path, &text.replace(from, to));
    }

    /// Where the next run will be.
    fn place(&self) -> PathBuf {
        self.runs.set(self.runs.get() + 1);
        self.site.path(&format!("private/run-{}", self.runs.get()))
    }

    /// Starts a run whose agent is this shell script.
    pub(crate) fn run(&self, agent: &str) -> Led<'_> {
        self.run_at(self.place(), agent, &[])
    }

    /// Starts a run in this directory.
    pub(crate) fn run_at(&self, run: PathBuf, agent: &str, options: &[&str]) -> Led<'_> {
        let mut command = self.lead("run");
        command.arg(self.task("")).arg("--run").arg(&run).args(options);
        if !self.site.limits() {
            command.args(["--best-effort", "limits,devices"]);
        } else if !self.site.caller().is_root() {
            command.args(["--best-effort", "devices"]);
        }
        self.start(command.args(["--agent", "sh", "-c", agent]), run)
    }

    /// Takes a run up again.
    pub(crate) fn resume(&self, run: &Path, options: &[&str]) -> Led<'_> {
        self.start(self.lead("resume").arg(run).args(options), run.to_owned())
    }

    /// `airlock task WORD`, with what all need.
    pub(crate) fn lead(&self, word: &str) -> Command {
        let mut command = self.command(self.site.airlock());
        command.args(["task", word, "--json", "--key"]).arg(self.site.path("private/signing.key"));
        if let Some(parent) = self.site.cgroups() {
            command.args(["--cgroup-parent", parent.name()]);
        }
        command
    }

    /// A command as the caller.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.site.path(""));
        command.env("XDG_RUNTIME_DIR", self.site.path("state")).current_dir(self.site.path(""));
        self.site.caller().become_by(&mut command);
        command
    }

    pub(crate) fn start(&self, command: &mut Command, run: PathBuf) -> Led<'_> {
        self.said.set(self.said.get() + 1);
        let said = self.site.path(&format!("private/said-{}", self.said.get()));
        let file = File::create(&said).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Led { bench: self, child: command.spawn().unwrap(), run, said }
    }

    /// Checks that no sandbox of the site is left: no process, no cgroup, no mount, no record.
    #[track_caller]
    pub(crate) fn is_empty(&self) {
        assert!(
            within(Duration::from_secs(3), || self.site.processes().is_empty()),
            "{:?}",
            self.site.processes()
        );
        let census = Census::of(&self.site);
        assert!(census.cgroups.is_empty(), "{:?}", census.cgroups);
        let ours = self.site.path("").display().to_string();
        let mounts: Vec<_> = census.mounts.iter().filter(|mount| mount.contains(&ours)).collect();
        assert!(mounts.is_empty(), "{mounts:?}");
        let list = self.site.airlock_with(["list", "--json"]).succeeded();
        assert!(!list.stdout.contains(&ours), "{}", list.stdout);
    }

    /// The receipt of a run that `airlock task verify` finds whole.
    #[track_caller]
    pub(crate) fn receipt(&self, run: &Path) -> Statement {
        self.start(self.verify().arg(run), run.to_owned()).end().with(0, &[]);
        self.compared(run)
    }

    /// `airlock task verify`, without the run.
    pub(crate) fn verify(&self) -> Command {
        let mut command = self.command(self.site.airlock());
        command.args(["task", "verify", "--key"]).arg(self.site.path("private/signing.pub"));
        command
    }

    /// The receipt, after every file of the run was compared with it.
    #[track_caller]
    pub(crate) fn compared(&self, run: &Path) -> Statement {
        let text = |path: &Path| {
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let key = PublicKey::from_pem(&text(&self.site.path("private/signing.pub"))).unwrap();
        let statement = verify(text(&run.join("receipt.json")).as_bytes(), &key).unwrap();
        let signed: BTreeMap<_, _> =
            statement.subject.iter().map(|subject| (subject.name.clone(), subject.digest())).collect();
        let mut found = BTreeMap::new();
        files(run, run, &mut found);
        assert_eq!(found, signed);
        for event in events(run).iter().filter(|event| event["type"] == "phase_ended") {
            let phase = format!("phases/{}-", event["phase"]);
            let report =
                signed.iter().find(|(name, _)| name.starts_with(&phase) && name.ends_with("/end.json"));
            assert_eq!(event["report"], report.unwrap().1.to_string().as_str(), "the end report of {phase}");
        }
        statement
    }
}

impl Led<'_> {
    /// The supervisor.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        events(&self.run)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until the question is answered with yes; no if the supervisor ended before.
    #[track_caller]
    pub(crate) fn until(&mut self, mut question: impl FnMut(&Self) -> bool) -> bool {
        let latest = Instant::now() + LIMIT;
        loop {
            let ended = self.child.try_wait().unwrap().is_some();
            if question(self) {
                return true;
            }
            if ended {
                return false;
            }
            assert!(Instant::now() < latest, "it did not come: {:#?}\n{}", self.events(), self.said());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a phase of this name runs, and gives its monitor and its init.
    #[track_caller]
    pub(crate) fn sandbox(&mut self, phase: &str) -> (i32, i32) {
        let (mut found, state) = (None, self.bench.state());
        let run = self.run.clone();
        let there = self.until(|_| {
            found = records(&state).iter().find_map(|record| {
                let report = PathBuf::from(record["report"]["path"].as_str()?);
                let name = report.parent()?.file_name()?.to_str()?.split_once('-')?.1.to_owned();
                let pid = |who: &str| i32::try_from(record[who]["pid"].as_i64()?).ok();
                (report.starts_with(&run) && name == phase).then_some(())?;
                Some((pid("monitor")?, pid("init")?))
            });
            found.is_some()
        });
        assert!(there, "no phase {phase}: {}", self.said());
        found.unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let mut status = None;
        let ended = within(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(ended, "it does not end: {:#?}\n{}", self.events(), self.said());
        Ended { code: status.unwrap().code(), said: self.said() }
    }

    /// Kills the supervisor.
    pub(crate) fn kill(self) -> PathBuf {
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGKILL);
        let run = self.run.clone();
        self.end();
        run
    }
}

impl Drop for Led<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// Checks the status, and that all of these are said.
    #[track_caller]
    pub(crate) fn with(self, code: i32, pieces: &[&str]) -> Ended {
        assert_eq!(self.code, Some(code), "{}", self.said);
        for piece in pieces {
            assert!(self.said.contains(piece), "`{piece}` is not said: {}", self.said);
        }
        self
    }
}

impl Bench {
    fn state(&self) -> PathBuf {
        if self.site.caller().is_root() { "/run/airlock".into() } else { self.site.path("state/airlock") }
    }
}

/// The events of a run that are whole.
pub(crate) fn events(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["event"].take())).collect()
}

/// How many events of this type there are, whose field is so if one is named.
pub(crate) fn count(events: &[Value], kind: &str, field: Option<(&str, &str)>) -> usize {
    let fits =
        |event: &&Value| event["type"] == kind && field.is_none_or(|(name, value)| event[name] == value);
    events.iter().filter(fits).count()
}

/// The sum of the score.
#[track_caller]
pub(crate) fn score(run: &Path) -> String {
    let events = events(run);
    let scored = events.iter().find(|event| event["type"] == "scored");
    scored.unwrap_or_else(|| panic!("no score: {events:#?}"))["score"]["sum"]
        .as_str()
        .unwrap_or("void")
        .to_owned()
}

fn records(state: &Path) -> Vec<Value> {
    let files = fs::read_dir(state.join("sandboxes")).into_iter().flatten().flatten();
    files.filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok()).collect()
}

fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.ancestors().nth(2).unwrap().join(name);
    std::env::var_os("AIRLOCK_BIN").map_or(beside, |path| PathBuf::from(path).with_file_name(name))
}

fn files(root: &Path, directory: &Path, found: &mut BTreeMap<String, Digest>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let in_tree = name.starts_with("store/") && name.split('/').count() == 3;
        match entry.file_type().unwrap().is_dir() {
            true if in_tree => {}
            true => files(root, &path, found),
            false if name == "receipt.json" => {}
            false => drop(found.insert(name, Digest::of(&fs::read(&path).unwrap()))),
        }
    }
}
