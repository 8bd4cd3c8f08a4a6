//! Changesets: the host-computed difference between a tree and the frozen one.
