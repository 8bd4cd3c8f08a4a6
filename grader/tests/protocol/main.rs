//! The protocol over real sockets: server, supervisor link, and the client that goes into a sandbox.

mod abuse;
mod frames;
mod harness;
mod link;
mod mcp;
mod support;
