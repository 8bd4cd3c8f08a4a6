//! The launcher's own process: takes orders and forks a monitor for each.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::signal::{SigHandler, SigSet, Signal};

use super::line::{Line, Order, read_document};
use crate::cgroups::CgroupPath;
use crate::gpu::Grant;
use crate::launch::{Channel, LaunchError, LaunchOptions, Prepared, Stock};
use crate::plan::PlanError;
use crate::report::{EndReport, ReportPlace};
use crate::state::Sandboxes;
use crate::{monitor, signals, sys};

/// What an ordinary user's sandbox is found by, and the one variable of the caller's that is kept.
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Where newuidmap and newgidmap are looked for.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What a monitor has to do.
struct Job {
    order: Order<'static>,
    prepared: Prepared,
    stdio: Option<[OwnedFd; 3]>,
    gpu: Option<Grant>,
    pass: Vec<(OwnedFd, i32)>,
    report: Option<ReportPlace>,
    /// Closed by this process's end, after its last word.
    _hold: Option<OwnedFd>,
}

/// Serves until the supervisor closes its end. Never returns.
pub(super) fn serve(orders: Channel) -> ! {
    // A panic must not run the caller's code a second time.
    let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        settle(&orders)?;
        let job = take_orders(&orders)?;
        // Held by a monitor, it would hide the launcher's death from the supervisor.
        drop(orders);
        if let Some((job, line)) = job {
            job.perform(&line);
        }
        Ok::<(), io::Error>(())
    }));
    sys::exit_now(i32::from(!matches!(served, Ok(Ok(())))))
}

/// Leaves everything of the caller behind but its ids and its place in the control groups.
fn settle(orders: &Channel) -> io::Result<()> {
    // SAFETY: what owns the others is the caller's, whose code does not run in this process again.
    unsafe { sys::close_all_but(&[orders.fd().as_raw_fd()]) }?;
    let runtime_dir = std::env::var_os(RUNTIME_DIR);
    sys::forget_environment()?;
    if let Some(directory) = runtime_dir {
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(RUNTIME_DIR, directory) };
    }
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("PATH", PATH) };
    name(c"airlock-launch")?;
    // No terminal's signals, and no way to take it as a controlling one.
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    let null = null()?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        let default = match signal {
            // Monitors that end are reaped by the kernel; their lines say how they ended.
            Signal::SIGCHLD | Signal::SIGPIPE => SigHandler::SigIgn,
            _ => SigHandler::SigDfl,
        };
        signals::handle(signal, default)?;
    }
    Ok(SigSet::empty().thread_set_mask()?)
}

/// Returns a job in the fork that is to perform it, and nothing in the launcher when it is to end.
fn take_orders(orders: &Channel) -> io::Result<Option<(Job, Line)>> {
    let mut stock = None;
    loop {
        match orders.receive::<()>() {
            Ok(Some(((), fds))) => {
                if let Some(job) = take(fds, &mut stock) {
                    return Ok(Some(job));
                }
            }
            Ok(None) => return Ok(None),
            Err(error) if error.raw_os_error().is_some() => return Err(error),
            // A damaged order: its line is closed, which its supervisor sees.
            Err(_) => {}
        }
    }
}

/// Forks a monitor; returns its job in the fork alone.
fn take(fds: Vec<OwnedFd>, stock: &mut Option<Stock>) -> Option<(Job, Line)> {
    let mut fds = fds.into_iter();
    let line = Line(Channel::from(fds.next()?));
    match Job::new(fds, stock).and_then(|job| Ok((job, sys::fork()?))) {
        Ok((job, None)) => return Some((job, line)),
        Ok((_, Some(_))) => {}
        Err(error) => line.tell_failed(error.to_string(), 125),
    }
    None
}

fn prepare(stock: &mut Option<Stock>, order: &Order<'_>) -> Result<Prepared, LaunchError> {
    let stock = match stock {
        Some(stock) => stock,
        none => none.insert(Stock::new()?),
    };
    if order.cgroup_parent.is_none() {
        stock.settle()?;
    }
    Ok(stock.prepare(&order.spec))
}

impl Job {
    fn new(mut fds: impl Iterator<Item = OwnedFd>, stock: &mut Option<Stock>) -> io::Result<Job> {
        let document = fds.next().ok_or_else(|| io::Error::other("the order is missing"))?;
        let order: Order<'static> = read_document(document)?;
        let hold = if order.hold {
            Some(fds.next().ok_or_else(|| io::Error::other("the descriptor to hold is missing"))?)
        } else {
            None
        };
        let mut held = || fds.next().ok_or_else(|| io::Error::other("a lease or an alarm is missing"));
        let leases = (0..order.leases).map(|_| held()).collect::<io::Result<_>>()?;
        let alarm = order.alarm.then(held).transpose()?;
        let gpu = order.gpu.clone().map(|selection| Grant { selection, leases, alarm });
        let mut stream = || fds.next().ok_or_else(|| io::Error::other("a standard stream is missing"));
        let stdio = if order.stdio { Some([stream()?, stream()?, stream()?]) } else { None };
        let pass: Vec<(OwnedFd, i32)> = fds.zip(order.pass.iter().copied()).collect();
        if pass.len() != order.pass.len() {
            return Err(io::Error::other("a descriptor for the payload is missing"));
        }
        let prepared = prepare(stock, &order).map_err(io::Error::other)?;
        let report = order.report.as_deref().map(|path| {
            ReportPlace::open(path)
                .map_err(|error| io::Error::other(format!("report {}: {error}", path.display())))
        });
        Ok(Job { prepared, stdio, gpu, pass, report: report.transpose()?, order, _hold: hold })
    }

    /// Makes this process a monitor, from the sandbox's start to its end.
    fn perform(self, line: &Line) {
        let Order { spec, cgroup_parent, .. } = self.order;
        let record = self.report.as_ref().map(|place| place.record().clone());
        let mut named = String::new();
        let result = become_monitor(self.stdio)
            .map_err(|source| LaunchError::Call { what: "becoming a monitor", source })
            .and_then(|()| {
                named = Sandboxes::new_id()?;
                let cgroup_parent =
                    cgroup_parent.map(CgroupPath::new).transpose().map_err(PlanError::Cgroup)?;
                let options = LaunchOptions {
                    id: Some(named.clone()),
                    cgroup_parent,
                    pass: self.pass,
                    report: record,
                    gpu: self.gpu,
                    ..LaunchOptions::default()
                };
                monitor::run_on_line(&spec, options, self.prepared, line)
            });
        if let Some(place) = self.report {
            let written = match &result {
                Ok(end) => place.write(end),
                Err(error) => place.write(&EndReport::setup_failed(&named, &spec, &error.to_string())),
            };
            if let Err(error) = written {
                tracing::warn!("report {}: {error}", place.record().path.display());
            }
        }
        line.tell_end(&result);
    }
}

fn become_monitor(stdio: Option<[OwnedFd; 3]>) -> io::Result<()> {
    name(c"airlock-monitor")?;
    signals::settle()?;
    let [stdin, stdout, stderr] = match stdio {
        Some(stdio) => stdio,
        None => [null()?, null()?, null()?],
    };
    rustix::stdio::dup2_stdin(&stdin)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    Ok(rustix::stdio::dup2_stderr(&stderr)?)
}

fn name(name: &CStr) -> io::Result<()> {
    Ok(rustix::thread::set_name(name)?)
}

fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}
