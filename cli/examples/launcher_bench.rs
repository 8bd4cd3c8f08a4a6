//! Start and end of the shortest program through the launcher, beside a bare clone3 with the same namespaces.
//!
//! `cargo run --release -p airlock --example launcher_bench [ROUNDS [PAUSE_MS]]`. Both ways are started by this one
//! process, in random order. `PAUSE_MS` is the pause before each in the second table.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use airlock_policy::{HostTree, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::Spec;
use airlock_runtime::launcher::{Launcher, Request};
use anyhow::{Context, Result, ensure};

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

fn main() -> Result<()> {
    let launcher = Launcher::start()?;
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let rounds = numbers.next().transpose()?.unwrap_or(200);
    let pause = numbers.next().transpose()?.unwrap_or(50);
    let bench = Bench::new(launcher)?;
    for pause in [Duration::ZERO, Duration::from_millis(pause)] {
        bench.measure(rounds, pause)?;
    }
    println!("resident memory of a waiting monitor: {}", bench.monitor_memory()?);
    Ok(())
}

struct Bench {
    launcher: Launcher,
    directory: PathBuf,
    program: std::ffi::CString,
    spec: Spec,
    /// A control group of the benchmark's own; an ordinary user has none.
    cgroup_parent: Option<PathBuf>,
}

impl Bench {
    fn new(launcher: Launcher) -> Result<Bench> {
        let name = format!("airlock-bench-{}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        fs::create_dir_all(directory.join("bin"))?;
        let program = directory.join("bin/true");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/bench/true.c");
        let compiled = Command::new("cc")
            .args(["-O2", "-static", "-nostdlib", "-o"])
            .args([&program, &source])
            .status()
            .context("cc")?;
        ensure!(compiled.success(), "cc: {compiled}");
        let root = airlock_runtime::host::is_root();
        let lowered = if root { "" } else { "best_effort = [\"limits\", \"devices\"]\n" };
        let text = format!(
            "version = 1\nname = \"bench\"\nextends = \"base\"\n{lowered}[limits]\nmemory = \"1GiB\"\npids = 1024\n\
             cpus = 2\n[[mount]]\nsource = {:?}\ntarget = \"/bench\"\nexec = true\n",
            directory.join("bin"),
        );
        fs::write(directory.join("policy.toml"), text)?;
        let spec = spec(&directory.join("policy.toml"), &["/bench/true"])?;
        let cgroup_parent = root.then(|| Path::new("/").join(&name));
        // Made beforehand, as a supervisor's is: else each sandbox makes it and takes it away again.
        for tree in trees().filter(|_| root) {
            fs::create_dir(tree.join(&name)).with_context(|| tree.display().to_string())?;
        }
        let program = std::ffi::CString::new(program.into_os_string().into_encoded_bytes())?;
        Ok(Bench { launcher, directory, program, spec, cgroup_parent })
    }

    fn measure(&self, rounds: u64, pause: Duration) -> Result<()> {
        let (mut bare, mut launched) = (Vec::new(), Vec::new());
        let mut coins = File::open("/dev/urandom")?;
        for _ in 0..rounds {
            let mut coin = [0];
            coins.read_exact(&mut coin)?;
            for turn in 0..2 {
                std::thread::sleep(pause);
                if (coin[0] & 1) == turn {
                    bare.push(self.bare()?);
                } else {
                    launched.push(self.launched()?);
                }
            }
        }
        println!("{rounds} rounds, {} ms apart      p50 ms   p95 ms", pause.as_millis());
        let half = percentile(&mut bare, 50);
        for (name, times) in [("bare clone3 + exec", &mut bare), ("launcher", &mut launched)] {
            let (p50, p95) = (percentile(times, 50), percentile(times, 95));
            println!("  {name:22} {p50:14.2} {p95:8.2}   ratio {:.2}", p50 / half);
        }
        Ok(())
    }

    fn launched(&self) -> Result<Duration> {
        let started = Instant::now();
        let report = self.launcher.launch(&self.spec, self.request())?.wait()?;
        let time = started.elapsed();
        ensure!(report.exit_code == Some(0), "{report:#?}");
        Ok(time)
    }

    fn request(&self) -> Request {
        Request { cgroup_parent: self.cgroup_parent.clone(), ..Request::default() }
    }

    fn bare(&self) -> Result<Duration> {
        let mut args = [0_u64; 8];
        args[0] = u64::from(NAMESPACES.cast_unsigned());
        args[4] = u64::from(libc::SIGCHLD.cast_unsigned());
        let argv = [self.program.as_ptr(), std::ptr::null()];
        let started = Instant::now();
        // SAFETY: `args` is a clone_args of the first version; without CLONE_VM this is a fork of a process with one thread.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, args.as_mut_ptr(), size_of_val(&args)) };
        if pid == 0 {
            // SAFETY: the arguments end in a null pointer.
            unsafe { libc::execv(argv[0], argv.as_ptr()) };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(1) };
        }
        ensure!(pid > 0, "clone3: {}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: `status` is a live integer.
        unsafe { libc::waitpid(i32::try_from(pid)?, &raw mut status, 0) };
        let time = started.elapsed();
        ensure!(status == 0, "wait status {status}");
        Ok(time)
    }

    fn monitor_memory(&self) -> Result<String> {
        let spec = spec(&self.directory.join("policy.toml"), &["sleep", "100"])?;
        let running = self.launcher.launch(&spec, self.request())?;
        // It gives memory back when it has waited for a while.
        std::thread::sleep(Duration::from_millis(500));
        let of = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status"));
        let field = |status: &str, name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned()).context("a field of /proc/PID/status")
        };
        let monitor = field(&of(&running.pid().to_string())?, "PPid:")?;
        let status = of(&monitor)?;
        let resident = field(&status, "VmRSS:")?;
        let private = field(&status, "RssAnon:")?;
        running.kill()?;
        running.wait()?;
        Ok(format!("{resident}, of which {private} private"))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // What the benchmark made, as far as it is empty.
        let _ = fs::remove_dir_all(&self.directory);
        if let Some(parent) = &self.cgroup_parent {
            let name = parent.strip_prefix("/").unwrap_or(parent);
            for tree in trees() {
                let _ = fs::remove_dir(tree.join(name));
            }
        }
    }
}

/// Mount points of the control group trees.
fn trees() -> impl Iterator<Item = PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_tree = |line: &&str| line.contains(" - cgroup ") || line.contains(" - cgroup2 ");
    let lines: Vec<PathBuf> =
        mounts.lines().filter(is_tree).filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect();
    lines.into_iter()
}

fn spec(policy: &Path, command: &[&str]) -> Result<Spec> {
    let policy = Policy::load(&policy.to_string_lossy(), &Overrides::default(), Path::new("/"))?;
    let host = HostTree::read().with_sources(&policy);
    let args = command.iter().map(ToString::to_string).collect();
    Ok(resolve(&policy, &ResolveInput { args, host, ..ResolveInput::default() })?)
}

/// Milliseconds that so many percent do not exceed (nearest rank).
fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}
