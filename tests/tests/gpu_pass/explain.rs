//! What `airlock policy explain` says of GPUs' nodes.

use airlock_tests::skip;

use crate::{PCI, Place};

#[test]
fn a_node_is_explained_by_the_clause_that_lets_it_in() {
    let place = match Place::new("eight") {
        Ok(place) => place,
        Err(why) => skip!("{why}"),
    };
    let ask = |clauses: &str, what: &str| {
        let policy = place.site.policy(clauses);
        let words = ["policy", "explain", policy.to_str().unwrap(), "--what", what];
        place.site.airlock_where_root_did(&place.script, words)
    };
    let one = format!("[gpu]\ndevices = [\"{}\"]\n", PCI[2]);
    for (what, yes) in [
        ("open /dev/nvidia2", true),
        ("write /dev/nvidia2", true),
        ("open /dev/nvidiactl", true),
        ("open /dev/nvidia3", false),
        ("see /dev/nvidia3", false),
        ("open /dev/nvidia-modeset", false),
        ("open /proc/driver/nvidia/version", true),
        ("write /proc/driver/nvidia/params", false),
    ] {
        let ended = ask(&one, what);
        let said = &ended.stdout;
        assert!(said.starts_with(if yes { "yes" } else { "no" }), "{what}: {ended}");
        if yes && what.contains("nvidia2") {
            assert!(said.contains("gpu"), "{what}: {ended}");
        }
    }
    // Without the clause none of them is there.
    let ended = ask("", "open /dev/nvidia2");
    assert!(ended.stdout.starts_with("no"), "{ended}");
}
