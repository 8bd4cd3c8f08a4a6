//! The receipt, and how to verify it.

use super::html::Html;
use super::input::{ReceiptFacts, ReportInput};
use super::table::{fact, facts};
use super::units::count;

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>) {
    let Some(receipt) = input.receipt else {
        return html.markup(
            "<p>There is no receipt yet. It is signed when the run is closed; until then nothing here is vouched \
             for.</p>",
        );
    };
    html.markup(
        "<p>This page is made for reading and proves nothing by itself. What is signed is <code>receipt.json</code>: \
         it names the result, every file of the run by its digest, and the last line of the journal.</p>",
    );
    facts(html, |html| {
        let code = |html: &mut Html, digest: &dyn std::fmt::Display| html.leaf("code", &[], digest);
        fact(html, "Signed by key", |html| code(html, &receipt.key));
        fact(html, "Task", |html| code(html, &receipt.task));
        fact(html, "Journal head", |html| {
            code(html, &receipt.journal.digest);
            let lines = count(receipt.journal.lines, "line");
            html.text(format_args!(", {lines}, {}", count(receipt.journal.bytes, "byte")));
        });
        fact(html, "Files bound", |html| html.text(receipt.subjects));
        fact(html, "Graded", |html| {
            html.text(match input.task.in_process {
                false => "outside of the candidate’s process",
                true => "in-process: the tests ran within the candidate’s own process",
            });
        });
        fact(html, "Airlock", |html| html.foreign(&receipt.airlock));
    });
    html.markup(
        "<h3>Verify it</h3><p>With the public key from somebody you trust, not from the run directory:</p>",
    );
    html.markup("<pre tabindex=\"0\"><code>airlock task verify RUN --key key.pem</code></pre>");
    html.markup(
        "<p>It recomputes, offline, every digest, the chain of the journal, the score and σ from the rows of the \
         verdict, and names the first byte that does not fit.</p>\
         <p>By hand, with Python, openssl and coreutils; <code>receipt.py</code> and <code>journal.py</code> are in \
         FORMATS.md:</p>",
    );
    html.element("pre", &[("tabindex", &"0")], |html| {
        html.element("code", &[], |html| by_hand(html, receipt))
    });
}

fn by_hand(html: &mut Html, receipt: &ReceiptFacts) {
    html.markup(
        "# the key has this name
openssl pkey -pubin -in key.pem -outform DER | tail -c 32 | sha256sum
#   ",
    );
    html.text(receipt.key.hex());
    html.markup(
        "
# the receipt is signed with it; this prints what is signed
python3 receipt.py RUN/receipt.json pae sig
openssl pkeyutl -verify -pubin -inkey key.pem -rawin -in pae -sigfile sig
# the journal is the one that was signed
wc -c RUN/journal.jsonl; tail -n 1 RUN/journal.jsonl | sha256sum
#   ",
    );
    html.text(format_args!("{} {}", receipt.journal.bytes, receipt.journal.digest.hex()));
    html.markup("\n# and is chained from its first line; RUN_ID stands in that line\npython3 journal.py RUN_ID RUN/run.json RUN/journal.jsonl\n#   ");
    html.text(format_args!("{} {}", receipt.journal.lines, receipt.journal.digest));
}
