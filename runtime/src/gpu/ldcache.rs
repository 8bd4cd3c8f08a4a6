//! The dynamic loader's cache (`/etc/ld.so.cache`): read on the host, and written for a sandbox without running
//! anything.
//!
//! The format is glibc's `glibc-ld.so.cache1.1` (sysdeps/generic/dl-cache.h), alone or behind a cache of libc 5's
//! format as ldconfig wrote it until glibc 2.32.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Magic and version of the format.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic of the older format.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
/// Length of the header: magic, number of entries, length of the strings, flags, and what is not used here.
const HEADER: usize = 48;
/// Length of an entry: flags, offset of the soname, offset of the path, an old version number, hwcap.
const ENTRY: usize = 24;
/// `cache_file_new_flags_endian_little`; 0 says nothing about it.
const LITTLE_ENDIAN: u8 = 2;
/// Far more libraries than any host has.
const MOST_ENTRIES: usize = 65_536;
/// Most bytes of all sonames and paths; entries may share them, so that a small file can name many.
const MOST_BYTES: usize = 16 << 20;
/// Longest soname or path.
const LONGEST: usize = 4096;

/// Flags of an entry for libraries of this machine's own kind: ELF of libc 6, and the ABI.
#[cfg(target_arch = "x86_64")]
pub const NATIVE: u32 = 0x0303;
/// Flags of an entry for libraries of this machine's own kind: ELF of libc 6, and the ABI.
#[cfg(target_arch = "aarch64")]
pub const NATIVE: u32 = 0x0a03;

/// A library that the loader finds by its soname.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// Its soname, such as `libcuda.so.1`.
    pub soname: String,
    /// Where it is.
    pub path: String,
    /// Kind and ABI, as ldconfig wrote them; see [`NATIVE`].
    pub flags: u32,
    /// Needed processor features; a library in a `glibc-hwcaps` directory has some.
    pub hwcap: u64,
}

/// Bytes that are no cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// Another format, or none.
    #[error("is not a loader cache of the format glibc-ld.so.cache1.1")]
    Format,
    /// It is made for the other byte order.
    #[error("is a loader cache of another byte order")]
    ByteOrder,
    /// It ends before what it announces, or an offset leads out of it.
    #[error("is a loader cache that is cut off or damaged")]
    Damaged,
    /// More than any host has.
    #[error("is a loader cache of more than {MOST_ENTRIES} entries, or {MOST_BYTES} bytes of names")]
    TooMany,
}

/// Reads a cache. Entries whose names are not UTF-8 are left out.
///
/// # Errors
/// The bytes are no cache; nothing is read beyond them, whatever they say.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, CacheError> {
    let bytes = behind_old_format(bytes)?;
    if !bytes.starts_with(MAGIC) {
        return Err(CacheError::Format);
    }
    if !matches!(bytes.get(MAGIC.len() + 8), Some(0 | &LITTLE_ENDIAN)) {
        return Err(CacheError::ByteOrder);
    }
    let count = number(bytes, MAGIC.len())?;
    if count > MOST_ENTRIES {
        return Err(CacheError::TooMany);
    }
    let mut entries = Vec::with_capacity(count);
    let mut names = 0;
    for index in 0..count {
        let at = HEADER + index * ENTRY;
        let low = word(bytes, at + 16)?;
        let high = word(bytes, at + 20)?;
        let (soname, path) = (text(bytes, number(bytes, at + 4)?)?, text(bytes, number(bytes, at + 8)?)?);
        if let (Some(soname), Some(path)) = (soname, path) {
            names += soname.len() + path.len();
            if names > MOST_BYTES {
                return Err(CacheError::TooMany);
            }
            let hwcap = u64::from(low) | u64::from(high) << 32;
            entries.push(Entry { soname: soname.into(), path: path.into(), flags: word(bytes, at)?, hwcap });
        }
    }
    Ok(entries)
}

