//! Airlock's policy language.
