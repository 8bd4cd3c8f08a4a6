//! System calls by name, and through the two other entry tables.

use std::ffi::CString;

use airlock_runtime::probe::Outcome;
use airlock_runtime::seccomp::X32_BIT;
use nix::errno::Errno;

use crate::{Attempt, Verb, Words, call, done, parse, word};

pub(crate) const VERBS: &[Verb] = &[("call", by_name), ("x32", x32), ("int80", int80), ("clone", clone)];

/// An address where nothing is.
const NOWHERE: u64 = 8;
const PAGE: usize = 4096;

/// `call NAME ARGUMENT...`: a number, `nowhere`, `page:HEX` (a page that starts with these bytes), or `=TEXT`.
fn by_name(words: Words<'_>) -> Attempt {
    let mut pages: Vec<Vec<u8>> = Vec::new();
    let mut texts: Vec<CString> = Vec::new();
    let mut args = [0_u64; 6];
    for (arg, text) in args.iter_mut().zip(words.iter().skip(1)) {
        *arg = if *text == "nowhere" {
            NOWHERE
        } else if let Some(hex) = text.strip_prefix("page:") {
            let mut page = bytes(hex).ok_or(Errno::EBADMSG)?;
            page.resize(PAGE, 0);
            pages.push(page);
            pages.last_mut().map_or(0, |page| call::address(page.as_mut_ptr()))
        } else if let Some(text) = text.strip_prefix('=') {
            texts.push(CString::new(text).map_err(|_| Errno::EBADMSG)?);
            texts.last().map_or(0, |text| call::address(text.as_ptr()))
        } else {
            parse(text).ok_or(Errno::EBADMSG)?.cast_unsigned()
        };
    }
    call::named(word(words, 0)?, args)?;
    done()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

/// getpid by its number in the x32 table.
fn x32(_: Words<'_>) -> Attempt {
    call::call(i64::from(X32_BIT) | libc::SYS_getpid, [0; 6])?;
    done()
}

fn int80(_: Words<'_>) -> Attempt {
    Ok(Outcome::Done(call::by_int80().to_string()))
}

/// A child in new namespaces by clone(2), which the flags' mask of a filter must see.
fn clone(words: Words<'_>) -> Attempt {
    let flags = parse(word(words, 0)?).ok_or(Errno::EBADMSG)? | i64::from(libc::SIGCHLD);
    if call::named("clone", [flags.cast_unsigned(), 0, 0, 0, 0, 0])? == 0 {
        crate::child::exit(0);
    }
    done()
}
