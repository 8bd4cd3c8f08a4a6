//! Whether a text holds rows that its author must not know.
//!
//! Row and text are compared in a normal form: Unicode NFKC, lower case, letters and digits only. So case, white
//! space, punctuation, quoting, line breaks, full-width and ligature forms make no difference, nor does splitting a
//! string into concatenated pieces. The text is looked at twice, as it is and with backslash escapes resolved. Not
//! found: translations, paraphrases, and letters of other scripts that only look alike.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

/// Letters and digits by which a row is looked up; a row with fewer is no evidence and is left out.
const PROBE: usize = 24;

/// Multiplier of the rolling hash: odd, without structure (that of Knuth's MMIX generator).
const BASE: u64 = 6_364_136_223_846_793_005;

/// Rows that a candidate must not know, ready to be looked for.
#[derive(Debug, Clone, Default)]
pub struct HiddenRows {
    rows: Vec<Vec<char>>,
    /// Rows by the hash of their middle [`PROBE`] characters, with the offset of the middle. Openings are often
    /// shared by all rows of a set.
    probes: HashMap<u64, Vec<(usize, usize)>>,
    left_out: usize,
}

/// A hidden row in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// The line of the text on which it starts, from 1.
    pub line: usize,
    /// The row, counted from 0 in the order given.
    pub row: usize,
}

impl HiddenRows {
    /// Takes the rows in; each is one text, such as a question.
    pub fn new<T: AsRef<str>>(rows: impl IntoIterator<Item = T>) -> Self {
        let mut hidden = Self::default();
        for row in rows {
            let normal: Vec<char> = normal_form(row.as_ref()).map(|(c, _)| c).collect();
            let index = hidden.rows.len();
            match normal.len().checked_sub(PROBE) {
                Some(room) => {
                    let middle = room / 2;
                    let probe = hash(&normal[middle..middle + PROBE]);
                    hidden.probes.entry(probe).or_default().push((index, middle));
                }
                None => hidden.left_out += 1,
            }
            hidden.rows.push(normal);
        }
        hidden
    }

    /// How many rows were too short to be looked for (fewer than 24 letters and digits).
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The rows that a text holds, each once, by line.
    pub fn overlaps(&self, text: &str) -> Vec<Overlap> {
        let mut found: HashMap<usize, usize> = HashMap::new();
        for form in [
            normal_form(text).collect::<Vec<_>>(),
            normal_form(&unescaped(text)).collect(),
        ] {
            self.search(&form, &mut found);
        }
        let mut overlaps: Vec<Overlap> = found
            .into_iter()
            .map(|(row, line)| Overlap { line, row })
            .collect();
        overlaps.sort_unstable();
        overlaps
    }

    fn search(&self, text: &[(char, usize)], found: &mut HashMap<usize, usize>) {
        let highest = (1..PROBE).fold(1_u64, |power, _| power.wrapping_mul(BASE));
        let mut rolling = 0_u64;
        for (at, (c, _)) in text.iter().enumerate() {
            if at >= PROBE {
                rolling = rolling.wrapping_sub(u64::from(text[at - PROBE].0).wrapping_mul(highest));
            }
            rolling = rolling.wrapping_mul(BASE).wrapping_add(u64::from(*c));
            let Some(candidates) = (at + 1 >= PROBE).then(|| self.probes.get(&rolling)).flatten() else {
                continue;
            };
            for (row, middle) in candidates
                .iter()
                .filter(|(row, _)| !found.contains_key(row))
                .collect::<Vec<_>>()
            {
                let wanted = &self.rows[*row];
                let Some(start) = (at + 1 - PROBE).checked_sub(*middle) else {
                    continue;
                };
                let place = text.get(start..start + wanted.len());
                if let Some(place) = place.filter(|place| place.iter().map(|(c, _)| c).eq(wanted)) {
                    found.insert(*row, place[0].1);
                }
            }
        }
    }
}

