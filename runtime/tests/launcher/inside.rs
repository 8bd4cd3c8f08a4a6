//! What this program does as the payload of a sandbox.

use std::io::{Read, Write};
use std::os::fd::FromRawFd;

pub(crate) fn main(words: &[&str]) {
    let number = |text: &&str| text.parse::<i32>().unwrap();
    match words {
        ["exit", code] => std::process::exit(number(code)),
        ["raise", signal] => {
            // SAFETY: raising a signal that ends this process.
            unsafe { libc::raise(number(signal)) };
        }
        ["sleep", seconds] => sleep(number(seconds)),
        ["ignore-term", seconds] => {
            // SAFETY: ignoring a signal runs no code.
            unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
            sleep(number(seconds));
        }
        ["tick"] => loop {
            print!(".");
            // Nobody listens any more.
            if std::io::stdout().flush().is_err() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        },
        ["exit-on-usr1", code] => {
            let usr1 = nix::sys::signal::SigSet::from(nix::sys::signal::Signal::SIGUSR1);
            usr1.thread_block().unwrap();
            print!(".");
            std::io::stdout().flush().unwrap();
            usr1.wait().unwrap();
            std::process::exit(number(code));
        }
        ["copy", descriptor] => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).unwrap();
            print!("{text}");
            // SAFETY: the supervisor passed this descriptor for this use.
            let mut verdict = unsafe { std::fs::File::from_raw_fd(number(descriptor)) };
            verdict.write_all(b"verdict").unwrap();
        }
        ["count-env"] => std::process::exit(i32::try_from(std::env::vars().count()).unwrap()),
        other => panic!("{other:?}"),
    }
}

fn sleep(seconds: i32) {
    std::thread::sleep(std::time::Duration::from_secs(seconds.unsigned_abs().into()));
}
