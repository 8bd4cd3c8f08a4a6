//! Graded runs: a task, an agent's script, and what came of it.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::{Ended, Live, Site};

/// A site with a task of its own, and Airlock's three programs beside each other.
#[derive(Debug)]
pub struct Graded {
    site: Site,
    runs: Cell<u32>,
}

/// An `airlock task run` or `resume` to be.
#[derive(Debug)]
pub struct Lead<'a> {
    graded: &'a Graded,
    command: Command,
    /// It takes everything that follows it, so it stands last.
    agent: Vec<String>,
    run: PathBuf,
    limit: Duration,
}

/// A run that is being led.
#[derive(Debug)]
pub struct LiveRun<'a> {
    graded: &'a Graded,
    live: Live,
    run: PathBuf,
}

/// What came of a run.
#[derive(Debug)]
pub struct GradedRun<'a> {
    /// Where it was made.
    pub graded: &'a Graded,
    /// How the command ended.
    pub ended: Ended,
    /// The run directory.
    pub path: PathBuf,
    /// The events of the journal.
    pub events: Vec<Value>,
}

impl Graded {
    /// With a copy of a bundled task.
    pub fn of(task: &str) -> Graded {
        Graded::at(Site::new(), task)
    }

    /// With a copy of a bundled task, in this site.
    pub fn at(site: Site, task: &str) -> Graded {
        let graded = Graded::empty(site);
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks").join(task);
        copy_tree(&example, &graded.task(""));
        graded.own();
        graded
    }

    /// With a task of these files.
    pub fn with(files: &[(&str, &str)]) -> Graded {
        files.iter().fold(Graded::empty(Site::new()), |graded, (path, text)| graded.file(path, text))
    }

    fn empty(site: Site) -> Graded {
        // Only its owner comes where root's runs lie.
        let place = site.path("private");
        fs::create_dir(&place).expect("own directory");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("own directory");
        site.caller().own(&place);
        Graded { site, runs: Cell::new(0) }
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// A path of the task.
    pub fn task(&self, path: &str) -> PathBuf {
        self.site.path("private/task").join(path)
    }

    /// Writes a file of the task.
    #[must_use]
    pub fn file(self, path: &str, text: impl AsRef<[u8]>) -> Graded {
        let path = self.task(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("own directory");
        fs::write(path, text).expect("own file");
        self.own();
        self
    }

    /// Changes a passage of a file of the task, which must be there.
    #[must_use]
    pub fn edit(self, path: &str, from: &str, to: &str) -> Graded {
        let text = fs::read_to_string(self.task(path)).expect("a file of the task");
        assert!(text.contains(from), "{path} does not hold {from:?}");
        self.file(path, text.replace(from, to))
    }

    /// A run whose agent is this shell script.
    pub fn shell(&self, script: &str) -> Lead<'_> {
        self.lead(&["--agent", "sh", "-c", script])
    }

    /// A run whose agent is this Python program.
    pub fn python(&self, program: &str) -> Lead<'_> {
        self.lead(&["--agent", "python3", "-c", program])
    }

    /// A run without an agent.
    pub fn baseline(&self) -> Lead<'_> {
        self.lead(&["--baseline"])
    }

    fn lead(&self, agent: &[&str]) -> Lead<'_> {
        let number = self.runs.replace(self.runs.get() + 1);
        let run = self.site.path(&format!("private/run-{number}"));
        let mut lead = self.command("run", &self.task(""), run.clone());
        lead.command.arg("--run").arg(run);
        lead.agent = agent.iter().map(|word| (*word).to_owned()).collect();
        lead
    }

    /// Takes a run up again.
    pub fn resume(&self, run: &Path) -> Lead<'_> {
        self.command("resume", run, run.to_owned())
    }

    fn command(&self, word: &str, what: &Path, run: PathBuf) -> Lead<'_> {
        let mut command = self.site.leading(word);
        command.arg(what).arg("--key").arg(self.site.path("private/signing.key"));
        Lead { graded: self, command, agent: Vec::new(), run, limit: Duration::from_secs(60) }
    }

    fn own(&self) {
        own_all(&self.task(""), &self.site);
    }
}

impl<'a> Lead<'a> {
    /// With an option that has a value.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Lead<'a> {
        self.command.arg(name).arg(value);
        self
    }

    /// With an option that has none.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Lead<'a> {
        self.command.arg(name);
        self
    }

    /// With a variable in the supervisor's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Lead<'a> {
        self.command.env(name, value);
        self
    }

    /// In a mount namespace of its own, which root changes by this shell script first.
    #[must_use]
    pub fn where_root_did(mut self, script: &str) -> Lead<'a> {
        let mut command = crate::run::where_root_did(&self.graded.site, script);
        command.arg(self.command.get_program()).args(self.command.get_args());
        self.command = command;
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn start(mut self) -> LiveRun<'a> {
        self.command.args(&self.agent);
        LiveRun { graded: self.graded, live: crate::run::start(self.command, self.limit), run: self.run }
    }

    /// Leads it to its end.
    #[track_caller]
    pub fn end(self) -> GradedRun<'a> {
        self.start().end()
    }
}