/// Writes a cache in which the loader finds these. Of two for the same soname, kind and features the first counts.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let mut seen = BTreeSet::new();
    let mut sorted: Vec<&Entry> =
        entries.iter().filter(|entry| seen.insert((&entry.soname, entry.flags, entry.hwcap))).collect();
    // The loader searches by bisection in descending order.
    sorted.sort_by(|a, b| {
        compare(&b.soname, &a.soname).then(b.flags.cmp(&a.flags)).then(b.hwcap.cmp(&a.hwcap))
    });
    let mut table = Vec::with_capacity(sorted.len() * ENTRY);
    let mut strings = Vec::new();
    let first = HEADER + sorted.len() * ENTRY;
    let mut string = |text: &str| {
        let at = low_word(first + strings.len());
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    for entry in &sorted {
        table.extend_from_slice(&entry.flags.to_le_bytes());
        table.extend_from_slice(&string(&entry.soname).to_le_bytes());
        table.extend_from_slice(&string(&entry.path).to_le_bytes());
        table.extend_from_slice(&[0; 4]);
        table.extend_from_slice(&entry.hwcap.to_le_bytes());
    }
    let mut cache = MAGIC.to_vec();
    cache.extend_from_slice(&low_word(sorted.len()).to_le_bytes());
    cache.extend_from_slice(&low_word(strings.len()).to_le_bytes());
    cache.push(LITTLE_ENDIAN);
    cache.resize(HEADER, 0);
    cache.extend_from_slice(&table);
    cache.extend_from_slice(&strings);
    cache
}

/// The cache that follows an older one in the same file, at the next multiple of eight.
fn behind_old_format(bytes: &[u8]) -> Result<&[u8], CacheError> {
    if !bytes.starts_with(OLD_MAGIC) {
        return Ok(bytes);
    }
    let count = number(bytes, OLD_MAGIC.len())?;
    if count > MOST_ENTRIES {
        return Err(CacheError::TooMany);
    }
    let end = OLD_MAGIC.len() + 4 + count * 12;
    bytes.get(end.next_multiple_of(8)..).ok_or(CacheError::Damaged)
}

/// `_dl_cache_libcmp` of glibc: numbers count as numbers.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (left, right) = (leading_number(&mut a), leading_number(&mut b));
                if left != right {
                    return left.cmp(&right);
                }
            }
            (Some(x), Some(y)) if x == y => {
                a = &a[1..];
                b = &b[1..];
            }
            // A number comes after everything else.
            (Some(x), _) if x.is_ascii_digit() => return Ordering::Greater,
            (_, Some(y)) if y.is_ascii_digit() => return Ordering::Less,
            (x, y) => return x.cmp(&y),
        }
    }
}

fn leading_number(text: &mut &[u8]) -> u64 {
    let mut number = 0_u64;
    while let Some((digit, rest)) = text.split_first().filter(|(digit, _)| digit.is_ascii_digit()) {
        number = number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        *text = rest;
    }
    number
}

fn word(bytes: &[u8], at: usize) -> Result<u32, CacheError> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_le_bytes).ok_or(CacheError::Damaged)
}

fn number(bytes: &[u8], at: usize) -> Result<usize, CacheError> {
    usize::try_from(word(bytes, at)?).map_err(|_| CacheError::Damaged)
}

fn text(bytes: &[u8], at: usize) -> Result<Option<&str>, CacheError> {
    let rest = bytes.get(at..).ok_or(CacheError::Damaged)?;
    let window = &rest[..rest.len().min(LONGEST)];
    let end = window.iter().position(|byte| *byte == 0).ok_or(CacheError::Damaged)?;
    Ok(std::str::from_utf8(&window[..end]).ok())
}

