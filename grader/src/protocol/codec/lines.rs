//! Splitting a byte stream into lines of bounded length.

use thiserror::Error;

/// A line that is longer than the cap, told before its end is seen.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a line is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// Collects chunks and hands out lines.
///
/// It holds at most one line and the chunk after it if [`Lines::next_line`] is asked until it has none
/// before the next [`Lines::push`].
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where the current line begins.
    start: usize,
    /// Up to where there is no newline in it.
    searched: usize,
    cap: usize,
}

impl Lines {
    /// Lines of at most `cap` bytes, their newline not counted.
    pub fn new(cap: usize) -> Lines {
        Lines { bytes: Vec::new(), start: 0, searched: 0, cap }
    }

    /// Appends what was read.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(chunk);
    }

    /// The next whole line without its newline.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let end = end.map(|offset| self.searched + offset);
        if end.unwrap_or(self.bytes.len()) - self.start > self.cap {
            return Err(TooLong(self.cap));
        }
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let line = self.start..end;
        self.start = end + 1;
        self.searched = self.start;
        Ok(Some(&self.bytes[line]))
    }

    /// Whether a line has begun whose end is not there yet.
    pub fn is_within_line(&self) -> bool {
        self.start < self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let text = b"one\n\ntwo\r\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::new(5);
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                lines.push(chunk);
                while let Some(line) = lines.next_line().unwrap() {
                    seen.push(line.to_vec());
                }
            }
            assert_eq!(seen, [&b"one"[..], b"", b"two\r"], "chunks of {size}");
            assert!(lines.is_within_line());
            lines.push(b"\n");
            assert_eq!(lines.next_line(), Ok(Some(&b"three"[..])));
            assert!(!lines.is_within_line());
        }
    }

    #[test]
    fn the_cap_is_met_exactly_and_before_the_newline() {
        let mut lines = Lines::new(4);
        lines.push(b"1234\n12345");
        assert_eq!(lines.next_line(), Ok(Some(&b"1234"[..])));
        assert_eq!(lines.next_line(), Err(TooLong(4)));
        let mut lines = Lines::new(4);
        lines.push(b"12345\n");
        assert_eq!(lines.next_line(), Err(TooLong(4)));
    }
}
