//! Settings of the whole machine. Only a machine that is the tests' own, such as one of the kernel matrix
//! (`AIRLOCK_OWN_MACHINE`), is changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;

use airlock_tests::{Site, is_root, record_refusal, skip};

#[test]
fn where_user_namespaces_are_forbidden_the_sysctl_is_named() {
    const SYSCTL: &str = "/proc/sys/user/max_user_namespaces";
    if std::env::var_os("AIRLOCK_OWN_MACHINE").is_none() || !is_root() {
        skip!("needs a machine of its own");
    }
    let before = fs::read_to_string(SYSCTL).unwrap();
    for site in [Site::new(), Site::user()] {
        site.run().policy(site.policy("")).end(["true"]).succeeded();
        fs::write(SYSCTL, "0").unwrap();
        let ended = site.run().policy(site.policy("")).end(["true"]);
        fs::write(SYSCTL, &before).unwrap();
        record_refusal(
            "no user namespaces on the machine",
            &ended.refused(&["user.max_user_namespaces"]).stderr,
        );
    }
}
