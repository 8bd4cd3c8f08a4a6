//! Networks.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use airlock_tests::Site;

use crate::{STRIPPED, refused_then_done};

const LOOPBACK: &str = "[network]\nmode = \"loopback\"\n";

#[test]
fn the_hosts_services_are_not_reached() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let action = ["connect-tcp", port.as_str()];
    site.outside(action).done();
    site.inside("", action).refused(&["ENETUNREACH"]);
    site.inside(STRIPPED, action).refused(&["ENETUNREACH"]);
    site.inside(LOOPBACK, action).refused(&["ECONNREFUSED"]);
}

#[test]
fn there_is_no_interface_but_the_loopback() {
    let site = Site::new();
    site.inside("", ["interfaces"]).refused(&["EAFNOSUPPORT"]);
    for clauses in ["[seccomp]\nallow = [\"socket\"]\n", LOOPBACK] {
        assert_eq!(site.inside(clauses, ["interfaces"]).done(), "lo");
    }
}

#[test]
fn without_a_network_even_the_loopback_is_down() {
    refused_then_done("", LOOPBACK, &["talk-to-self"], &["ENETUNREACH", "EADDRNOTAVAIL"]);
}

/// Abstract names belong to the network namespace (CVE-2020-15257).
#[test]
fn abstract_sockets_of_the_host_are_not_reached() {
    let site = Site::new();
    let name = format!("airlock-test-{}", std::process::id());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let action = ["connect-unix".to_owned(), format!("@{name}")];
    site.outside(&action).done();
    for clauses in ["", LOOPBACK, STRIPPED] {
        site.inside(clauses, &action).refused(&["ECONNREFUSED", "EPERM"]);
    }
}

/// The broker is a reserved word: it is refused by name, not taken for `none`.
#[test]
fn a_broker_is_refused_by_name() {
    let site = Site::new();
    let policy = site.policy("[network]\nmode = \"broker\"\nallow = [\"example.org:443\"]\n");
    site.run().policy(policy).end(["true"]).refused(&["broker"]);
}
