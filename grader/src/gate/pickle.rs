//! What a pickle would import, found without running it.
//!
//! A pickle is a program for a small stack machine (CPython's `Lib/pickletools.py` describes it). It can call only what
//! it imports, so the list of its imports tells what it may do. The scan fails closed: an import whose name is not
//! spelt out right before it counts as unknown. Names are collected as they come, so a stream that breaks off, whose
//! loader would have run everything before, is still known up to there.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, Read};
use std::rc::Rc;

/// Longest name that is kept; longer strings are no names.
const LONGEST_NAME: u64 = 512;

/// Most entries of the memo that are followed.
const LARGEST_MEMO: usize = 4 << 20;

/// Most bytes of the strings in it.
const LARGEST_STRINGS: usize = 256 << 20;

/// Most imports that are told by name; there are far fewer in any that a gate lets through.
const MOST_IMPORTS: usize = 10_000;

/// Pickles at the start of a file of `torch.save`'s first format, before the raw data.
const MOST_PICKLES: usize = 5;

/// Most opcodes that are followed to find out whether bytes are a pickle; who needs more has something to hide.
const MOST_OPCODES: usize = 1 << 24;

/// What pickles import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PickleFacts {
    /// The names, `module.name`.
    pub imports: BTreeSet<String>,
    /// Whether something is imported whose name could not be told.
    pub unknown: bool,
    /// How many pickles were read to their end.
    pub pickles: usize,
}

/// Why a stream is no pickle.
#[derive(Debug, thiserror::Error)]
pub enum PickleError {
    /// The stream could not be read, or breaks off.
    #[error("reading the pickle")]
    Read(#[from] io::Error),
    /// A byte that is no opcode.
    #[error("the byte {0:#04x} is no opcode")]
    Opcode(u8),
    /// An argument that does not fit its opcode.
    #[error("an argument of the opcode {0:#04x}")]
    Argument(u8),
    /// More memo entries than are followed.
    #[error("more than {LARGEST_MEMO} memo entries, or {LARGEST_STRINGS} bytes of strings in them")]
    Memo,
}

/// Scans the pickles at the start of a stream: the first, and up to four more that follow it. What comes after may be
/// anything.
pub fn scan_pickles(mut stream: impl BufRead) -> Result<PickleFacts, PickleError> {
    let mut facts = PickleFacts::default();
    for index in 0..MOST_PICKLES {
        if index > 0 && stream.fill_buf()?.is_empty() {
            break;
        }
        let mut scan = Scan::new(&mut facts);
        match scan.pickle(&mut stream) {
            Ok(()) => facts.pickles += 1,
            Err(PickleError::Memo) => return Err(PickleError::Memo),
            Err(error) if index == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(facts)
}

/// Whether bytes are a pickle by what they hold, whatever they are called.
///
/// Those of protocol 2 and later begin with a mark. Raw data may do so too, so that an import or an end must follow. Those
/// of protocol 0 and 1 have no mark, and are told by an import, under a name that can be one, that is called.
pub fn is_pickle(mut stream: impl BufRead) -> bool {
    let marked = stream.fill_buf().is_ok_and(|start| matches!(start, [0x80, 2..=5, ..]));
    let mut facts = PickleFacts::default();
    let mut scan = Scan::new(&mut facts);
    // `pushed`: something else is on the stack above the import.
    let (mut imports, mut pushed, mut marks) = (false, false, 0_usize);
    for _ in 0..MOST_OPCODES {
        let Ok(opcode) = number(&mut stream, 1) else { return false };
        let opcode = opcode.to_le_bytes()[0];
        match opcode {
            b'.' => return marked,
            // Never fewer than there are: another loader may have what is doubled here be a mark.
            b'(' | b'2' => marks += 1,
            b'1' | b'd' | b'e' | b'i' | b'l' | b'o' | b't' | b'u' | 0x90 | 0x91 => match marks.checked_sub(1)
            {
                Some(left) => marks = left,
                // No loader goes on from here.
                None => return false,
            },
            _ => {}
        }
        let before = imports;
        let step = scan.step(opcode, &mut stream);
        // Each is looked at once: there may be one for every few bytes.
        let found = std::mem::take(&mut scan.facts.imports);
        imports |= scan.facts.unknown || found.iter().any(|name| can_be_imported(name));
        // What is added to an import is a call as well: of its `append`, `extend`, `add` or `__setitem__`.
        let adds = matches!(opcode, b'a' | b'e' | b's' | b'u' | 0x90) && before && pushed;
        let calls = matches!(opcode, b'R' | b'b' | b'i' | b'o' | 0x81 | 0x92);
        if imports && (marked || calls || adds) {
            return true;
        }
        pushed = before;
        match step {
            Ok(()) => {}
            Err(PickleError::Memo) => return true,
            Err(_) => return false,
        }
    }
    true
}

fn can_be_imported(name: &str) -> bool {
    let word = |word: &str| {
        word.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && word.chars().all(|next| next.is_alphanumeric() || next == '_')
    };
    name.split('.').all(word)
}

struct Scan<'a> {
    facts: &'a mut PickleFacts,
    /// What is remembered under each number, where that is a string.
    memo: HashMap<u64, Option<Rc<str>>>,
    /// Bytes of those strings.
    kept: usize,
    /// The two topmost values of the stack, where those are known to be strings; the last is the top.
    strings: [Option<Rc<str>>; 2],
}

impl Scan<'_> {
    fn new(facts: &mut PickleFacts) -> Scan<'_> {
        Scan { facts, memo: HashMap::new(), kept: 0, strings: [None, None] }
    }

