//! Rows of data and numbers in what should be code.

use serde::de::IgnoredAny;

use super::patch::Added;

/// What consecutive rows of one table have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A JSON object, or a literal like one.
    Object,
    /// Values separated by a character: which, and how many.
    Fields(char, usize),
}

/// What one field of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Integer,
    Fraction,
    Quoted,
    /// Words that are no expression.
    Words,
    /// One word: in a literal it may be a name of the program's.
    Word,
    Code,
}

/// The first run of more than `most` consecutive lines that look like rows of one table: where it starts, and how
/// many they are. Blank lines do not count.
pub(super) fn find<'a, 'b>(lines: &'b [Added<'a>], most: u64) -> Option<(&'b Added<'a>, usize)> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut run: Option<(&Added<'_>, Shape, usize)> = None;
    let enough = |run: &Option<(_, _, usize)>| run.as_ref().is_some_and(|(_, _, count)| *count > most);
    for line in lines.iter().filter(|line| !line.text.trim().is_empty()) {
        match (shape(line.text), &mut run) {
            (Some(shape), Some((_, same, count))) if shape == *same => *count += 1,
            (shape, _) => {
                if enough(&run) {
                    break;
                }
                run = shape.map(|shape| (line, shape, 1));
            }
        }
    }
    run.filter(|(_, _, count)| *count > most)
        .map(|(start, _, count)| (start, count))
}

