//! Reads of files that a user names.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Far above any policy or seccomp profile.
const MOST_BYTES: u64 = 1 << 20;

/// The text of a regular file of at most 1 MiB.
pub fn read(path: &Path) -> Result<String> {
    // Without O_NONBLOCK, to open a FIFO waits for its writer (fifo(7)); a regular file takes no notice of it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Error::new(ErrorKind::FileTooLarge, "more than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// `airlock plan FIFO` waited for a writer for ever.
    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&fifo, directory.path(), Path::new("/dev/zero")] {
            assert_eq!(read(path).unwrap_err().to_string(), "is not a regular file", "{}", path.display());
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(&file).unwrap(), "text");
    }
}
