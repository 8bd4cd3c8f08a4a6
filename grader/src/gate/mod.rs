//! Gates: what a submitted change must satisfy before anything of it runs.
