//! Run directories on a small disk of their own, which fills up.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use airlock_tests::{skip, within};
use std::time::Duration;

use crate::support::{Bench, Led, count, events, score};

/// An agent that has made its candidate when it is started a second time.
const WAITS: &str = "echo good > answer; test -e begun && exec /opt/harness/submit.sh; touch begun; sleep 60";

/// A disk that only a mount namespace of its own sees.
struct Disk {
    bench: Bench,
    holder: Child,
    place: PathBuf,
}

impl Disk {
    /// Of so many MiB, which the agent's memory limit counts too (tmpfs); none where nothing can be mounted.
    fn of(size: u32) -> Option<Disk> {
        let bench = Bench::direct();
        if !bench.site().caller().is_root() {
            return None;
        }
        let place = bench.site().path("private/disk");
        fs::create_dir(&place).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size}m,mode=700 tmpfs \"$1\" && touch \"$1/mounted\" && exec sleep 600"
        );
        let mut holder = Command::new("unshare");
        holder.args(["-m", "sh", "-c", &script, "sh"]).arg(&place).stdin(Stdio::null());
        let disk = Disk { bench, holder: holder.spawn().unwrap(), place };
        assert!(within(Duration::from_secs(5), || disk.view("mounted").exists()));
        Some(disk)
    }

    /// A path of the disk as it is seen from outside.
    fn view(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.place.strip_prefix("/").unwrap()).join(name)
    }

    fn lead(&self, word: &str) -> Command {
        self.inside(&self.bench.lead(word))
    }

    /// The command, where the disk is seen.
    fn inside(&self, lead: &Command) -> Command {
        let mut command = self.bench.command("nsenter");
        command.args(["-m", "-t", &self.holder.id().to_string(), "--"]);
        command.arg(lead.get_program()).args(lead.get_args());
        command
    }

    fn run(&self, agent: &str) -> Led<'_> {
        let mut command = self.lead("run");
        command.arg(self.bench.task("")).arg("--run").arg(self.place.join("run"));
        self.bench.start(command.args(["--agent", "sh", "-c", agent]), self.view("run"))
    }

    fn resume(&self) -> Led<'_> {
        let mut command = self.lead("resume");
        self.bench.start(command.arg(self.place.join("run")), self.view("run"))
    }

    /// Checks that the run is whole.
    #[track_caller]
    fn verified(&self) {
        let mut command = self.inside(&self.bench.verify());
        self.bench.start(command.arg(self.place.join("run")), self.view("run")).end().with(0, &[]);
        self.bench.compared(&self.view("run"));
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = File::create(self.view("filler")).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write(&vec![b'x'; size]).is_ok_and(|written| written > 0) {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_run_is_not_begun_where_there_is_no_room() {
    let Some(disk) = Disk::of(250) else { skip!("needs root to mount") };
    disk.run(WAITS).end().with(125, &["less than 256 MiB", "make room"]);
    assert!(!disk.view("run").exists());
}

#[test]
fn an_agent_that_fills_the_disk_is_ended_and_goes_on_when_there_is_room() {
    let Some(disk) = Disk::of(420) else { skip!("needs root to mount") };
    let agent = "echo good > answer; test -e begun && exec /opt/harness/submit.sh; touch begun
head -c 200M /dev/zero > big; sleep 60";
    disk.run(agent).end().with(125, &["less than 256 MiB", "make room"]);
    let run = disk.view("run");
    assert_eq!(count(&events(&run), "phase_ended", Some(("reason", "supervisor-lost"))), 1);
    // As long as there is none, nothing is begun, and nothing is lost.
    disk.resume().end().with(125, &["less than 256 MiB"]);
    fs::remove_file(run.join("work/workspace/big")).unwrap();
    disk.resume().end().with(0, &[]);
    assert_eq!(score(&run), "2");
    disk.verified();
}

#[test]
fn what_cannot_be_sealed_for_want_of_room_is_refused_and_research_goes_on() {
    let Some(disk) = Disk::of(520) else { skip!("needs root to mount") };
    let agent = "echo good > answer; head -c 180M /dev/zero > big
/opt/harness/validate.sh . 2> why && exit 1
cat why >&2; rm big; /opt/harness/validate.sh . --wait && /opt/harness/submit.sh";
    disk.run(agent).end().with(0, &[]);
    let run = disk.view("run");
    assert_eq!(score(&run), "2");
    assert_eq!(count(&events(&run), "phase_started", Some(("name", "explore"))), 1);
    let said = fs::read_to_string(run.join("phases/1-explore/stderr.log")).unwrap();
    assert!(said.contains("no room"), "{said}");
    disk.verified();
}

/// It was acknowledged, so it is not the candidate's fault that it does not fit.
#[test]
fn a_choice_that_does_not_fit_waits_for_room() {
    let Some(disk) = Disk::of(520) else { skip!("needs root to mount") };
    disk.run("echo good > answer; head -c 180M /dev/zero > big; /opt/harness/submit.sh")
        .end()
        .with(125, &["sealing a tree", "make room"]);
    let run = disk.view("run");
    assert_eq!(count(&events(&run), "choice_refused", None), 0);
    disk.resume().end().with(125, &["make room"]);
    fs::remove_file(run.join("work/workspace/big")).unwrap();
    disk.resume().end().with(0, &[]);
    assert_eq!(score(&run), "2");
    disk.verified();
}

#[test]
fn a_journal_without_room_is_intact_and_the_run_goes_on_when_there_is_some() {
    let Some(disk) = Disk::of(400) else { skip!("needs root to mount") };
    let agent = "echo good > answer; test -e begun && exec /opt/harness/submit.sh; touch begun
while :; do /opt/harness/validate.sh .; done";
    let mut led = disk.run(agent);
    led.until(|led| count(&led.events(), "validation_result", None) > 0);
    disk.fill();
    led.end().with(125, &[]);
    let run = disk.view("run");
    disk.resume().end().with(125, &[]);
    let before = events(&run);
    fs::remove_file(disk.view("filler")).unwrap();
    disk.resume().end().with(0, &[]);
    let after = events(&run);
    assert!(after.starts_with(&before), "nothing that was acknowledged is lost");
    assert_eq!(score(&run), "2");
    disk.verified();
}
