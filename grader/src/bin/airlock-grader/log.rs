//! The log: lines on stderr, of which there is an end.

use std::io::{self, Write};
use std::sync::Mutex;

/// Most bytes of a log. Each connection is a line, and a peer can make hundreds in a second for hours.
const CAP: usize = 16 * 1024 * 1024;

pub(crate) fn start() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_target(false)
        .with_writer(Mutex::new(Capped { to: io::stderr(), left: Some(CAP) }))
        .init();
}

/// Passes on whole lines while there is room, and a last word when there is none. Nothing is said to a reader that is gone:
/// an error would make the subscriber complain on stderr, which would be a panic.
struct Capped<W> {
    to: W,
    /// Bytes; none once the last word is said.
    left: Option<usize>,
}

impl<W: Write> Write for Capped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.left {
            self.left = left.checked_sub(line.len());
            let line = if self.left.is_some() { line } else { b"the log is full and ends here\n" };
            if self.to.write_all(line).is_err() {
                self.left = None;
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_a_word_when_it_is_full() {
        for room in 10..15 {
            let mut log = Capped { to: Vec::new(), left: Some(room) };
            for _ in 0..100 {
                log.write_all(b"line\n").unwrap();
            }
            assert_eq!(log.to, b"line\nline\nthe log is full and ends here\n");
        }
    }
}
