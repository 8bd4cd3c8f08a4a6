//! Reads of files that a user names.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Far above any policy or seccomp profile.
const MOST_BYTES: u64 = 1 << 20;

/// The text of a file of at most 1 MiB.
pub fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, "more than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}