/// The letters and digits of a text in normal form, each with its line, from 1.
fn normal_form(text: &str) -> impl Iterator<Item = (char, usize)> {
    text.split('\n').enumerate().flat_map(|(line, text)| {
        let folded = text.nfkc().flat_map(char::to_lowercase).nfkc();
        folded.filter(|c| c.is_alphanumeric()).map(move |c| (c, line + 1))
    })
}

fn hash(characters: &[char]) -> u64 {
    characters
        .iter()
        .fold(0, |hash, c| hash.wrapping_mul(BASE).wrapping_add(u64::from(*c)))
}

/// A text with the escapes of JSON and of common languages resolved. Escaped newlines become spaces, so that lines
/// keep their numbers.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escape = rest.next();
        let digits = match escape {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        let ahead: String = rest.clone().take(digits).collect();
        match (
            escape,
            u32::from_str_radix(&ahead, 16).ok().and_then(char::from_u32),
        ) {
            (Some('x' | 'u' | 'U'), Some(decoded)) if ahead.chars().count() == digits => {
                rest.by_ref().take(digits).for_each(drop);
                out.push(if decoded == '\n' { ' ' } else { decoded });
            }
            (Some('\n'), _) => out.push('\n'),
            (Some('n' | 'r' | 't' | 'b' | 'f'), _) => out.push(' '),
            (Some(other), _) => out.push(other),
            (None, _) => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "A train leaves Zürich at 9:40 and runs 315 km in two hours. What is its mean speed?";

    fn found(text: &str) -> Vec<Overlap> {
        let other = "Name three rivers that flow through more than two countries of Europe.";
        HiddenRows::new([other, ROW, "Yes."]).overlaps(text)
    }

    /// Training on benchmark rows (PostTrainBench's README and paper): a row stays a row however it is spelt.
    #[test]
    fn finds_a_row_whatever_its_case_spacing_and_unicode_form() {
        let full_width: String = ROW
            .chars()
            .map(|c| {
                if c.is_ascii_graphic() {
                    char::from_u32(u32::from(c) + 0xfee0).unwrap()
                } else {
                    c
                }
            })
            .collect();
        let decomposed: String = ROW.nfd().collect();
        let escaped = ROW.replace('ü', "\\u00fc").replace(' ', "\\n");
        let hexadecimal = ROW.replace('Z', "\\x5a");
        for variant in [
            ROW.to_owned(),
            ROW.to_uppercase(),
            ROW.replace(' ', "  \t"),
            ROW.replace(' ', ""),
            ROW.replace(' ', "\u{a0}\u{200b}"),
            full_width,
            decomposed,
            escaped,
            hexadecimal,
            ROW.replace(' ', "\" \\\n    \""),
            ROW.replace(' ', " \" + \""),
            ROW.replace('?', ""),
        ] {
            let text = format!("import json\nrows = [\"{variant}\"]\nprint(rows)\n");
            let overlaps = found(&text);
            assert_eq!(overlaps, [Overlap { line: 2, row: 1 }], "{variant}");
        }
    }

    #[test]
    fn other_rows_parts_and_short_rows_are_not_found() {
        for text in [
            &ROW.replace("315", "316"),
            &ROW[..ROW.len() / 2],
            "A train leaves Zürich at 9:40",
            "Yes.",
            "",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
        assert_eq!(HiddenRows::new([ROW, "Yes."]).left_out(), 1);
    }

    #[test]
    fn rows_with_one_opening_are_told_apart() {
        let rows: Vec<String> = (0..2000)
            .map(|n| format!("Answer with one letter only. How much is {n} plus one apple?"))
            .collect();
        let hidden = HiddenRows::new(&rows);
        let overlaps = hidden.overlaps(&format!("x\ny\n{}", rows[1234]));
        assert_eq!(overlaps, [Overlap { line: 3, row: 1234 }]);
    }
}
