//! The header of a safetensors file, with everything that the format demands of it.
//!
//! The format: 8 bytes little-endian, the length of the header; the header, a JSON object from tensor names to
//! `dtype`, `shape` and `data_offsets`, padded with spaces; the tensors' bytes, without gaps or overlaps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Largest header that is read: the format's own cap.
const LARGEST_HEADER: u64 = 100_000_000;

/// A header that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The tensors, in the order of their bytes.
    pub tensors: Vec<Tensor>,
    /// The texts under `__metadata__`. The candidate wrote them: they prove nothing.
    pub metadata: BTreeMap<String, String>,
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its element type, as the format spells it.
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Where its bytes start in the file.
    pub start: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// Why a file is not safetensors.
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    /// The file could not be read.
    #[error("reading the file")]
    Read(#[from] io::Error),
    /// A length beyond the file or above the format's cap of 100 MB.
    #[error("a header of {0} bytes")]
    HeaderSize(u64),
    /// The header is not the JSON that the format asks for.
    #[error("the header is not the JSON that the format asks for, at line {} column {}", .0.line(), .0.column())]
    Json(#[from] serde_json::Error),
    /// A tensor whose type, shape and place do not agree.
    #[error("the {0}th tensor in the file {1}")]
    Tensor(usize, &'static str),
    /// Bytes after the last tensor.
    #[error("{0} bytes belong to no tensor")]
    Trailing(u64),
}

/// Reads and checks the header of an open safetensors file.
pub fn read_header(file: &File) -> Result<Header, SafetensorsError> {
    let size = file.metadata()?.len();
    let mut length = [0; 8];
    file.read_exact_at(&mut length, 0)?;
    let length = u64::from_le_bytes(length);
    let too_long = SafetensorsError::HeaderSize(length);
    if length > LARGEST_HEADER || length > size.saturating_sub(8) {
        return Err(too_long);
    }
    let mut json = vec![0; usize::try_from(length).map_err(|_| too_long)?];
    file.read_exact_at(&mut json, 8)?;
    let Entries { mut tensors, metadata } = serde_json::from_slice(&json)?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);

    let data = 8 + length;
    let mut at = 0;
    let mut checked = Vec::with_capacity(tensors.len());
    for (index, (name, Info { dtype, shape, data_offsets: (start, end) })) in tensors.into_iter().enumerate()
    {
        let wrong = |why| SafetensorsError::Tensor(index + 1, why);
        let element = bytes_of(&dtype).ok_or_else(|| wrong("has an unknown element type"))?;
        let wanted = shape.iter().try_fold(element, |bytes, dimension| bytes.checked_mul(*dimension));
        let wanted = wanted.ok_or_else(|| wrong("has more elements than can be counted"))?;
        if start != at {
            return Err(wrong("does not start where the one before ends"));
        }
        if end.checked_sub(start) != Some(wanted) {
            return Err(wrong("has another size than its type and shape say"));
        }
        if end > size - data {
            return Err(wrong("ends after the file"));
        }
        at = end;
        checked.push(Tensor { name, dtype, shape, start: data + start, len: wanted });
    }
    match size - data - at {
        0 => Ok(Header { tensors: checked, metadata }),
        left => Err(SafetensorsError::Trailing(left)),
    }
}

fn bytes_of(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 1,
        "U16" | "I16" | "F16" | "BF16" => 2,
        "U32" | "I32" | "F32" => 4,
        "U64" | "I64" | "F64" | "C64" => 8,
        _ => return None,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Info {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's object. Unlike a map it refuses a name that comes twice.
struct Entries {
    tensors: Vec<(String, Info)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let (mut entries, mut seen) =
                    (Entries { tensors: Vec::new(), metadata: BTreeMap::new() }, BTreeSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if !seen.insert(name.clone()) {
                        return Err(A::Error::custom("a name comes twice"));
                    }
                    if name == "__metadata__" {
                        entries.metadata = map.next_value()?;
                    } else {
                        entries.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(header: &str, data: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.write_all(&vec![0; data]).unwrap();
        file
    }

    #[test]
    fn reads_a_header() {
        let header = r#"{"b":{"dtype":"F32","shape":[2,2],"data_offsets":[2,18]},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"__metadata__":{"format":"pt"}}   "#;
        let read = read_header(&file(header, 18)).unwrap();
        let names: Vec<&str> = read.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(
            (names, read.tensors[1].start, read.tensors[1].len),
            (vec!["a", "b"], 8 + header.len() as u64 + 2, 16)
        );
        assert_eq!(read.metadata["format"], "pt");
    }

    #[test]
    fn refuses_headers_that_do_not_fit_the_bytes() {
        let tensor = |dtype: &str, shape: &str, start: u64, end: u64| {
            format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
        };
        let one = |tensor: String| format!(r#"{{"a":{tensor}}}"#);
        let two = |a: String, b: String| format!(r#"{{"a":{a},"b":{b}}}"#);
        let json = "the header is not the JSON that the format asks for, at line 1 column";
        let cases = [
            (one(tensor("U8", "[4]", 0, 5)), 5, "has another size than its type and shape say"),
            (one(tensor("U8", "[4]", 4, 0)), 4, "does not start where"),
            (one(tensor("U8", "[4]", 1, 5)), 5, "does not start where"),
            (one(tensor("U8", "[4]", 0, 4)), 3, "ends after the file"),
            (one(tensor("U8", "[4]", 0, 4)), 5, "1 bytes belong to no tensor"),
            (one(tensor("U8", "[4294967296,4294967296]", 0, 0)), 0, "more elements than can be counted"),
            (one(tensor("PY", "[4]", 0, 4)), 4, "unknown element type"),
            (two(tensor("U8", "[4]", 0, 4), tensor("U8", "[4]", 2, 6)), 6, "does not start where"),
            (format!(r#"{{"a":{0},"a":{0}}}"#, tensor("U8", "[0]", 0, 0)), 0, json),
            (one(tensor("U8", "[-1]", 0, 0)), 0, json),
            (one(tensor("U8", "[0]", 0, 0).replace("{\"dtype", "{\"code\":1,\"dtype")), 0, json),
            ("[]".into(), 0, json),
            ("{} x".into(), 0, json),
        ];
        for (header, data, expected) in cases {
            let error = read_header(&file(&header, data)).unwrap_err().to_string();
            assert!(error.contains(expected), "{header}: {error}");
        }
        // A refusal says nothing in the file's own words: tests/fuzz found `unknown field` with the field's name, which
        // could steer a terminal.
        let steering = one(tensor("U8", "[0]", 0, 0).replace("{\"dtype", "{\"\\u001b[2J\":1,\"dtype"));
        let error = read_header(&file(&steering, 0)).unwrap_err().to_string();
        assert!(error.contains(json) && !error.contains("[2J"), "{error}");
        for length in [3, LARGEST_HEADER + 1, u64::MAX] {
            let mut short = tempfile::tempfile().unwrap();
            short.write_all(&length.to_le_bytes()).unwrap();
            short.write_all(b"{}").unwrap();
            assert!(
                matches!(read_header(&short), Err(SafetensorsError::HeaderSize(found)) if found == length)
            );
        }
    }
}
