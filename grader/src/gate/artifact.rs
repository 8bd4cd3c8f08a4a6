//! The artifact gate: would loading this tree run code that the candidate wrote?

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::keys::{Listener, listen};
use super::{Refusal, Rule, has_suffix, is_pickle, read_entries, read_header, scan_pickles};
use crate::Digest;
use crate::seal::{FileEntry, SealError, Sealed, TreePath, io_failure};

/// What an artifact may hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactRules {
    /// Suffixes of code, without the dot.
    pub code: Vec<String>,
    /// Keys that no JSON file may have, at any depth: each makes some loader import code.
    pub config_keys: Vec<String>,
    /// Digests of the chat templates that are allowed, such as the start model's. A template is a program.
    pub chat_templates: Vec<Digest>,
    /// What to do about pickles.
    pub pickles: Pickles,
    /// Suffixes of files that loaders unpickle, without the dot. What holds a pickle or a zip archive by its bytes counts
    /// too, whatever its name.
    pub pickle_suffixes: Vec<String>,
    /// What a pickle may import where pickles are scanned.
    pub imports: Vec<String>,
    /// Bytes of one JSON file.
    pub max_config_bytes: u64,
}

/// What to do about pickles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pickles {
    /// No pickle at all.
    Refuse,
    /// Pickles that import known names only, alone or in an archive of `torch.save`.
    Scan,
}

impl Default for ArtifactRules {
    fn default() -> Self {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let storages =
            ["Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool"];
        let mut imports: Vec<String> = own(&[
            "collections.OrderedDict",
            "torch.Size",
            "torch._utils._rebuild_parameter",
            "torch._utils._rebuild_tensor_v2",
        ]);
        imports.extend(storages.map(|kind| format!("torch.{kind}Storage")));
        Self {
            code: own(&[
                "py", "pyc", "pyo", "pyd", "pyi", "pyx", "pyz", "pth", "egg", "whl", "so", "dylib", "dll",
                "exe", "o", "a", "sh", "bash", "js", "mjs", "jar", "class", "lua", "rb", "pl", "cu", "ptx",
                "cubin", "ipynb",
            ]),
            config_keys: own(&[
                "auto_map",
                "custom_code",
                "custom_pipelines",
                "custom_generate",
                "trust_remote_code",
            ]),
            chat_templates: Vec::new(),
            pickles: Pickles::Refuse,
            pickle_suffixes: own(&["bin", "pt", "pkl", "pickle", "ckpt", "joblib", "npy", "npz", "dill"]),
            imports,
            max_config_bytes: 64 << 20,
        }
    }
}

/// Checks sealed trees by [`ArtifactRules`].
#[derive(Debug, Clone, Default)]
pub struct ArtifactGate {
    rules: ArtifactRules,
}

impl ArtifactGate {
    /// A gate with these rules.
    pub fn new(rules: ArtifactRules) -> Self {
        Self { rules }
    }

    /// Everything that the rules refuse in a tree. An error means that it could not be read.
    pub fn check(&self, tree: &Sealed) -> Result<Vec<Refusal>, SealError> {
        let mut refusals = Vec::new();
        for (path, entry) in tree.manifest().files() {
            if has_suffix(path, &self.rules.code) {
                refusals.push(Refusal::new(Rule::Code, path, "the suffix of code"));
                continue;
            }
            let mut file = tree.open(path)?;
            let mut start = Vec::new();
            let read = Read::by_ref(&mut file)
                .take(4)
                .read_to_end(&mut start)
                .and_then(|_| file.seek(SeekFrom::Start(0)));
            read.map_err(io_failure("reading", path))?;
            let suffix = |suffix: &str| has_suffix(path, &[suffix.to_owned()]);
            let archive = start == *b"PK\x03\x04";
            if archive
                || matches!(start[..], [0x80, 2..=5, ..])
                || has_suffix(path, &self.rules.pickle_suffixes)
                || holds_pickle(&mut file, path)?
            {
                refusals.extend(self.pickle(path, file, archive));
            } else if suffix("safetensors") {
                let header = read_header(&file);
                refusals.extend(
                    header.err().map(|error| Refusal::new(Rule::Safetensors, path, error.to_string())),
                );
            } else if suffix("jinja") || suffix("jinja2") {
                self.template(path, entry.digest, &mut refusals);
            } else if suffix("json") {
                self.config(path, entry, file, &mut refusals);
            }
        }
        Ok(refusals)
    }

