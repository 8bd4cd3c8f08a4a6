//! System calls and connections.

use std::net::SocketAddr;
use std::path::Path;

use airlock_runtime::seccomp::{FilterTable, NESTING, SeccompData, Verdict, refusal, run, syscall_number};
use airlock_runtime::spec::Network;

use super::question::Act;
use super::{Answer, Explained, Refusal};

impl Explained<'_> {
    pub(super) fn syscall(&self, name: &str) -> Answer {
        let clause = self.filter_clause(name);
        let document = self.spec.oci.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        let table = document.and_then(|document| FilterTable::of(document).ok());
        let Some(table) = table else {
            return self.yes("seccomp.profile", "no system call is filtered");
        };
        let answer = table.calls().find(|(call, ..)| *call == name).map(|(_, _, answer)| answer);
        let Some(answer) = answer else {
            return self.no("seccomp.profile", format!("{name} is no call of this architecture"));
        };
        match (answer.may_run(), answer.always_runs()) {
            (_, true) => self.yes(clause, "with any arguments"),
            (true, false) => self.yes(clause, format!("under a condition: {answer}")),
            (false, _) => match refusal(name) {
                Some(why) => self.no(clause, format!("{answer}: {why}")),
                None => self.no(clause, answer.to_string()),
            },
        }
    }

    pub(super) fn connect(&self, address: SocketAddr) -> Answer {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let family = u64::from(family.unsigned_abs());
        for (call, args) in [("socket", &[family, 1, 0][..]), ("connect", &[])] {
            if let Some(refused) = self.refused(call, args) {
                return self.refusal(refused);
            }
        }
        match self.spec.airlock.network {
            Network::Loopback if address.ip().is_loopback() => {
                self.yes("network.mode", "the sandbox has a loopback of its own; only it is on it")
            }
            Network::Loopback => self.no("network.mode", "a loopback is all that there is: ENETUNREACH"),
            Network::None => self.no("network.mode", "no interface is up: ENETUNREACH"),
        }
    }

    pub(super) fn connect_unix(&self, path: &Path) -> Answer {
        for (call, args) in [("socket", &[1, 1, 0][..]), ("connect", &[])] {
            if let Some(refused) = self.refused(call, args) {
                return self.refusal(refused);
            }
        }
        // To connect is to write to the socket; what is not there cannot be made by that.
        let seen = self.file(Act::See, path);
        if seen.yes { self.file(Act::Write, path) } else { seen }
    }

    /// The refusal of a call with these arguments, if the filter refuses it.
    pub(super) fn refused(&self, call: &str, args: &[u64]) -> Option<Refusal> {
        let program = self.program()?;
        let mut all = [0; 6];
        all.iter_mut().zip(args).for_each(|(slot, arg)| *slot = *arg);
        let data = SeccompData::native(syscall_number(call)?, all).ok()?;
        let verdict = run(program, &data).unwrap_or(Verdict::KillProcess);
        let clause = self.filter_clause(call);
        (!verdict.lets_through()).then(|| Refusal::new(clause, format!("{call} gets `{verdict}`")))
    }

    /// The clause that says what becomes of a call.
    fn filter_clause(&self, call: &str) -> &'static str {
        let named = |list: &[String]| list.iter().any(|name| name == call);
        let seccomp = &self.policy.seccomp;
        match () {
            () if named(&seccomp.deny) => "seccomp.deny",
            () if named(&seccomp.allow) => "seccomp.allow",
            () if named(&seccomp.log) => "seccomp.log",
            () if self.policy.nesting && NESTING.contains(&call) => "nesting",
            () => "seccomp.profile",
        }
    }
}
