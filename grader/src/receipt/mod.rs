//! Receipts: the signed statement made from a journal, and its verification.