    fn pickle(&self, path: &TreePath, file: File, archive: bool) -> Option<Refusal> {
        if self.rules.pickles == Pickles::Refuse {
            return Some(Refusal::new(Rule::Pickle, path, "pickles are refused"));
        }
        let found = match (archive, ends_as_archive(&file)) {
            (true, _) => self.archive(file),
            (false, false) => self.stream(BufReader::new(file)),
            (false, true) => Err("a pickle that some readers take for an archive".into()),
        };
        found.err().map(|why| Refusal::new(Rule::Pickle, path, why))
    }

    /// Scans every pickle of an archive, by whatever name; the other entries must be raw data.
    fn archive(&self, file: File) -> Result<(), String> {
        let entries = read_entries(&file).map_err(|error| error.to_string())?;
        let mut pickles = 0;
        for entry in entries {
            let name = entry.name.to_lowercase();
            if self.rules.code.iter().any(|suffix| name.ends_with(&format!(".{}", suffix.to_lowercase()))) {
                return Err("an archive that holds code".into());
            }
            let part = || -> Result<_, String> {
                let mut file = &file;
                file.seek(SeekFrom::Start(entry.start)).map_err(|error| error.to_string())?;
                Ok(BufReader::new(file.take(entry.len)))
            };
            let mut start = Vec::new();
            part()?.take(6).read_to_end(&mut start).map_err(|error| error.to_string())?;
            if start.starts_with(b"PK\x03\x04") {
                return Err("an archive within an archive".into());
            }
            // Arrays of objects are pickles behind a header (numpy.lib.format).
            if start == *b"\x93NUMPY" {
                return Err("an archive that holds an array of numpy's".into());
            }
            if name.ends_with(".pkl") || is_pickle(part()?) {
                pickles += 1;
                self.stream(part()?)?;
            }
        }
        if pickles == 0 { Err("an archive without a pickle".into()) } else { Ok(()) }
    }

    fn stream(&self, stream: impl BufRead) -> Result<(), String> {
        let facts = scan_pickles(stream).map_err(|error| format!("not a pickle: {error}"))?;
        if facts.unknown {
            return Err("a pickle that imports what it does not name".into());
        }
        let strangers = facts.imports.iter().filter(|import| !self.rules.imports.contains(import)).count();
        if strangers > 0 {
            Err(format!("a pickle with {strangers} imports that are not allowed"))
        } else {
            Ok(())
        }
    }

    fn config(&self, path: &TreePath, entry: &FileEntry, file: File, refusals: &mut Vec<Refusal>) {
        if entry.size > self.rules.max_config_bytes {
            let why = format!("{} bytes, more than {}", entry.size, self.rules.max_config_bytes);
            refusals.push(Refusal::new(Rule::FileSize, path, why));
            return;
        }
        let mut found = Config { gate: self, path, refusals };
        if listen(BufReader::new(file), &mut found).is_err() {
            refusals.push(Refusal::new(Rule::ConfigKey, path, "not one JSON document"));
        }
    }

    fn template(&self, path: &TreePath, digest: Digest, refusals: &mut Vec<Refusal>) {
        if !self.rules.chat_templates.contains(&digest) {
            refusals.push(Refusal::new(Rule::ChatTemplate, path, "a chat template that is not known"));
        }
    }
}

/// Whether a file holds a pickle; it is back at its start afterwards.
fn holds_pickle(file: &mut File, path: &TreePath) -> Result<bool, SealError> {
    let found = is_pickle(BufReader::new(&mut *file));
    file.seek(SeekFrom::Start(0)).map_err(io_failure("reading", path))?;
    Ok(found)
}

/// Whether a reader that looks for the end record of a zip archive, as Python's `zipfile` does, would find one.
fn ends_as_archive(file: &File) -> bool {
    const FARTHEST: u64 = 22 + 0xffff;
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let mut tail = vec![0; usize::try_from(size.min(FARTHEST)).unwrap_or_default()];
    let read = file.read_exact_at(&mut tail, size.saturating_sub(FARTHEST));
    read.is_err() || tail.windows(4).any(|window| window == b"PK\x05\x06")
}

