//! Sealing: the host's own content-addressed copy of a candidate.
