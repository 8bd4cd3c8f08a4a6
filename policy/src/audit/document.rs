//! An OCI document as the rules read it: by member, so that each finding has its place.

use serde_json::Value;

/// An OCI runtime document whose types were checked before.
#[derive(Clone, Debug)]
pub(super) struct Document(pub(super) Value);

/// An entry of `mounts`.
pub(super) struct Mount<'a> {
    /// Its pointer.
    pub(super) at: String,
    pub(super) target: &'a str,
    pub(super) source: &'a str,
    pub(super) kind: &'a str,
    options: Vec<&'a str>,
}

impl Document {
    /// A text; empty where there is none.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.0.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    /// The items of a list, each with its pointer.
    pub(super) fn items(&self, pointer: &str) -> impl Iterator<Item = (String, &Value)> {
        let items = self.0.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items.enumerate().map(move |(index, item)| (format!("{pointer}/{index}"), item))
    }

    /// The texts of a list, each with its pointer.
    pub(super) fn texts(&self, pointer: &str) -> impl Iterator<Item = (String, &str)> {
        self.items(pointer).filter_map(|(at, item)| Some((at, item.as_str()?)))
    }

    /// The mounts in order.
    pub(super) fn mounts(&self) -> impl Iterator<Item = Mount<'_>> {
        self.items("/mounts").map(|(at, mount)| {
            let text = |key: &str| mount[key].as_str().unwrap_or_default();
            let options = mount["options"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Mount {
                at,
                target: text("destination"),
                source: text("source"),
                kind: text("type"),
                options: options.collect(),
            }
        })
    }

    /// The namespace of this kind that the document asks for.
    pub(super) fn namespace(&self, kind: &str) -> Option<(String, &Value)> {
        self.items("/linux/namespaces").find(|(_, namespace)| namespace["type"] == kind)
    }

    /// Every capability of any set, with one pointer to it.
    pub(super) fn capabilities(&self) -> impl Iterator<Item = (String, &str)> {
        let sets = ["bounding", "effective", "permitted", "inheritable", "ambient"];
        let mut seen = std::collections::BTreeSet::new();
        let all = sets.into_iter().flat_map(|set| {
            let pointer = format!("/process/capabilities/{set}");
            self.texts(&pointer).collect::<Vec<_>>()
        });
        all.filter(move |(_, name)| seen.insert(*name))
    }

    /// The environment as name, value and pointer.
    pub(super) fn env(&self) -> impl Iterator<Item = (String, &str, &str)> {
        self.texts("/process/env").filter_map(|(at, variable)| {
            let (name, value) = variable.split_once('=')?;
            Some((at, name, value))
        })
    }
}

impl Mount<'_> {
    pub(super) fn has(&self, option: &str) -> bool {
        // OCI's recursive forms say the same and more.
        self.options.iter().any(|given| *given == option || given.strip_prefix('r') == Some(option))
    }

    /// A part of the host's tree.
    pub(super) fn is_bind(&self) -> bool {
        self.kind == "bind" || self.options.iter().any(|option| matches!(*option, "bind" | "rbind"))
    }

    pub(super) fn is_writable(&self) -> bool {
        !self.has("ro")
    }

    pub(super) fn may_run(&self) -> bool {
        !self.has("noexec")
    }

    /// The value of `option=value`.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        self.options.iter().find_map(|given| given.strip_prefix(option)?.strip_prefix('='))
    }

    /// `path` is `tree` or lies below it.
    pub(super) fn covers(&self, path: &str) -> bool {
        below(path, self.target)
    }
}

/// Whether `path` is `tree` or lies below it.
pub(super) fn below(path: &str, tree: &str) -> bool {
    std::path::Path::new(path).starts_with(tree)
}
