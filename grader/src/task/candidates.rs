//! What a candidate may be: editable paths, checkpoints, gates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use airlock_policy::Size;
use airlock_policy::embed::{At, Fault, Quantity, did_you_mean};
use globset::{GlobBuilder, GlobMatcher};

use super::draft::Draft;
use super::resolved::{Asset, Checkpoints, Editable, Gates, MountSource, Phase};
use super::schema::{
    ArtifactTable, CheckpointsTable, EditableTable, GatesTable, PatchTable, PhaseName, Submission, Visibility,
};
use crate::Digest;
use crate::gate::{ArtifactRules, PatchRules};

/// What DESIGN and the benchmarks keep of a replay.
/// What running Python leaves behind, unless a task says otherwise. `*` takes a directory with all below it along.
pub(super) const IGNORED: [&str; 1] = ["**/__pycache__"];

const USUAL_CHECKPOINTS: u32 = 3;

impl Draft<'_> {
    /// `files` are those of the frozen source.
    pub(super) fn editable(&mut self, table: &At<EditableTable>, files: &[PathBuf]) -> Option<Editable> {
        let before = self.findings.len();
        let allow_create = table.allow_create.unwrap_or(true);
        let mut component = |globs: &[At<String>]| {
            for glob in globs {
                let Some(matcher) = self.glob(glob) else { continue };
                if !allow_create && !files.iter().any(|file| matcher.is_match(file)) {
                    let fault = Fault::new(format!("`{}` matches no file of environment/", **glob));
                    self.at(glob, fault.help("nothing can be edited there, since `allow_create` is false"));
                }
            }
            globs.iter().map(|text| text.to_string()).collect::<Vec<_>>()
        };
        let (data, trainer) = (component(&table.data), component(&table.trainer));
        let harness = component(&table.harness);
        let ignore = match &table.ignore {
            None => IGNORED.map(str::to_owned).to_vec(),
            Some(globs) => {
                for glob in globs {
                    self.glob(glob);
                }
                globs.iter().map(|text| text.to_string()).collect()
            }
        };
        let editable = Editable { allow_create, data, trainer, harness, ignore };
        if editable.globs().next().is_none() {
            let fault = Fault::new("nothing may be edited");
            self.at(table, fault.help("trainer = [\"**\"] opens the whole workspace"));
        }
        (self.findings.len() == before).then_some(editable)
    }

    fn glob(&mut self, glob: &At<String>) -> Option<GlobMatcher> {
        let parts = glob.split('/');
        if glob.starts_with('/') || parts.clone().any(|part| matches!(part, "" | "." | "..")) {
            let fault = Fault::new(format!("`{}` matches no path", **glob));
            self.at(glob, fault.help("globs are relative, without `.`, `..` and empty parts: \"src/**\""));
            return None;
        }
        let built = GlobBuilder::new(glob).literal_separator(true).build();
        let built = built.map_err(|error| Fault::new(format!("`{}`: {}", **glob, error.kind())));
        self.ok(glob, built).map(|glob| glob.compile_matcher())
    }

    pub(super) fn checkpoints(
        &mut self,
        table: &CheckpointsTable,
        score: Option<&Phase>,
        assets: &BTreeMap<String, Asset>,
    ) -> Option<Checkpoints> {
        let before = self.findings.len();
        let limit = match &table.limit {
            Some(limit) => self.count(limit, 1, 100, "number of checkpoints")?,
            None => USUAL_CHECKPOINTS,
        };
        let parsed = table.name.parse().map_err(|error| {
            Fault::new(format!("`{}` names no checkpoint: {error}", *table.name))
                .help("name = \"step-{progress}\"")
        });
        let name = self.ok(&table.name, parsed);
        let payload = match &table.payload {
            Some(globs) => {
                if globs.is_empty() {
                    self.at(globs, Fault::new("an empty payload").help("leave it out to take every file"));
                }
                for glob in globs.iter() {
                    self.glob(glob);
                }
                globs.iter().map(|text| text.to_string()).collect()
            }
            None => vec!["**".to_owned()],
        };
        let command = table.command.as_ref().and_then(|command| self.command(command));
        if let Some(command) = &command {
            let mounts = score.map(|score| score.mounts.as_slice()).unwrap_or_default();
            self.scripts("[airlock.checkpoints]", PhaseName::Validate, command, mounts);
        }
        let hidden = |source: &MountSource| match source {
            MountSource::Asset(name) => {
                assets.get(name).is_some_and(|asset| asset.visibility == Visibility::Hidden)
            }
            MountSource::Run(_) | MountSource::Task(_) => false,
        };
        let validation = command.zip(score).map(|(command, score)| {
            let mut phase = Phase { name: PhaseName::Validate, command, verdict: None, ..score.clone() };
            phase.mounts.retain(|mount| !hidden(&mount.source));
            phase
        });
        (self.findings.len() == before).then_some(Checkpoints { limit, name: name?, payload, validation })
    }

    pub(super) fn gates(
        &mut self,
        table: GatesTable,
        editable: Option<&Editable>,
        submission: Submission,
        assets: &BTreeMap<String, Asset>,
    ) -> Gates {
        for name in table.rows.iter().filter(|name| !assets.contains_key(name.as_str())) {
            let fault = Fault::new(format!("no asset is called `{}`", **name));
            let near = did_you_mean(name, assets.keys().map(String::as_str));
            self.at(name, fault.help(near.unwrap_or_else(|| "declare it in [[airlock.asset]]".into())));
        }
        Gates {
            rows: table.rows.iter().map(|text| text.to_string()).collect(),
            patch: self.patch(table.patch, editable),
            artifact: self.artifact(table.artifact, submission),
        }
    }

    fn patch(&mut self, table: PatchTable, editable: Option<&Editable>) -> PatchRules {
        let mut rules = PatchRules::default();
        if let Some(editable) = editable {
            rules.editable = editable.globs().map(str::to_owned).collect();
            rules.allow_create = editable.allow_create;
            rules.data = editable.data.clone();
        }
        rules.allow_executable = table.allow_executable.unwrap_or(rules.allow_executable);
        for (size, rule) in [
            (&table.max_file, &mut rules.max_file_bytes),
            (&table.max_total, &mut rules.max_total_bytes),
            (&table.max_line, &mut rules.max_line_bytes),
        ] {
            if let Some(bytes) = size.as_ref().and_then(|size| self.size(size)) {
                *rule = bytes;
            }
        }
        for (count, rule) in [
            (&table.max_files, &mut rules.max_files),
            (&table.max_encoded, &mut rules.max_encoded),
            (&table.max_data_rows, &mut rules.max_data_rows),
            (&table.max_numbers, &mut rules.max_numbers),
        ] {
            if let Some(count) = count.as_ref().and_then(|count| self.count(count, 0, u32::MAX, "count")) {
                *rule = count.into();
            }
        }
        rules.weights = table.weights.unwrap_or(rules.weights);
        rules
    }

    fn size(&mut self, size: &At<Quantity>) -> Option<u64> {
        let parsed = airlock_policy::embed::size(size);
        self.ok(size, parsed).map(|Size(bytes)| bytes)
    }

    fn artifact(&mut self, table: ArtifactTable, submission: Submission) -> ArtifactRules {
        let mut rules = ArtifactRules::default();
        if table.allow_code.unwrap_or(submission == Submission::Tree) {
            rules.code.clear();
        }
        rules.pickles = table.pickles.map_or(rules.pickles, At::into_inner);
        for digest in &table.chat_templates {
            let parsed = digest.parse::<Digest>();
            let parsed = parsed.map_err(|error| Fault::new(format!("`{}`: {error}", **digest)));
            rules.chat_templates.extend(self.ok(digest, parsed));
        }
        rules
    }
}
