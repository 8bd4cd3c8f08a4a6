//! The grader protocol: JSON-RPC 2.0 over one Unix socket per run.
