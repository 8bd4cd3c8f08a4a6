//! Runs a command under a built-in seccomp profile and nothing else:
//! `cargo run --example confine -- default python3 train.py`.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

use airlock_runtime::seccomp::{Flags, compile, install, profile};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(name), Some(command)) = (args.next(), args.next()) else {
        return Err("usage: confine PROFILE COMMAND [ARGUMENT...]".into());
    };
    let document = profile(&name.to_string_lossy()).ok_or("no such profile")?;
    let program = compile(&document)?;
    rustix::thread::set_no_new_privs(true)?;
    install(&program, Flags::of(&document))?;
    Err(Command::new(command).args(args).exec().into())
}
