//! Scoring: items, planned denominators, aggregates and the score ladder.
