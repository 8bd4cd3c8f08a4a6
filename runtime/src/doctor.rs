//! What this host can enforce, with a remedy for each lack.