impl<'a> LiveRun<'a> {
    /// The command.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The run directory.
    pub fn path(&self) -> &Path {
        &self.run
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Value> {
        journal(&self.run)
    }

    /// What the newest phase of this name has printed so far.
    pub fn printed(&self, phase: &str) -> String {
        phases(&self.run, phase).last().map(|dir| text(&dir.join("stdout.log"))).unwrap_or_default()
    }

    /// Waits until a question is answered with yes.
    #[track_caller]
    pub fn until(&self, mut question: impl FnMut(&Self) -> bool) {
        assert!(crate::within(self.live.left(), || question(self)), "it did not come: {:#?}", self.events());
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(self) -> GradedRun<'a> {
        let ended = self.live.end();
        GradedRun { graded: self.graded, ended, events: journal(&self.run), path: self.run }
    }
}

impl GradedRun<'_> {
    /// Checks that the run was closed so, and that the command's status says it.
    #[track_caller]
    pub fn closed(self, outcome: &str) -> Self {
        assert_eq!(self.ended.code, i32::from(outcome != "scored"), "{}", self.ended);
        assert_eq!(self.event("closed")["outcome"], outcome, "{}", self.ended);
        self
    }

    /// The events of this type.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    /// When the events of this type were journaled, on the boot-time clock in nanoseconds.
    pub fn moments(&self, kind: &str) -> Vec<u64> {
        let records = records(&self.path).into_iter().filter(|record| record["event"]["type"] == kind);
        records.map(|record| record["boot_ns"].as_u64().expect("a moment")).collect()
    }

    /// The one event of this type.
    #[track_caller]
    pub fn event(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "events `{kind}` of {:#?}\n{}", self.events, self.ended);
        all[0]
    }

    /// Where the first event that fits stands in the journal.
    #[track_caller]
    pub fn place(&self, fits: impl Fn(&Value) -> bool) -> usize {
        self.events.iter().position(fits).unwrap_or_else(|| panic!("no such event: {:#?}", self.events))
    }

    /// The score as `SUM/N`.
    #[track_caller]
    pub fn score(&self) -> String {
        fraction(&self.event("scored")["score"])
    }

    /// The place on the ladder.
    #[track_caller]
    pub fn sigma(&self) -> f64 {
        self.event("scored")["sigma"].as_str().expect("a ladder").parse().expect("a decimal")
    }

    /// The directories of the phases of this name, in order.
    pub fn phases(&self, name: &str) -> Vec<PathBuf> {
        phases(&self.path, name)
    }

    /// What the only phase of this name printed.
    #[track_caller]
    pub fn printed(&self, phase: &str) -> String {
        let phases = self.phases(phase);
        assert_eq!(phases.len(), 1, "phases `{phase}`; {}", self.ended);
        text(&phases[0].join("stdout.log"))
    }

    /// The names of the phases, in order.
    pub fn phase_names(&self) -> Vec<&str> {
        self.all("phase_started").iter().filter_map(|event| event["name"].as_str()).collect()
    }

    /// The event that ended the last phase of this name.
    #[track_caller]
    pub fn end_of(&self, phase: &str) -> &Value {
        let number = self.phase_names().iter().rposition(|name| *name == phase).expect("it ran");
        let ended = self.all("phase_ended");
        ended.into_iter().find(|event| event["phase"] == number).expect("it has ended")
    }

    /// A document of the run directory.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let path = self.path.join(path);
        serde_json::from_str(&text(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// What the receipt states.
    #[track_caller]
    pub fn receipt(&self) -> Value {
        let envelope = self.json("receipt.json");
        let statement = base64(envelope["payload"].as_str().expect("a payload"));
        serde_json::from_slice::<Value>(&statement).expect("a statement")["predicate"].take()
    }

    /// A sealed tree of the run by its digest.
    pub fn sealed(&self, digest: &Value) -> PathBuf {
        let digest = digest.as_str().and_then(|text| text.strip_prefix("sha256:")).expect("a digest");
        self.path.join("store").join(digest).join("tree")
    }
}

/// `{"sum": S, "n": N}` as `S/N`; `void` where there is no score.
pub fn fraction(score: &Value) -> String {
    match (score["sum"].as_str(), score["n"].as_u64()) {
        (Some(sum), Some(n)) => format!("{sum}/{n}"),
        _ => "void".into(),
    }
}

fn journal(run: &Path) -> Vec<Value> {
    records(run).into_iter().map(|mut record| record["event"].take()).collect()
}

fn records(run: &Path) -> Vec<Value> {
    text(&run.join("journal.jsonl")).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn phases(run: &Path, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("phases")).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let (number, phase) = file.split_once('-')?;
        (phase == name).then_some(())?;
        Some((number.parse().ok()?, entry.path()))
    });
    let mut numbered: Vec<(u32, PathBuf)> = numbered.collect();
    numbered.sort();
    numbered.into_iter().map(|(_, path)| path).collect()
}

/// A file's text; nothing where it is not there yet.
fn text(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("own directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to);
        } else {
            fs::copy(from, to).expect("own file");
        }
    }
}

fn own_all(path: &Path, site: &Site) {
    site.caller().own(path);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        own_all(&entry.path(), site);
    }
}

/// Decodes RFC 4648 §4; what is no letter of it ends the text.
fn base64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for value in text.bytes().map_while(|letter| LETTERS.iter().position(|known| *known == letter)) {
        bits = bits << 6 | u32::try_from(value).unwrap_or_default();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    bytes
}
