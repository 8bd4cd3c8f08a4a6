//! Assets: what they are, and that no phase sees one through another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use airlock_policy::embed::{At, Fault};

use super::draft::{Draft, overlap};
use super::resolved::Asset;
use super::schema::{AssetTable, Visibility};

impl Draft<'_> {
    pub(super) fn assets(&mut self, tables: Vec<At<AssetTable>>) -> BTreeMap<String, Asset> {
        let mut assets = BTreeMap::new();
        let mut placed: Vec<(At<String>, PathBuf, Visibility)> = Vec::new();
        for table in tables {
            let AssetTable { name, path: stated, visibility, digest } = table.into_inner();
            let path = stated.as_ref().and_then(|path| self.existing(path));
            let digest = digest.and_then(|digest| {
                let parsed = digest.parse().map_err(|error| Fault::new(format!("`{}`: {error}", *digest)));
                self.ok(&digest, parsed)
            });
            if let (Some(stated), Some(path)) = (stated, &path) {
                self.asset_tree(path);
                self.apart(&stated, path, *visibility, &placed);
                placed.push((stated, path.clone(), *visibility));
            }
            self.name(&name);
            let asset = Asset { path, visibility: *visibility, digest };
            if assets.insert(name.to_string(), asset).is_some() {
                self.at(&name, Fault::new(format!("an asset is called `{}` already", *name)));
            }
        }
        assets
    }

    /// What is visible to few must not lie in what is visible to more, nor hold it.
    fn apart(
        &mut self,
        stated: &At<String>,
        path: &Path,
        visibility: Visibility,
        others: &[(At<String>, PathBuf, Visibility)],
    ) {
        let everyone = ["environment", "instruction.md"];
        let nobody = ["tests", "solution", "task.toml"];
        let (parts, why): (&[&str], _) = match visibility {
            Visibility::Open => (&nobody, "which the agent must not see"),
            Visibility::Validation | Visibility::Hidden => (&everyone, "which the agent sees"),
        };
        if let Some(part) = parts.iter().find(|part| overlap(path, Path::new(part))) {
            let message = format!("{} asset `{}` overlaps `{part}`, {why}", word(visibility), path.display());
            self.at(stated, Fault::new(message).help("move it to a directory of its own, such as `assets/`"));
        }
        let other = others.iter().find(|(_, other, seen)| *seen != visibility && overlap(path, other));
        if let Some((_, other, seen)) = other {
            let (message, other) = (word(visibility), other.display());
            let message =
                format!("{message} asset `{}` overlaps the {} asset `{other}`", path.display(), word(*seen));
            self.at(stated, Fault::new(message).help("keep them in directories of their own"));
        }
    }
}

pub(super) fn word(visibility: Visibility) -> &'static str {
    match visibility {
        Visibility::Open => "open",
        Visibility::Validation => "validation",
        Visibility::Hidden => "hidden",
    }
}
