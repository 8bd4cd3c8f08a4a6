//! Where the demo works: one directory with the bundled task, the agents' files, the runs, and a key of its own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use airlock_grader::receipt::SecretKey;
use airlock_grader::run::remove_directory;
use airlock_runtime::state::{Ending, Sandboxes};
use anyhow::{Context, Result, bail};

use super::agents;

/// Files of `examples/tasks/digits-soup` by their paths there.
macro_rules! bundled {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/tasks/digits-soup/", $path)))),*]
    };
}

/// The task, so that a demo needs nothing but the programs.
const TASK: &[(&str, &[u8])] = bundled! {
    "task.toml"
    "instruction.md"
    "assets/test.csv"
    "assets/validation.csv"
    "environment/data/proxy.csv"
    "environment/fast_eval.py"
    "environment/ingredients/0.json"
    "environment/ingredients/1.json"
    "environment/ingredients/2.json"
    "environment/ingredients/3.json"
    "environment/ingredients/4.json"
    "environment/ingredients/5.json"
    "environment/ingredients/6.json"
    "environment/ingredients/7.json"
    "environment/model.py"
    "environment/soup.py"
    "solution/solve.sh"
    "solution/soup.py"
    "tests/check.py"
    "tests/score.py"
};

/// The hidden rows, by their path in the task.
const HIDDEN: &str = "assets/test.csv";
/// What the honest agent puts in the place of the task's own.
const SOLUTION: &str = "solution/soup.py";
/// What the signing key is called here, and its public half.
const KEY: [&str; 2] = ["signing.key", "signing.pub"];

/// The demo's directory. Dropped, it is removed with all that it holds, unless it was told to stay.
pub(super) struct Place {
    path: PathBuf,
    /// It was there before.
    found: bool,
    stays: bool,
}

impl Place {
    /// Makes the directory, which must not exist or be empty, and fills it. None: in the directory of temporary files.
    pub(super) fn make(path: Option<&Path>) -> Result<Place> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("airlock-demo-{}", random()?)),
        };
        // Below a directory that nobody else can enter, sandboxes may write to what belongs to root.
        let found = match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let mut entries =
                    fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))?;
                if entries.next().is_some() {
                    bail!("{} is not empty; a demo needs a directory of its own", path.display());
                }
                true
            }
            made => made.map(|()| false).with_context(|| format!("making {}", path.display()))?,
        };
        let path = fs::canonicalize(&path).with_context(|| format!("finding {}", path.display()))?;
        let place = Place { path, found, stays: false };
        place.fill()?;
        Ok(place)
    }

    fn fill(&self) -> Result<()> {
        let task = |(path, bytes): &(&str, &'static [u8])| (Path::new("task").join(path), *bytes);
        let solution = TASK.iter().filter(|(path, _)| *path == SOLUTION);
        let agents = agents::SCRIPTS.iter().copied().chain(solution.map(|(_, bytes)| ("soup.py", *bytes)));
        let agents = agents.map(|(name, bytes)| (Path::new("agents").join(name), bytes));
        for (path, bytes) in TASK.iter().map(task).chain(agents) {
            let path = self.path.join(path);
            self.write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// Writes a file that everybody in a sandbox can read, whatever the umask.
    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let new = |directory: &&Path| *directory != self.path;
        for directory in path.ancestors().skip(1).take_while(new).collect::<Vec<_>>().into_iter().rev() {
            if !directory.exists() {
                fs::create_dir(directory)?;
                fs::set_permissions(directory, PermissionsExt::from_mode(0o755))?;
            }
        }
        fs::write(path, bytes)?;
        fs::set_permissions(path, PermissionsExt::from_mode(0o644))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn task(&self) -> PathBuf {
        self.path.join("task")
    }

    pub(super) fn agents(&self) -> PathBuf {
        self.path.join("agents")
    }

    /// Where the hidden rows lie, and one of them.
    pub(super) fn hidden(&self) -> (PathBuf, &'static [u8]) {
        let rows = TASK.iter().find(|(path, _)| *path == HIDDEN).map_or(&b""[..], |(_, bytes)| bytes);
        let row = rows.split(|byte| *byte == b'\n').next().unwrap_or_default();
        (self.task().join(HIDDEN), row)
    }

    /// The key that signs all runs of this demo; made where it is missing.
    pub(super) fn key(&self) -> Result<SecretKey> {
        let [secret, public] = KEY.map(|name| self.path.join(name));
        if secret.exists() {
            return Ok(SecretKey::load(&secret, None)?);
        }
        let key = SecretKey::generate(&secret)?;
        fs::write(&public, key.public().to_pem()).with_context(|| format!("writing {}", public.display()))?;
        Ok(key)
    }

    /// Where the public half of the key is.
    pub(super) fn public_key(&self) -> PathBuf {
        self.path.join(KEY[1])
    }

    /// Lets everything stay but the secret key.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.stays = true;
        let secret = self.path.join(KEY[0]);
        match fs::remove_file(&secret) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", secret.display()))
            }
            _ => Ok(()),
        }
    }

    fn remove(&self) -> Result<()> {
        // Their monitors write into it until they have ended.
        let sandboxes = Sandboxes::open()?;
        for record in sandboxes.list()? {
            if record.report.is_some_and(|report| report.path.starts_with(&self.path)) {
                // It has ended by itself meanwhile, or is told by the directory that cannot be removed.
                let _ = sandboxes.end(&record.id, Ending::Kill);
            }
        }
        if !self.found {
            return Ok(remove_directory(&self.path)?);
        }
        let failed = || format!("removing {}", self.path.display());
        for entry in fs::read_dir(&self.path).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            if path.is_dir() {
                remove_directory(&path)?
            } else {
                fs::remove_file(&path).with_context(failed)?
            }
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Err(error) = self.remove() {
            crate::output::error(&error);
        }
    }
}

/// 48 random bits.
fn random() -> Result<String> {
    let mut bytes = [0; 6];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("getrandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn the_task_is_bundled_whole() {
        let task = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
        let mut expected: Vec<String> =
            files(&task).iter().map(|path| path.strip_prefix(&task).unwrap().display().to_string()).collect();
        let mut bundled: Vec<String> = TASK.iter().map(|(path, _)| (*path).to_owned()).collect();
        expected.sort();
        bundled.sort();
        assert_eq!(bundled, expected);
    }

    #[test]
    fn a_place_goes_unless_it_is_kept_and_takes_nothing_else_along() {
        let tmp = std::env::temp_dir().join(format!("airlock-place-{}", random().unwrap()));
        fs::create_dir(&tmp).unwrap();
        let (new, found) = (tmp.join("new"), tmp.join("found"));
        fs::create_dir(&found).unwrap();
        for (path, stays) in [(&new, false), (&found, true)] {
            let place = Place::make(Some(path)).unwrap();
            assert!(place.hidden().0.is_file() && place.agents().join("soup.py").is_file());
            assert!(Place::make(Some(path)).is_err(), "it is not empty any more");
            drop(place);
            assert_eq!(path.exists(), stays);
        }
        let mut place = Place::make(Some(&found)).unwrap();
        place.key().unwrap();
        place.keep().unwrap();
        drop(place);
        assert!(found.join("signing.pub").is_file() && !found.join("signing.key").exists());
        fs::remove_dir_all(tmp).unwrap();
    }
}