/// How many number literals the lines hold.
pub(super) fn numbers(lines: &[Added<'_>]) -> u64 {
    let in_line = |text: &str| {
        let (mut before, mut number, mut word) = (' ', false, false);
        let starts = text.chars().filter(|c| {
            let starts = c.is_ascii_digit() && !word;
            // The sign of an exponent is part of its number.
            let exponent = number && matches!(before, 'e' | 'E') && matches!(c, '-' | '+');
            word = c.is_alphanumeric() || matches!(c, '_' | '.') || exponent;
            number = word && (number || starts);
            before = *c;
            starts
        });
        starts.count() as u64
    };
    lines.iter().map(|line| in_line(line.text)).sum()
}

/// The shape of a line, if it looks like a row.
fn shape(line: &str) -> Option<Shape> {
    let line = line.trim();
    let row = line.strip_suffix([',', ';']).unwrap_or(line);
    if row.starts_with('{') && row.ends_with('}') {
        let json = serde_json::from_str::<IgnoredAny>(row).is_ok();
        let literal = row.contains(':') && row.matches(['"', '\'']).count() >= 2;
        return (json || literal).then_some(Shape::Object);
    }
    let inner = [('[', ']'), ('(', ')')]
        .iter()
        .find_map(|(open, close)| row.strip_prefix(*open)?.strip_suffix(*close));
    let literal = inner.is_some();
    [',', '\t', ';'].iter().find_map(|separator| {
        let fields = split(inner.unwrap_or(row), *separator)?;
        let kinds: Vec<Field> = fields.iter().map(|field| kind(field.trim())).collect();
        let literal = literal || kinds.contains(&Field::Quoted);
        let data = kinds
            .iter()
            .any(|kind| matches!(kind, Field::Fraction | Field::Quoted | Field::Words))
            || (!literal && kinds.contains(&Field::Integer) && kinds.contains(&Field::Word));
        let code = kinds
            .iter()
            .any(|kind| *kind == Field::Code || (literal && matches!(kind, Field::Word | Field::Words)));
        (kinds.len() >= 3 && data && !code).then_some(Shape::Fields(*separator, kinds.len()))
    })
}

/// The fields of a row; separators within quotes do not count. `None` where a quote stays open.
fn split(row: &str, separator: char) -> Option<Vec<&str>> {
    let (mut fields, mut start, mut quote, mut escaped) = (Vec::new(), 0, None, false);
    for (at, c) in row.char_indices() {
        match quote {
            Some(open) => {
                if c == open && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
            }
            // An apostrophe inside a word opens nothing.
            None if c == '"' || (c == '\'' && row[start..at].trim().is_empty()) => quote = Some(c),
            None if c == separator => {
                fields.push(&row[start..at]);
                start = at + c.len_utf8();
            }
            None => {}
        }
    }
    fields.push(&row[start..]);
    quote.is_none().then_some(fields)
}

fn kind(field: &str) -> Field {
    let number = field.trim_start_matches(['-', '+']);
    let quoted = |quote| field.len() >= 2 && field.starts_with(quote) && field.ends_with(quote);
    if number.starts_with(|c: char| c.is_ascii_digit() || c == '.') && number.parse::<f64>().is_ok() {
        return if number.contains(['.', 'e', 'E']) {
            Field::Fraction
        } else {
            Field::Integer
        };
    }
    let hexadecimal = number
        .strip_prefix("0x")
        .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if hexadecimal
        || matches!(
            field,
            "null" | "None" | "true" | "false" | "True" | "False" | "nan" | "NaN"
        )
    {
        return Field::Integer;
    }
    if quoted('"') || quoted('\'') {
        return Field::Quoted;
    }
    let plain = |c: char| {
        c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '\'' | '?' | '!' | '%' | '$' | ':' | '/')
    };
    match field.split_whitespace().count() {
        0 | 1 if field.chars().all(plain) => Field::Word,
        _ if field.chars().all(|c| plain(c) || c == '.') && field.split_whitespace().count() >= 3 => {
            Field::Words
        }
        _ => Field::Code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Option<(usize, usize)> {
        let lines: Vec<Added<'_>> = text
            .lines()
            .enumerate()
            .map(|(line, text)| Added {
                hunk: 1,
                line: line + 1,
                text,
            })
            .collect();
        find(&lines, 15).map(|(start, count)| (start.line, count))
    }

    fn table(count: usize, row: impl Fn(usize) -> String) -> String {
        let rows: Vec<String> = (0..count).map(row).collect();
        format!("def load():\n    pass\n{}\n    return 1\n", rows.join("\n"))
    }

    /// AI4AI-Bench refuses 16 data-like rows in a row.
    #[test]
    fn finds_sixteen_rows_and_not_fifteen() {
        let forms: [fn(usize) -> String; 9] = [
            |n| format!("5.{n},3.5,1.4,setosa"),
            |n| format!("    [5.{n}, 3.5, -1.4e-3],"),
            |n| format!("    (\"What is {n} + {n}?\", \"{}\", \"sums\"),", 2 * n),
            |n| format!("{{\"question\": \"q{n}\", \"answer\": {n}}}"),
            |n| format!("    {{'question': 'q{n}', 'answer': f({n})}},"),
            |n| format!("{n}\tcat\tanimal"),
            |n| format!("{n};cat;animal\n"),
            |n| format!("What is the capital of land {n},Town,geography"),
            |n| format!("\"a, quoted, field {n}\",1,2"),
        ];
        for form in forms {
            assert_eq!(rows(&table(16, form)), Some((3, 16)), "{}", form(1));
            assert_eq!(rows(&table(15, form)), None, "{}", form(1));
        }
    }

    #[test]
    fn leaves_tables_of_code_alone() {
        let forms: [fn(usize) -> String; 8] = [
            |n| format!("    0x{n:08x}, 0x00000001, 0x00000002, 0x00000003,"),
            |n| format!("    (\"op{n}\", 2, ops.op{n}),"),
            |n| format!("    (\"op{n}\", 2, OP_{n}),"),
            |n| format!("    Alpha{n}, Beta, Gamma,"),
            |n| format!("    let x{n} = f(1.0, 2.0, 3.0);"),
            |n| format!("    assert_eq!(sum(&[{n}, 1, 2]), {}, \"sum\");", n + 3),
            |n| format!("    case {n}: return \"{n}\";"),
            |n| format!("    foo{n}(a, b, 1.5),"),
        ];
        for form in forms {
            assert_eq!(rows(&table(200, form)), None, "{}", form(1));
        }
        for text in [
            include_str!("rows.rs"),
            include_str!("../../../LICENSE"),
            include_str!("../seal/tests.rs"),
        ] {
            assert_eq!(rows(text), None);
        }
    }

    #[test]
    fn counts_numbers_and_not_names() {
        let line = |text| {
            numbers(&[Added {
                hunk: 1,
                line: 1,
                text,
            }])
        };
        assert_eq!(line("w = [0.25, -1e-3, 7, 0xff]"), 4);
        assert_eq!(line("f(1e+3)-2"), 2);
        assert_eq!(line("x1 = utf8 + a_2 + v1.2"), 0);
    }
}
