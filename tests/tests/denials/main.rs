//! Every clause of a policy: what it refuses inside is done once the clause is loosened.
//!
//! Where a clause has no knob, the same action is done outside by the same caller. Where layers overlap, the
//! clause is tried alone, in a policy stripped of the others ([`STRIPPED`]).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod descriptors;
mod devices;
mod filesystem;
mod identity;
mod ipc;
mod landlock;
mod limits;
mod network;
mod seccomp;

/// No seccomp, no Landlock: what still refuses is the namespaces, ids, capabilities and mounts.
const STRIPPED: &str = "[seccomp]\nprofile = \"none\"\n[landlock]\nenabled = false\n";

/// The action is refused under the first clauses and done under the second.
#[track_caller]
fn refused_then_done(strict: &str, loose: &str, action: &[&str], errnos: &[&str]) {
    let site = airlock_tests::Site::new();
    site.inside(strict, action).refused(errnos);
    site.inside(loose, action).done();
}
