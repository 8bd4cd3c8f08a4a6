//! Zip archives as PyTorch writes them (PKWARE APPNOTE 6.3.10), and no others.
//!
//! Readers of zip files disagree about archives with something before, after or between the entries, or with two
//! directories. Only archives that all readers see alike are accepted: the first entry at the first byte, no comment,
//! nothing compressed or encrypted, local headers that repeat what the directory says, no overlap.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Largest directory that is read, in bytes.
const LARGEST_DIRECTORY: u64 = 64 << 20;

/// One stored file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipEntry {
    /// Its name in the archive.
    pub name: String,
    /// Where its bytes start in the file.
    pub start: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    /// The file could not be read, or ends too early.
    #[error("reading the archive")]
    Read(#[from] io::Error),
    /// Something that the format does not allow, or that readers disagree about.
    #[error("the archive {0}")]
    Form(&'static str),
}

/// Little-endian numbers and bytes, one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], ZipError> {
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or(ZipError::Form("has a record that is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, len: usize) -> Result<u64, ZipError> {
        Ok(self.bytes(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// The entries of an archive, in the order of their bytes.
pub fn read_entries(file: &File) -> Result<Vec<ZipEntry>, ZipError> {
    let size = file.metadata()?.len();
    let (count, start, len) = directory(file, size)?;
    if len > LARGEST_DIRECTORY || start.checked_add(len).is_none_or(|end| end > size) {
        return Err(ZipError::Form("has a directory that does not fit"));
    }
    let records = read(file, start, len)?;
    let mut fields = Fields(&records);
    let (mut entries, mut names) = (Vec::new(), BTreeSet::new());
    while !fields.0.is_empty() {
        let (header, entry) = record(&mut fields)?;
        if !names.insert(entry.name.clone()) {
            return Err(ZipError::Form("has a name twice"));
        }
        entries.push((header, entry));
    }
    if entries.len() as u64 != count {
        return Err(ZipError::Form("has another number of entries than it says"));
    }
    entries.sort_by_key(|(header, _)| *header);
    let mut free = 0;
    for (index, (header, entry)) in entries.iter_mut().enumerate() {
        if *header < free || (index == 0 && *header != 0) {
            return Err(ZipError::Form("has entries that overlap, or something before the first"));
        }
        entry.start = local(file, *header, &entry.name)?;
        let end = entry.start.checked_add(entry.len).filter(|end| *end <= start);
        free = end.ok_or(ZipError::Form("has an entry that ends after the entries"))?;
    }
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Number of entries, start and length of the central directory, from the records at the end of the file.
fn directory(file: &File, size: u64) -> Result<(u64, u64, u64), ZipError> {
    const END: u64 = 22;
    const LOCATOR: u64 = 20;
    const END_64: u64 = 56;
    let wrong = ZipError::Form("does not end with an end record without comment");
    let at = size.checked_sub(END).ok_or(wrong)?;
    let record = read(file, at, END)?;
    let mut fields = Fields(&record);
    let wrong = || ZipError::Form("does not end with an end record without comment");
    if fields.bytes(4)? != b"PK\x05\x06" || fields.number(4)? != 0 {
        return Err(wrong());
    }
    let (here, count, len, start) =
        (fields.number(2)?, fields.number(2)?, fields.number(4)?, fields.number(4)?);
    if here != count || fields.number(2)? != 0 {
        return Err(wrong());
    }
    let locator = match at.checked_sub(LOCATOR) {
        Some(locator) => read(file, locator, LOCATOR)?,
        None => Vec::new(),
    };
    if !locator.starts_with(b"PK\x06\x07") {
        return exact(at, count, start, len);
    }
    let mut fields = Fields(&locator[8..]);
    let place = fields.number(8)?;
    if place.checked_add(END_64 + LOCATOR) != Some(at) {
        return Err(ZipError::Form("has a 64-bit end record at another place than its end"));
    }
    let record = read(file, place, END_64)?;
    let mut fields = Fields(&record);
    let head = (fields.bytes(4)? == b"PK\x06\x06", fields.number(8)?, fields.number(4)?, fields.number(8)?);
    let (here, wide) = (fields.number(8)?, (fields.number(8)?, fields.number(8)?, fields.number(8)?));
    let (count_64, len_64, start_64) = wide;
    let agrees = |narrow: u64, wide: u64, escape: u64| narrow == wide || narrow == escape;
    let same = agrees(count, count_64, 0xffff)
        && agrees(len, len_64, 0xffff_ffff)
        && agrees(start, start_64, 0xffff_ffff);
    if !matches!(head, (true, 44, _, 0)) || here != count_64 || !same {
        return Err(ZipError::Form("has two end records that disagree"));
    }
    exact(place, count_64, start_64, len_64)
}

/// The directory, if it ends where the end records start.
fn exact(end: u64, count: u64, start: u64, len: u64) -> Result<(u64, u64, u64), ZipError> {
    if start.checked_add(len) != Some(end) {
        return Err(ZipError::Form("has something between its directory and its end"));
    }
    Ok((count, start, len))
}

/// One record of the central directory: where the local header is, and the entry without its start.
fn record(fields: &mut Fields<'_>) -> Result<(u64, ZipEntry), ZipError> {
    if fields.bytes(4)? != b"PK\x01\x02" {
        return Err(ZipError::Form("has a directory record without its mark"));
    }
    fields.bytes(4)?;
    let (flags, method) = (fields.number(2)?, fields.number(2)?);
    if flags & 1 != 0 || method != 0 {
        return Err(ZipError::Form("has an entry that is compressed or encrypted"));
    }
    fields.bytes(8)?;
    let (mut packed, mut len) = (fields.number(4)?, fields.number(4)?);
    let (name, extra, comment) = (fields.number(2)?, fields.number(2)?, fields.number(2)?);
    fields.bytes(8)?;
    let mut header = fields.number(4)?;
    let short = |len: u64| usize::try_from(len).map_err(|_| ZipError::Form("has a record that is cut off"));
    let name = str::from_utf8(fields.bytes(short(name)?)?)
        .map_err(|_| ZipError::Form("has a name that is not text"))?;
    let mut extra = Fields(fields.bytes(short(extra)?)?);
    fields.bytes(short(comment)?)?;
    // Fields that do not fit 32 bits are in the extra field 1, in this order.
    let mut wide = Fields(&[]);
    while extra.0.len() >= 4 {
        let (kind, len) = (extra.number(2)?, extra.number(2)?);
        let content = extra.bytes(short(len)?)?;
        if kind == 1 {
            wide = Fields(content);
        }
    }
    for field in [&mut len, &mut packed, &mut header] {
        if *field == 0xffff_ffff {
            *field = wide.number(8)?;
        }
    }
    if packed != len {
        return Err(ZipError::Form("has an entry of two sizes"));
    }
    Ok((header, ZipEntry { name: name.to_owned(), start: 0, len }))
}

/// Where an entry's bytes start, if its local header repeats the directory.
fn local(file: &File, header: u64, name: &str) -> Result<u64, ZipError> {
    const LOCAL: u64 = 30;
    let record = read(file, header, LOCAL)?;
    let mut fields = Fields(&record);
    let mark = fields.bytes(4)? == b"PK\x03\x04";
    fields.bytes(2)?;
    let (flags, method) = (fields.number(2)?, fields.number(2)?);
    fields.bytes(16)?;
    let (name_len, extra_len) = (fields.number(2)?, fields.number(2)?);
    let same = mark && flags & 1 == 0 && method == 0 && name_len == name.len() as u64;
    let after = header.checked_add(LOCAL).ok_or(ZipError::Form("has a record that is cut off"))?;
    if !same || read(file, after, name_len)? != name.as_bytes() {
        return Err(ZipError::Form("has a local header that differs from the directory"));
    }
    Ok(after.saturating_add(name_len + extra_len))
}

fn read(file: &File, at: u64, len: u64) -> Result<Vec<u8>, ZipError> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use super::*;

    /// A number of a record.
    fn short<const N: usize>(number: usize) -> [u8; N] {
        number.to_le_bytes()[..N].try_into().unwrap()
    }

    /// An archive of stored files, as small as the format allows.
    pub(in super::super) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (name, content) in files {
            let (header, len) = (short::<4>(bytes.len()), short::<4>(content.len()));
            let common = [&[0; 12][..], &len, &len, &short::<2>(name.len()), &[0, 0]].concat();
            bytes.extend([b"PK\x03\x04\0\0", &common[..], name.as_bytes(), content].concat());
            let place = [&[0; 10][..], &header].concat();
            directory.extend([b"PK\x01\x02\0\0\0\0", &common[..], &place, name.as_bytes()].concat());
        }
        let (start, len) = (short::<4>(bytes.len()), short::<4>(directory.len()));
        let count = short::<2>(files.len());
        bytes.extend(directory);
        bytes.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &len, &start, &[0, 0]].concat());
        bytes
    }

    fn entries(bytes: &[u8]) -> Result<Vec<ZipEntry>, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read_entries(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn finds_stored_entries() {
        let bytes = archive(&[("m/data.pkl", b"N."), ("m/data/0", &[7; 9])]);
        let read = entries(&bytes).unwrap();
        assert_eq!(read[0], ZipEntry { name: "m/data.pkl".into(), start: 40, len: 2 });
        assert_eq!(bytes[usize::try_from(read[1].start).unwrap()..][..9], [7; 9]);
    }

    /// PyTorch writes 64-bit end records whether they are needed or not.
    #[test]
    fn reads_64_bit_end_records_that_agree() {
        let small = archive(&[("a", b"1234")]);
        let (body, end) = small.split_at(small.len() - 22);
        let wide = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().unwrap())).to_le_bytes();
        let (count, len, start) = (1_u64.to_le_bytes(), wide(&end[12..16]), wide(&end[16..20]));
        let with = |start: &[u8; 8], end: &[u8]| {
            let head = [b"PK\x06\x06", &44_u64.to_le_bytes()[..], &[0; 12]].concat();
            let locator =
                [b"PK\x06\x07\0\0\0\0", &(body.len() as u64).to_le_bytes()[..], &[1, 0, 0, 0]].concat();
            [body, &head, &count, &count, &len, start, &locator, end].concat()
        };
        let narrow = [&end[..8], &[0xff; 12], &[0, 0]].concat();
        for end in [end, &narrow] {
            assert_eq!(entries(&with(&start, end)), entries(&small));
            assert!(entries(&with(&[0; 8], end)).is_err());
        }
        assert!(
            entries(&with(&start, &[&end[..12], &[9, 9], &end[14..]].concat()))
                .unwrap_err()
                .contains("disagree")
        );
    }

    /// Readers that start from the front and from the back see different archives.
    #[test]
    fn refuses_archives_that_readers_see_differently() {
        let good = archive(&[("a", b"1234"), ("b", b"5678")]);
        entries(&good).unwrap();
        let edited = |from: &[u8], to: &[u8]| {
            let at = good.windows(from.len()).rposition(|window| window == from).unwrap();
            [&good[..at], to, &good[at + from.len()..]].concat()
        };
        for (bytes, expected) in [
            ([b"N.", &good[..]].concat(), "something between its directory and its end"),
            ([&good[..], b"x"].concat(), "does not end with an end record"),
            (archive(&[("a", b"1"), ("a", b"2")]), "has a name twice"),
            (edited(b"b", b"c"), "a local header that differs from the directory"),
            (
                edited(b"PK\x01\x02\0\0\0\0\0\0\0\0", b"PK\x01\x02\0\0\0\0\0\0\x08\0"),
                "compressed or encrypted",
            ),
            (edited(b"PK\x01\x02\0\0\0\0\0\0", b"PK\x01\x02\0\0\0\0\x01\0"), "compressed or encrypted"),
            (b"PK\x03\x04".to_vec(), "does not end with an end record"),
        ] {
            let error = entries(&bytes).unwrap_err();
            assert!(error.contains(expected), "{error}, not {expected}");
        }
    }

    proptest::proptest! {
        /// An archive with some of its bytes changed is refused, or its entries lie inside and apart.
        #[test]
        fn no_edit_makes_entries_overlap_or_leave_the_file(
            edits in proptest::collection::vec((0..200_usize, proptest::prelude::any::<u8>()), 0..4),
            cut in 0..40_usize,
        ) {
            let mut bytes = archive(&[("m/data.pkl", b"N."), ("m/data/0", &[7; 9]), ("z", b"")]);
            for (at, byte) in edits {
                let len = bytes.len();
                bytes[at % len] = byte;
            }
            if cut < 20 {
                bytes.truncate(bytes.len() - cut);
            }
            let mut end = 0;
            for ZipEntry { start, len, .. } in entries(&bytes).unwrap_or_default() {
                proptest::prop_assert!(start >= end && start + len <= bytes.len() as u64);
                end = start + len;
            }
        }
    }
}
