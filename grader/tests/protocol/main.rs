//! The protocol over real sockets: server, supervisor link, and the client that goes into a sandbox.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod abuse;
mod frames;
mod harness;
mod link;
mod mcp;
mod supervisor;
mod support;
