//! Runs, and copies of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use airlock_grader::receipt::PublicKey;
use airlock_grader::run::verify::{Verified, VerifyError, verify};
use airlock_tests::{Ended, Site};

/// A closed run of a bundled task, far from its task.
pub(crate) struct Original {
    pub(crate) site: Site,
    pub(crate) run: PathBuf,
}

/// A copy of a run, to be spoiled.
pub(crate) struct Copy {
    folder: tempfile::TempDir,
    pub(crate) key: PublicKey,
}

impl Original {
    /// Runs a bundled task with its own solution.
    pub(crate) fn new(site: Site, task: &str, solve: &str) -> Original {
        let (place, agent) = (site.path("task"), site.folder("agent"));
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks").join(task);
        copy(&example, &place);
        copy(&example.join("solution"), &agent);
        fs::write(agent.join("solve.sh"), solve).unwrap();
        let made = site.path("made");
        let words = [
            "run",
            "task",
            "--run",
            "made",
            "--agent-files",
            "agent",
            "--agent",
            "sh",
            "/opt/agent/solve.sh",
        ];
        let ended = site.lead(words).end();
        assert_eq!(ended.code, 0, "{ended}");
        // Nothing but the run and the key is needed from here on.
        fs::remove_dir_all(place).unwrap();
        fs::remove_dir_all(agent).unwrap();
        let run = site.path("elsewhere");
        fs::rename(made, &run).unwrap();
        Original { site, run }
    }

    /// A run under the lifecycle `replay`, which ends with three scored checkpoints.
    pub(crate) fn soup(site: Site) -> Original {
        let solve = "set -e\ncp /opt/agent/soup.py /workspace/soup.py\npython3 soup.py /output\n\
                     /opt/harness/validate.sh soup-12 --wait\n/opt/harness/submit.sh\n";
        Original::new(site, "digits-soup", solve)
    }

    /// A run under the lifecycle `direct`.
    pub(crate) fn direct(site: Site) -> Original {
        let solve = "set -e\ncp /opt/agent/train.py /workspace/train.py\npython3 train.py\n\
                     /opt/harness/validate.sh . --wait\n/opt/harness/submit.sh\nsleep 60\n";
        Original::new(site, "digits-direct", solve)
    }

    /// Where the key is made that signs.
    pub(crate) fn key(&self, extension: &str) -> PathBuf {
        self.site.path(".config/airlock/signing").with_extension(extension)
    }

    pub(crate) fn public_key(&self) -> PublicKey {
        PublicKey::from_pem(&fs::read_to_string(self.key("pub")).unwrap()).unwrap()
    }

    pub(crate) fn copy(&self) -> Copy {
        let folder = tempfile::Builder::new().prefix("airlock-test-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy(&self.run, &folder.path().join("run"));
        Copy { folder, key: self.public_key() }
    }

    /// `airlock task verify`, as the caller.
    pub(crate) fn command(&self, run: &Path) -> Ended {
        self.site.airlock_with(["task".as_ref(), "verify".as_ref(), run.as_os_str()])
    }
}

impl Copy {
    pub(crate) fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.run().join(name)
    }

    pub(crate) fn verify(&self) -> Result<Verified, VerifyError> {
        verify(&self.run(), &self.key)
    }

    /// Checks that it does not verify, and that what is said has all of these.
    #[track_caller]
    pub(crate) fn is_refused(&self, pieces: &[&str]) {
        let error = self.verify().expect_err("it was spoiled");
        assert!(!error.is_failure(), "{error:?}");
        let words = error.to_string();
        for piece in pieces {
            assert!(words.contains(piece), "`{piece}` is not in: {words}");
        }
    }

    /// Its files by their paths in it, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let (run, mut found) = (self.run(), Vec::new());
        list(&run, &run, &mut found);
        found.sort();
        found
    }

    /// The only file with this end.
    pub(crate) fn one(&self, end: &str) -> String {
        let found: Vec<_> = self.files().into_iter().filter(|path| path.ends_with(end)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }

    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(name)).unwrap();
        change(&mut bytes);
        fs::write(self.path(name), bytes).unwrap();
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(root, &path, found);
        } else {
            found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// A copy that all may read and its owner may change.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
            let executable = fs::metadata(&from).unwrap().permissions().mode() & 0o111;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o644 | executable)).unwrap();
        }
    }
}