    fn pickle(&mut self, stream: &mut impl BufRead) -> Result<(), PickleError> {
        loop {
            let opcode = number(stream, 1)?.to_le_bytes()[0];
            if opcode == b'.' {
                return Ok(());
            }
            self.step(opcode, stream)?;
        }
    }

    fn step(&mut self, opcode: u8, stream: &mut impl BufRead) -> Result<(), PickleError> {
        let argument = PickleError::Argument(opcode);
        match opcode {
            // Strings, by the size of their length.
            b'U' | 0x8c => self.string(stream, 1)?,
            b'T' | b'X' => self.string(stream, 4)?,
            0x8d => self.string(stream, 8)?,
            b'S' => self.push(quoted(&line(stream)?).map(Rc::from)),
            b'V' => self.push(Some(line(stream)?).filter(|text| !text.contains('\\')).map(Rc::from)),
            // The memo.
            0x94 => self.remember(self.memo.len() as u64)?,
            b'q' => self.remember(number(stream, 1)?)?,
            b'r' => self.remember(number(stream, 4)?)?,
            b'p' => self.remember(index(stream)?.ok_or(argument)?)?,
            b'h' => self.recall(number(stream, 1)?),
            b'j' => self.recall(number(stream, 4)?),
            b'g' => self.recall(index(stream)?.ok_or(argument)?),
            // Imports.
            b'c' | b'i' => {
                let (module, name) = (line(stream)?, line(stream)?);
                self.import(format!("{module}.{name}"));
            }
            0x93 => match &self.strings {
                [Some(module), Some(name)] => self.import(format!("{module}.{name}")),
                _ => {
                    self.facts.unknown = true;
                    self.strings = [None, None];
                }
            },
            // The extension registry: numbers that stand for imports.
            0x82..=0x84 => {
                skip(stream, 1 << (opcode - 0x82))?;
                self.facts.unknown = true;
                self.strings = [None, None];
            }
            // A frame says how long what follows is; the stack stays as it is.
            0x95 => skip(stream, 8)?,
            other => {
                other_argument(other, stream)?;
                self.strings = [None, None];
            }
        }
        Ok(())
    }

    fn string(&mut self, stream: &mut impl Read, width: usize) -> Result<(), PickleError> {
        let len = number(stream, width)?;
        if len > LONGEST_NAME {
            skip(stream, len)?;
            self.push(None);
            return Ok(());
        }
        let mut bytes = Vec::new();
        stream.take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.push(String::from_utf8(bytes).ok().map(Rc::from));
        Ok(())
    }