/// Offsets and counts have 32 bits; what is written here is far below.
fn low_word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(soname: &str, path: &str) -> Entry {
        Entry { soname: soname.into(), path: path.into(), flags: NATIVE, hwcap: 0 }
    }

    /// ldconfig reads what is written here, and the order in which it prints is that of the file.
    #[test]
    fn ldconfig_reads_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cache");
        let entries = [
            entry("libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"),
            entry("libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"),
            entry("libz.so.10", "/z10"),
            entry("libz.so.9", "/z9"),
            entry("libcuda.so.1", "/second"),
        ];
        std::fs::write(&file, write(&entries)).unwrap();
        let Ok(ran) = std::process::Command::new("/sbin/ldconfig").arg("-p").arg("-C").arg(&file).output()
        else {
            return;
        };
        let printed = String::from_utf8(ran.stdout).unwrap();
        let lines: Vec<_> = printed.lines().skip(1).filter(|line| line.contains("=>")).collect();
        let sonames: Vec<_> = lines.iter().map(|line| line.trim().split(' ').next().unwrap()).collect();
        assert_eq!(sonames, ["libz.so.10", "libz.so.9", "libnvidia-ml.so.1", "libcuda.so.1"], "{printed}");
        assert!(lines[3].ends_with("libc6,x86-64) => /usr/local/nvidia/lib64/libcuda.so.1"), "{printed}");
    }

    #[test]
    fn the_hosts_own_cache_is_read_and_written_back_as_it_is() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else { return };
        let entries = parse(&bytes).unwrap();
        assert!(entries.iter().any(|entry| entry.soname == "libc.so.6" && entry.flags == NATIVE));
        assert_eq!(parse(&write(&entries)).unwrap(), entries);
    }

    #[test]
    fn a_cache_behind_one_of_the_older_format_is_found() {
        let mut bytes = OLD_MAGIC.to_vec();
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.resize(32, 0);
        let entries = [entry("libcuda.so.1", "/lib/libcuda.so.1")];
        bytes.extend_from_slice(&write(&entries));
        assert_eq!(parse(&bytes).unwrap(), entries);
    }

    #[test]
    fn what_is_no_cache_is_named() {
        let whole = write(&[entry("liba.so", "/liba.so")]);
        assert_eq!(parse(b"ELF"), Err(CacheError::Format));
        assert_eq!(parse(&whole[..whole.len() - 3]), Err(CacheError::Damaged));
        let mut big_endian = whole.clone();
        big_endian[MAGIC.len() + 8] = 3;
        assert_eq!(parse(&big_endian), Err(CacheError::ByteOrder));
        let mut endless = whole;
        endless[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&endless), Err(CacheError::TooMany));
    }

    /// A cache in an image: every entry names one long string, each time anew for whoever reads it.
    #[test]
    fn names_that_entries_share_count_each_time() {
        let long = "a".repeat(LONGEST - 1);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&low_word(MOST_ENTRIES).to_le_bytes());
        bytes.resize(HEADER, 0);
        let at = low_word(HEADER + MOST_ENTRIES * ENTRY).to_le_bytes();
        for _ in 0..MOST_ENTRIES {
            bytes.extend_from_slice(&[&NATIVE.to_le_bytes()[..], &at, &at, &[0; 12]].concat());
        }
        bytes.extend_from_slice(long.as_bytes());
        bytes.push(0);
        assert_eq!(parse(&bytes), Err(CacheError::TooMany));
    }

    proptest! {
        /// A cache in a root that somebody else unpacked is read too: whatever it holds, reading it ends.
        #[test]
        fn any_bytes_are_read_or_refused(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..300) {
            let mut bytes = write(&[entry("libcuda.so.1", "/a"), entry("libb.so", "/b")]);
            for (at, byte) in tail.iter().enumerate() {
                if let Some(place) = bytes.get_mut(MAGIC.len() + at) {
                    *place = *byte;
                }
            }
            bytes.truncate(cut);
            let _ = parse(&bytes);
            let _ = parse(&tail);
        }

        #[test]
        fn what_is_written_is_read(names in proptest::collection::btree_set("[a-z0-9.]{1,12}", 0..40)) {
            let entries: Vec<_> = names.iter().map(|name| entry(name, "/x")).collect();
            let mut read = parse(&write(&entries)).unwrap();
            read.sort();
            prop_assert_eq!(read, entries);
        }
    }
}
