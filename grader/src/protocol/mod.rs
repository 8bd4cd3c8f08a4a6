//! The grader protocol: JSON-RPC 2.0 over one Unix socket per run.
//!
//! `PROTOCOL.md` describes it for those who speak it. Untrusted bytes end in [`codec`]: behind it there are
//! only the typed [`messages`], whose texts are the checked [`names`]. The [`server`] turns a request into one
//! call of its [`server::Backend`]; in the grader process that is the [`link`] to the supervisor.

pub mod bind;
pub mod client;
pub mod codec;
pub mod link;
pub mod messages;
pub mod names;
pub mod process;
pub mod refusal;
pub mod server;
pub(crate) mod wire;

/// Version of the protocol, in the reply to `hello`.
pub const VERSION: u32 = 1;

/// Where a sandbox finds the socket.
pub const SOCKET: &str = "/run/airlock/grader.sock";

/// Longest request in bytes, its newline not counted.
pub const REQUEST_CAP: usize = 64 * 1024;

/// Longest reply in bytes, its newline not counted.
pub const REPLY_CAP: usize = 1024 * 1024;