    fn import(&mut self, name: String) {
        match self.facts.imports.len() {
            ..MOST_IMPORTS => drop(self.facts.imports.insert(name)),
            _ => self.facts.unknown = true,
        }
        self.strings = [None, None];
    }

    fn push(&mut self, value: Option<Rc<str>>) {
        self.strings = [self.strings[1].take(), value];
    }

    fn remember(&mut self, number: u64) -> Result<(), PickleError> {
        let top = self.strings[1].clone();
        // One that is shared with an earlier entry counts as well.
        self.kept += top.as_ref().map_or(0, |string| string.len());
        if self.memo.len() >= LARGEST_MEMO || self.kept > LARGEST_STRINGS {
            return Err(PickleError::Memo);
        }
        self.memo.insert(number, top);
        Ok(())
    }

    fn recall(&mut self, number: u64) {
        let value = self.memo.get(&number).cloned().flatten();
        self.push(value);
    }
}

/// Reads past the argument of an opcode that pushes no string and imports nothing.
fn other_argument(opcode: u8, stream: &mut impl BufRead) -> Result<(), PickleError> {
    match opcode {
        b'('
        | b')'
        | b'0'
        | b'1'
        | b'2'
        | b'N'
        | b'R'
        | b'Q'
        | b'a'
        | b'b'
        | b'd'
        | b'e'
        | b'l'
        | b's'
        | b't'
        | b'u'
        | b'}'
        | b']'
        | b'o'
        | 0x81
        | 0x85..=0x89
        | 0x8f..=0x92
        | 0x97
        | 0x98 => Ok(()),
        b'K' | 0x80 => skip(stream, 1),
        b'M' => skip(stream, 2),
        b'J' => skip(stream, 4),
        b'G' => skip(stream, 8),
        b'I' | b'L' | b'F' | b'P' => line(stream).map(drop),
        b'C' | 0x8a => counted(stream, 1),
        b'B' | 0x8b => counted(stream, 4),
        0x8e | 0x96 => counted(stream, 8),
        _ => Err(PickleError::Opcode(opcode)),
    }
}

fn number(stream: &mut impl Read, width: usize) -> Result<u64, PickleError> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes[..width])?;
    Ok(u64::from_le_bytes(bytes))
}

fn counted(stream: &mut impl Read, width: usize) -> Result<(), PickleError> {
    let len = number(stream, width)?;
    skip(stream, len)
}

fn skip(stream: &mut impl Read, len: u64) -> Result<(), PickleError> {
    if io::copy(&mut stream.take(len), &mut io::sink())? == len {
        return Ok(());
    }
    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
}

/// A string between two quotes; none where a loader would take out more, as escapes or blanks behind it.
fn quoted(line: &str) -> Option<&str> {
    let within = |quote| line.strip_prefix(quote)?.strip_suffix(quote);
    within('\'').or_else(|| within('"')).filter(|text| !text.contains(['\'', '"', '\\']))
}

/// A line with a number, as CPython reads it (`PyLong_FromString`): up to a NUL, blanks around it, a sign, and
/// underscores between its digits.
fn index(stream: &mut impl BufRead) -> Result<Option<u64>, PickleError> {
    let line = line(stream)?;
    let blank = |letter: char| letter.is_ascii_whitespace() || letter == '\x0b';
    let part = |letter: char| blank(letter) || letter.is_ascii_digit() || matches!(letter, '+' | '_');
    if line.len() as u64 >= LONGEST_NAME && line.chars().all(part) {
        // Cut: what it says is not followed.
        return Err(PickleError::Memo);
    }
    let text = line.split('\0').next().unwrap_or_default().trim_matches(blank);
    let digits = text.strip_prefix('+').unwrap_or(text);
    let plain = digits.split('_').all(|group| !group.is_empty() && group.bytes().all(|d| d.is_ascii_digit()));
    Ok(digits.replace('_', "").parse().ok().filter(|_| plain))
}