struct Config<'a> {
    gate: &'a ArtifactGate,
    path: &'a TreePath,
    refusals: &'a mut Vec<Refusal>,
}

impl Listener for Config<'_> {
    fn key(&mut self, key: &str) {
        if let Some(known) = self.gate.rules.config_keys.iter().find(|known| *known == key) {
            let why = format!("the key `{known}` makes loaders run code");
            self.refusals.push(Refusal::new(Rule::ConfigKey, self.path, why));
        }
    }

    fn string(&mut self, keys: &[String], value: &str) {
        // A template stands under the key itself or, named, in a list of templates.
        let name = keys.last().is_some_and(|key| key == "name");
        if keys.iter().any(|key| key == "chat_template") && !name {
            self.gate.template(self.path, Digest::of(value.as_bytes()), self.refusals);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::super::zip::tests::archive;
    use super::*;
    use crate::seal::{Limits, Store, seal};

    const SAFE: &[u8] = b"\x02\0\0\0\0\0\0\0{}";
    const TENSORS: &[u8] = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(tRccollections\nOrderedDict\n)R.";
    const EVIL_0: &[u8] = b"cposix\nsystem\n(S'true'\ntR.";
    const EVIL: &[u8] = b"\x80\x02cposix\nsystem\n(X\x04\0\0\0truetR.";

    fn refused(rules: &ArtifactRules, files: &[(&str, &[u8])]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        for (path, bytes) in files {
            let path = dir.path().join("tree").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let tree =
            seal(File::open(dir.path().join("tree")).unwrap().as_fd(), &store, &Limits::default()).unwrap();
        let refusals = ArtifactGate::new(rules.clone()).check(&tree).unwrap();
        refusals.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_model_of_data_alone_passes() {
        let files: [(&str, &[u8]); 4] = [
            ("model.safetensors", SAFE),
            (
                "config.json",
                br#"{"architectures": ["LlamaForCausalLM"], "nested": [{"a": 1.5e3}, null, true]}"#,
            ),
            ("tokenizer/vocab.txt", b"a\nb\n"),
            ("README.md", b"auto_map"),
        ];
        assert_eq!(refused(&ArtifactRules::default(), &files), [""; 0]);
    }

    /// AI4AI-Bench's RAGEN gate explains the exploit: `auto_map` makes a loader import a module of the checkpoint.
    #[test]
    fn refuses_code_and_configuration_that_imports_it() {
        for (path, bytes, expected) in [
            ("modeling.py", &b""[..], "modeling.py: the suffix of code [code]"),
            ("deep/er/Evil.PYC", b"", "deep/er/Evil.PYC: the suffix of code [code]"),
            ("kernel.so", b"", "kernel.so: the suffix of code [code]"),
            (
                "config.json",
                br#"{"auto_map": {}}"#,
                "config.json: the key `auto_map` makes loaders run code [config-key]",
            ),
            (
                "c.json",
                br#"{"a": [{"auto_map": 1}]}"#,
                "c.json: the key `auto_map` makes loaders run code [config-key]",
            ),
            (
                "c.json",
                br#"{"\u0061uto_map": 1}"#,
                "c.json: the key `auto_map` makes loaders run code [config-key]",
            ),
            (
                "c.json",
                br#"{"trust_remote_code": false}"#,
                "c.json: the key `trust_remote_code` makes loaders run code [config-key]",
            ),
            ("c.json", br#"{"x": 1} {"auto_map": 1}"#, "c.json: not one JSON document [config-key]"),
            ("c.json", b"{'auto_map': 1}", "c.json: not one JSON document [config-key]"),
            (
                "model.safetensors",
                b"\xff\0\0\0\0\0\0\0{}",
                "model.safetensors: a header of 255 bytes [safetensors]",
            ),
        ] {
            assert_eq!(refused(&ArtifactRules::default(), &[(path, bytes)]), [expected]);
        }
        // Twice the same key: a reader that keeps only the last would see neither the first nor its value.
        let twice = br#"{"auto_map": {"AutoModel": "evil.M"}, "auto_map": {}}"#;
        assert_eq!(refused(&ArtifactRules::default(), &[("config.json", twice)]).len(), 2);
    }

    #[test]
    fn only_known_chat_templates_pass() {
        let template = "{{ messages }}";
        let rules = ArtifactRules {
            chat_templates: vec![Digest::of(template.as_bytes())],
            ..ArtifactRules::default()
        };
        let evil = "{{ ''.__class__ }}";
        let plain = |text: &str| format!(r#"{{"chat_template": "{text}"}}"#);
        let listed =
            |text: &str| format!(r#"{{"chat_template": [{{"name": "default", "template": "{text}"}}]}}"#);
        for form in [plain, listed] {
            assert_eq!(refused(&rules, &[("tokenizer_config.json", form(template).as_bytes())]), [""; 0]);
            let expected = "tokenizer_config.json: a chat template that is not known [chat-template]";
            assert_eq!(refused(&rules, &[("tokenizer_config.json", form(evil).as_bytes())]), [expected]);
        }
        assert_eq!(refused(&rules, &[("chat_template.jinja", template.as_bytes())]), [""; 0]);
        assert_eq!(refused(&rules, &[("chat_template.jinja", evil.as_bytes())]).len(), 1);
    }

    /// vllm#12366, anemoi-core#1416, transformers#43140: `torch.load` of an untrusted file.
    #[test]
    fn refuses_pickles_whatever_they_are_called() {
        let zipped = archive(&[("m/data.pkl", TENSORS)]);
        for (path, bytes) in [
            ("model.bin", TENSORS),
            ("model.pt", &zipped),
            ("weights.dat", TENSORS),
            ("x.safetensors", EVIL),
            ("weights.txt", EVIL_0),
        ] {
            let expected = format!("{path}: pickles are refused [pickle]");
            assert_eq!(refused(&ArtifactRules::default(), &[(path, bytes)]), [expected]);
        }
    }

    #[test]
    fn scans_pickles_where_they_are_allowed() {
        let rules = ArtifactRules { pickles: Pickles::Scan, ..ArtifactRules::default() };
        let zipped =
            |pickle| archive(&[("m/data.pkl", pickle), ("m/data/0", &[0; 16]), ("m/version", b"3\n")]);
        assert_eq!(refused(&rules, &[("a.ckpt", TENSORS), ("b.pt", &zipped(TENSORS))]), [""; 0]);
        let with_code = archive(&[("m/data.pkl", TENSORS), ("m/code/__torch__.py", b"")]);
        let beside = |name, bytes: &[u8]| archive(&[("m/data.pkl", TENSORS), (name, bytes)]);
        assert_eq!(refused(&rules, &[("a.pt", &beside("m/data/1", b"\x80\x02\0\x3c"))]), [""; 0]);
        let prefixed = [TENSORS, &zipped(EVIL)].concat();
        for (bytes, why) in [
            (EVIL.to_vec(), "a pickle with 1 imports that are not allowed"),
            (zipped(EVIL), "a pickle with 1 imports that are not allowed"),
            (with_code, "an archive that holds code"),
            // A loader may take another entry than torch does.
            (beside("m/extra", EVIL), "a pickle with 1 imports that are not allowed"),
            (beside("m/data/1", EVIL_0), "a pickle with 1 imports that are not allowed"),
            (beside("m/inner.zip", &zipped(TENSORS)), "an archive within an archive"),
            (beside("m/a", b"\x93NUMPY\x01\0"), "an archive that holds an array of numpy's"),
            (archive(&[("m/data/0", b"")]), "an archive without a pickle"),
            (zipped(EVIL)[..60].to_vec(), "the archive does not end with an end record without comment"),
            (b"\x80\x04\x8c\x06system\x93.".to_vec(), "a pickle that imports what it does not name"),
            (b"raw".to_vec(), "not a pickle: "),
        ] {
            let refusals = refused(&rules, &[("model.pt", &bytes)]);
            assert!(refusals.len() == 1 && refusals[0].contains(why), "{refusals:?}, not {why}");
        }
        // Read from the front, this is a harmless pickle; read from the back, an archive with another one.
        assert_eq!(
            refused(&rules, &[("model.pt", &prefixed)]).len(),
            1,
            "a file that readers see differently"
        );
    }
}
