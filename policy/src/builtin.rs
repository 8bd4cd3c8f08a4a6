//! The policies that come with Airlock.

const BUILTINS: [(&str, &str); 7] = [
    ("base", include_str!("../builtin/base.toml")),
    ("research", include_str!("../builtin/research.toml")),
    ("replay", include_str!("../builtin/replay.toml")),
    ("candidate", include_str!("../builtin/candidate.toml")),
    ("scorer", include_str!("../builtin/scorer.toml")),
    ("grader", include_str!("../builtin/grader.toml")),
    ("strict", include_str!("../builtin/strict.toml")),
];

/// The names of the built-in policies, `base` first.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTINS.iter().map(|(name, _)| *name)
}

/// The text of a built-in policy, as its author wrote it.
pub fn text(name: &str) -> Option<&'static str> {
    BUILTINS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// What a built-in policy is for: the first line of its comment.
pub fn summary(name: &str) -> Option<&'static str> {
    text(name)?.lines().next()?.strip_prefix("# ")
}
