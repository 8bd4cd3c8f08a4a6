//! Seccomp: profiles, the filter compiler, and an interpreter that proves what a filter does.
