//! The journal, line by line.

use serde_json::Value;

use super::html::Html;
use super::input::ReportInput;
use super::table::{Column, Row, rest, table};
use super::units::{count, short, utc};
use crate::Digest;
use crate::journal::Record;

/// Most lines from the front, and as many from the end.
const LINES: usize = 500;

const COLUMNS: [Column; 4] =
    [Column::Number("Line"), Column::Text("Time"), Column::Text("Event"), Column::Text("What")];

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>) {
    let records = input.records;
    let Some(last) = records.last() else {
        return html.markup("<p>The journal is empty.</p>");
    };
    html.element("details", &[], |html| {
        html.element("summary", &[], |html| {
            html.text(format_args!(
                "{}, each chained to the one before; ",
                count(records.len() as u64, "line")
            ));
            html.text(format_args!("the last at {}", utc(last.wall_ms)));
        });
        table(html, "Journal", &COLUMNS, |html| {
            if records.len() <= 2 * LINES {
                return records.iter().for_each(|record| line(html, record));
            }
            records[..LINES].iter().for_each(|record| line(html, record));
            let more = count((records.len() - 2 * LINES) as u64, "line");
            rest(html, COLUMNS.len(), format_args!("{more} between: in journal.jsonl"));
            records[records.len() - LINES..].iter().for_each(|record| line(html, record));
        });
    });
}

fn line(html: &mut Html, record: &Record) {
    // Every event is an object; one that would not serialize could not have been in a journal.
    let mut event = serde_json::to_value(&record.event).unwrap_or_default();
    let kind = event.get_mut("type").map(Value::take);
    Row::write(html, |row| {
        row.number(record.seq + 1);
        row.text(utc(record.wall_ms));
        row.code(kind.as_ref().and_then(Value::as_str).unwrap_or("?"));
        row.cell(|html| fields(html, &event));
    });
}

fn fields(html: &mut Html, event: &Value) {
    let fields = event.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, value)| *name != "type" && !value.is_null()) {
        html.element("span", &[("class", &"field")], |html| {
            html.leaf("span", &[("class", &"key")], name);
            html.text(" ");
            match value {
                Value::String(text) => match text.parse::<Digest>() {
                    Ok(digest) => html.leaf("code", &[], short(&digest)),
                    Err(_) => html.foreign(text),
                },
                other => html.text(other),
            }
        });
        html.text(" ");
    }
}
