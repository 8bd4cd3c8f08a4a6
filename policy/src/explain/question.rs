//! Questions, as people write them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use airlock_runtime::seccomp;

use crate::checks;
use crate::diagnostic::did_you_mean;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// `open PATH`, `read PATH`, `write PATH`, `exec PATH`, `see PATH`.
    File {
        /// What is done with it.
        act: Act,
        /// Absolute path inside.
        path: PathBuf,
    },
    /// `connect ADDRESS:PORT`.
    Connect(SocketAddr),
    /// `connect PATH`, a Unix socket.
    ConnectUnix(PathBuf),
    /// `syscall NAME`.
    Syscall {
        /// Its name.
        name: String,
        /// Its number on this machine.
        number: u32,
    },
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Its contents are read.
    Read,
    /// It is opened for writing, and made where it is not there.
    Write,
    /// It is run; where it is not there, what the code inside puts there.
    Exec,
    /// Its name is found (stat(2)).
    See,
}

/// A question that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{question}`: {why}")]
pub struct QuestionError {
    /// The question.
    question: String,
    /// What is wrong with it.
    why: String,
}

/// What is worth asking of every policy.
pub const USUAL: [&str; 30] = [
    "read /etc/passwd",
    "open /etc/shadow",
    "write /etc/passwd",
    "see /root",
    "see /home",
    "see /sys",
    "see /var/run/docker.sock",
    "exec /usr/bin/env",
    "write /usr/bin/env",
    "write /tmp/x",
    "exec /tmp/x",
    "write /dev/shm/x",
    "exec /dev/shm/x",
    "write /run/x",
    "write /workspace/x",
    "exec /workspace/x",
    "write /x",
    "see /dev/nvidia0",
    "write /dev/null",
    "see /dev/sda",
    "read /proc/kcore",
    "write /proc/sys/kernel/core_pattern",
    "connect 127.0.0.1:80",
    "connect 1.2.3.4:443",
    "connect /run/docker.sock",
    "syscall keyctl",
    "syscall unshare",
    "syscall io_uring_setup",
    "syscall ptrace",
    "syscall clone3",
];

impl FromStr for Question {
    type Err = QuestionError;

    fn from_str(text: &str) -> Result<Self, QuestionError> {
        let wrong = |why: String| QuestionError { question: text.to_owned(), why };
        let (verb, what) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let what = what.trim();
        let path = || checks::inside_path(what).map_err(|fault| wrong(fault.message));
        let act = match verb {
            "open" | "read" => Act::Read,
            "write" => Act::Write,
            "exec" => Act::Exec,
            "see" => Act::See,
            "connect" if what.starts_with('/') => return Ok(Question::ConnectUnix(path()?)),
            "connect" => {
                let address = what.parse();
                let example = "an address and a port (1.2.3.4:443, [::1]:80), or the path of a socket";
                return address.map(Question::Connect).map_err(|_| wrong(format!("connect wants {example}")));
            }
            "syscall" => {
                let name = what.to_owned();
                return match seccomp::syscall_number(what) {
                    Some(number) => Ok(Question::Syscall { name, number }),
                    None => {
                        let near = did_you_mean(what, seccomp::all().iter().map(|(known, _)| *known));
                        let near = near.unwrap_or_else(|| "syscalls(2) lists the names".into());
                        Err(wrong(format!("no system call has this name; {near}")))
                    }
                };
            }
            _ => return Err(wrong("begin with open, read, write, exec, see, connect or syscall".into())),
        };
        Ok(Question::File { act, path: path()? })
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::File { act, path } => {
                let verb = match act {
                    Act::Read => "read",
                    Act::Write => "write",
                    Act::Exec => "exec",
                    Act::See => "see",
                };
                write!(f, "{verb} {}", path.display())
            }
            Question::Connect(address) => write!(f, "connect {address}"),
            Question::ConnectUnix(path) => write!(f, "connect {}", path.display()),
            Question::Syscall { name, .. } => write!(f, "syscall {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_understood_or_named() {
        for question in USUAL {
            question.parse::<Question>().unwrap();
        }
        for (text, why) in [
            ("eat /x", "begin with"),
            ("open x", "not absolute"),
            ("read /a/../b", "`..`"),
            ("connect example.org:443", "an address and a port"),
            ("syscall keyctrl", "did you mean `keyctl`?"),
            ("", "begin with"),
        ] {
            let error = text.parse::<Question>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
