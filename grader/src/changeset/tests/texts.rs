//! Texts that may or may not be patches.

use proptest::prelude::*;

use crate::changeset::parse::parse;

/// A line that patches have, or nearly have.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "(---|\\+\\+\\+) (a/|b/|/dev/null|)[ab.]{0,3}(/[ab]{1,2})?",
        2 => "diff --git a/[ab]{1,2} b/[ab]{1,2}",
        2 => "(old|new|deleted file|new file) mode (100644|100755|120000)",
        1 => "index [0-9a]{7}\\.\\.[0-9a]{7}( 100644)?",
        4 => "@@ -[0-3](,[0-3])? \\+[0-3](,[0-3])? @@( x)?",
        1 => "@@ -[0-9]{1,22},[0-9]{1,22} \\+[0-9]{1,22} @@",
        8 => "[ +-][xy]{0,3}",
        1 => Just("\\\\ No newline at end of file".to_owned()),
        1 => "(--- |rename from |copy to )\"[a-z\\\\0-9]{0,5}\"?",
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    /// An error has a line of the text, and what is read accounts for its lines one by one.
    #[test]
    fn any_text_is_read_or_refused_at_a_line(lines in prop::collection::vec(line(), 0..14), end in any::<bool>()) {
        let mut text = lines.join("\n");
        if end && !text.is_empty() {
            text.push('\n');
        }
        let count = text.lines().count();
        match parse(&text) {
            Ok(sections) => {
                for section in sections {
                    prop_assert!((1..=count).contains(&section.line));
                    for hunk in section.hunks {
                        prop_assert!(hunk.line > section.line && hunk.line <= count);
                        prop_assert!(hunk.places.iter().all(|place| *place > hunk.line && *place <= count));
                        prop_assert!(hunk.places.is_sorted());
                    }
                }
            }
            Err(error) => prop_assert!((1..=count + 1).contains(&error.line), "{}: {error}", error.line),
        }
    }
}