/// A line, without its newline; one that is too long for a name is cut.
fn line(stream: &mut impl BufRead) -> Result<String, PickleError> {
    let mut bytes = Vec::new();
    stream.take(LONGEST_NAME).read_until(b'\n', &mut bytes)?;
    if bytes.pop_if(|byte| *byte == b'\n').is_none() {
        // A number may be longer than a name; its rest is read past.
        if stream.skip_until(b'\n')? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(pickle: &[u8]) -> (Vec<String>, bool) {
        let facts = scan_pickles(pickle).unwrap();
        (facts.imports.into_iter().collect(), facts.unknown)
    }

    /// vllm#12366 (GHSA-rh4j-5rhw-hr54), anemoi-core#1416, transformers#43140: loading a pickle runs what it names.
    #[test]
    fn names_what_a_pickle_imports() {
        for (pickle, expected) in [
            (&b"cos\nsystem\n(S'id'\ntR."[..], "os.system"),
            (b"(S'id'\nios\nsystem\n.", "os.system"),
            (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.", "os.system"),
            (b"\x80\x04\x95\x08\0\0\0\0\0\0\0\x8c\x02os\x94\x8c\x06system\x93.", "os.system"),
            // By the memo: the same strings, remembered and dropped before.
            (b"\x80\x04\x8c\x02os\x940\x8c\x06system\x940h\0h\x01\x93.", "os.system"),
            (b"\x80\x04X\x02\0\0\0osX\x06\0\0\0system\x93.", "os.system"),
            (b"\x80\x04\x8d\x02\0\0\0\0\0\0\0osU\x06system\x93.", "os.system"),
            (b"\x80\x04Vos\nq\x07S'system'\n\x93.", "os.system"),
        ] {
            assert_eq!(imports(pickle), (vec![expected.to_owned()], false), "{}", pickle.escape_ascii());
        }
        assert_eq!(imports(b"\x80\x02]q\0(K\x01M\x02\x03J\0\0\0\0G\0\0\0\0\0\0\0\0e."), (vec![], false));
    }

    #[test]
    fn a_pickle_is_known_by_its_bytes() {
        for pickle in [
            &b"cos\nsystem\n(S'id'\ntR."[..],
            // It runs before it breaks off.
            b"cos\nsystem\n(S'id'\ntR\xff",
            b"(S'id'\nios\nsystem\n.",
            b"(cos\nsystem\nS'id'\no.",
            b"\x80\x02cos\nsystem\n\xff",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93\xff",
            b"\x80\x02N.",
        ] {
            assert!(is_pickle(pickle), "{}", pickle.escape_ascii());
        }
        for data in [
            &b""[..],
            b"cat\ndog\nelephant\n",
            b"{\"c\": 1}",
            // Raw numbers that begin like a mark, or like an import.
            b"\x80\x02\x00\x3c\x80\x02\x00\x3c",
            b"c\x00\x3c\n\x80\x3c\nR\x00",
            b"N.",
        ] {
            assert!(!is_pickle(data), "{}", data.escape_ascii());
        }
    }

    /// `sys.path.append`, `os.environ[...] =`: no call is spelt out.
    #[test]
    fn what_is_added_to_an_import_is_a_call() {
        for pickle in [
            "csys\npath\nS'/tmp'\na.",
            "cos\nenviron\nS'A'\nS'B'\ns.",
            "csys\npath\n(S'/tmp'\ne.",
            "cos\nenviron\n(S'A'\nS'B'\nu.",
        ] {
            assert!(is_pickle(pickle.as_bytes()), "{pickle:?}");
        }
    }

    /// Lists of names begin like imports.
    #[test]
    fn words_are_no_pickle() {
        for words in [
            "cat\ndeer\ndog\nfrog\n",
            "car\ncat\nlamb\n",
            "cat\ndog\nox\n",
            "cat\ndog\nant\n",
            "cat\ndog\neel\n",
        ] {
            assert!(!is_pickle(words.as_bytes()), "{words:?}");
        }
    }

    /// CPython takes more for a number than its digits.
    #[test]
    fn a_number_that_only_its_loader_reads_hides_nothing() {
        let blanks = format!("{}0", " ".repeat(600));
        for number in ["0", " 0", "+0", "0\t\x0b", "0_0", "0\0x", blanks.as_str()] {
            for after in ["p", "p0\ng"] {
                let pickle = format!("cposix\nsystem\n{after}{number}\n(S'id'\ntR.");
                assert!(is_pickle(pickle.as_bytes()), "{pickle:?}");
            }
        }
        for word in ["ig", "_0", "0__0", "++0", "-1", ""] {
            assert!(!is_pickle(format!("cat\ndog\np{word}\n(S'id'\ntR.").as_bytes()), "{word:?}");
        }
        // What is remembered anew by such a number is not what it was.
        let hidden = b"Vtorch\np0\nVposix\np 0\n0g0\nVsystem\n\x93.";
        assert_eq!(imports(hidden), (vec!["posix.system".to_owned()], false));
    }

    #[test]
    fn a_name_that_only_its_loader_reads_is_unknown() {
        for [module, name] in [
            ["S'pos\\x69x'", "S'system'"],
            ["S'posix' ", "S'system'"],
            ["V\\u0070osix", "Vsystem"],
            ["Vposix", "Vsyste\\u006d"],
        ] {
            let pickle = format!("{module}\n{name}\n\u{93}(S'id'\ntR.");
            let pickle: Vec<u8> = pickle.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
            assert!(is_pickle(&pickle[..]), "{}", pickle.escape_ascii());
            assert_eq!(imports(&pickle), (vec![], true), "{}", pickle.escape_ascii());
        }
        assert_eq!(imports(b"S'posix'\nS\"system\"\n\x93."), (vec!["posix.system".to_owned()], false));
    }

    /// Without a cap, time grew with the square of what a candidate names, and memory with each time it is remembered.
    #[test]
    fn a_stream_of_names_is_looked_at_once() {
        let names: String = (0..60_000).map(|number| format!("c{number}\n{number}\n")).collect();
        let begun = std::time::Instant::now();
        assert!(!is_pickle(names.as_bytes()));
        let taken = begun.elapsed();
        assert!(taken.as_secs() < 5, "{taken:?}");
        let facts = scan_pickles(format!("{names}.").as_bytes()).unwrap();
        assert!(facts.unknown && facts.imports.len() == MOST_IMPORTS);
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let string = [&b"\x80\x04X\0\x02\0\0"[..], &[b'a'; 512]].concat();
        let pickle = |times| [&string[..], &vec![0x94; times], b"."].concat();
        assert!(scan_pickles(&pickle(LARGEST_STRINGS / 512)[..]).is_ok());
        let more = pickle(LARGEST_STRINGS / 512 + 1);
        assert!(matches!(scan_pickles(&more[..]), Err(PickleError::Memo)));
        assert!(is_pickle(&more[..]));
    }

    #[test]
    fn an_import_by_a_name_that_is_not_spelt_out_is_unknown() {
        for pickle in [
            // Swapped, popped or duplicated before use.
            &b"\x80\x04\x8c\x02os\x8c\x06systemN0\x93."[..],
            b"\x80\x04\x8c\x06system2\x93.",
            b"\x80\x04h\x05\x8c\x06system\x93.",
            b"\x80\x02\x82\x01.",
        ] {
            assert!(imports(pickle).1, "{}", pickle.escape_ascii());
        }
    }

    #[test]
    fn later_pickles_and_broken_ones_count() {
        let facts = scan_pickles(&b"N.N.cos\nsystem\n)R\xff"[..]).unwrap();
        assert_eq!((facts.pickles, facts.imports.len()), (2, 1));
        assert!(matches!(scan_pickles(&b"\xffPAYLOAD"[..]), Err(PickleError::Opcode(0xff))));
        assert!(matches!(scan_pickles(&b"\x80\x04\x8c\x09os"[..]), Err(PickleError::Read(_))));
        assert!(matches!(scan_pickles(&b""[..]), Err(PickleError::Read(_))));
        assert!(matches!(scan_pickles(&b"B\xff\xff\xff\xffx"[..]), Err(PickleError::Read(_))));
    }
}
