//! The journal: an append-only, hash-chained list of events, the one source of truth of a run.
