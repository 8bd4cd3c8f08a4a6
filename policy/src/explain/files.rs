//! Files: mounts first, then permissions, Landlock and seccomp, in the order in which the kernel asks them.

use std::path::Path;

use airlock_runtime::plan::Access;

use super::question::Act;
use super::tree::{Entry, Way};
use super::{Answer, Explained, Refusal};

/// A right in words, the list that narrows it, and where it stands in a rule.
type Right = (&'static str, &'static str, fn(&Access) -> bool);

/// `O_WRONLY | O_CREAT`.
const WRITING: u64 = 0o101;

impl Explained<'_> {
    pub(super) fn file(&self, act: Act, path: &Path) -> Answer {
        let Some(way) = self.walk(path) else {
            return self.no("root.kind", format!("{} leads in a circle of links", path.display()));
        };
        let node = way.entry.as_ref().is_some_and(|entry| entry.device);
        let origin = self.spec.airlock.origins.get(&way.path).filter(|_| node);
        let clause = origin.map_or_else(|| Self::clause(&way).to_owned(), Clone::clone);
        if let Some(closed) = &way.closed {
            return self.no(&clause, format!("{} may not be searched: EACCES", closed.display()));
        }
        if let Some(answer) = self.masked(act, &way) {
            return answer;
        }
        let found = match &way.entry {
            Some(entry) => self.existing(act, &way, entry),
            None => self.missing(act, &way),
        };
        match found {
            Ok(why) => self.yes(&clause, why),
            Err(refusal) => self.refusal(refusal),
        }
    }

    /// The clause that puts something there, or nothing: of `/` itself that is what it is, not where writes go.
    fn clause<'b>(way: &Way<'b>) -> &'b str {
        if way.mount.target == Path::new("/") { "root.kind" } else { &way.mount.clause }
    }

    /// What Airlock covers in /proc.
    fn masked(&self, act: Act, way: &Way<'_>) -> Option<Answer> {
        let linux = self.spec.oci.linux().as_ref()?;
        let under =
            |paths: &Option<Vec<String>>| paths.iter().flatten().any(|path| way.path.starts_with(path));
        let itself = linux.masked_paths().iter().flatten().any(|path| way.path == Path::new(path));
        if under(linux.masked_paths()) && way.entry.is_some() && !(itself && act == Act::See) {
            return Some(self.no("root", format!("{} is masked", way.path.display())));
        }
        (act == Act::Write && under(linux.readonly_paths()))
            .then(|| self.no("root", format!("{} is read-only", way.path.display())))
    }

    fn existing(&self, act: Act, way: &Way<'_>, entry: &Entry) -> Result<String, Refusal> {
        let clause = Self::clause(way);
        let path = way.path.display();
        match act {
            Act::See => return Ok(format!("{path} is there")),
            Act::Exec if entry.directory => {
                return Err(Refusal::new(clause, format!("{path} is a directory")));
            }
            Act::Write if entry.directory => {
                return Err(Refusal::new(clause, format!("{path} is a directory")));
            }
            _ => {}
        }
        self.mounted(act, way, entry.device)?;
        let (bit, word) = match act {
            Act::Read | Act::See => (4, "read"),
            Act::Write => (2, "written"),
            Act::Exec => (1, "run"),
        };
        if entry.may & bit == 0 {
            return Err(Refusal::new(clause, format!("by its mode, {path} may not be {word}: EACCES")));
        }
        let wanted = match act {
            Act::Read | Act::See if entry.directory => Access { list: true, ..Access::default() },
            Act::Read | Act::See => Access { read: true, ..Access::default() },
            Act::Write => Access { write: true, ..Access::default() },
            Act::Exec => Access { exec: true, ..Access::default() },
        };
        self.landlocked(&way.path, wanted)?;
        self.called(act)?;
        Ok(format!("{path} may be {word}"))
    }

    /// What is not there can be made, and then run.
    fn missing(&self, act: Act, way: &Way<'_>) -> Result<String, Refusal> {
        let clause = Self::clause(way);
        let path = way.path.display();
        let absent = |why: &str| Refusal::new(clause, format!("nothing is at {path}{why}: ENOENT"));
        if matches!(act, Act::See | Act::Read) {
            return Err(absent(""));
        }
        let Some(parent) = &way.parent else {
            return Err(absent(", nor is its directory there"));
        };
        if !parent.directory {
            return Err(absent(", whose parent is no directory"));
        }
        let mount = way.mount;
        if act == Act::Exec && mount.flags.read_only {
            let message =
                format!("nothing is at {path}, and {} is read-only: ENOENT", mount.target.display());
            return Err(Refusal::new(&mount.clause, message));
        }
        self.mounted(Act::Write, way, false)?;
        if parent.may & 2 == 0 {
            let errno = if act == Act::Exec { "ENOENT" } else { "EACCES" };
            let message = format!("nothing is at {path}, and its directory may not be written: {errno}");
            return Err(Refusal::new(clause, message));
        }
        self.landlocked(&way.path, Access { write: true, create: true, ..Access::default() })?;
        self.called(Act::Write)?;
        if act == Act::Write {
            return Ok(format!("{path} may be made"));
        }
        self.mounted(Act::Exec, way, false)?;
        self.landlocked(&way.path, Access { exec: true, ..Access::default() })?;
        self.called(Act::Exec)?;
        Ok(format!("what is put at {path} may be run"))
    }

    /// The mount's flags.
    fn mounted(&self, act: Act, way: &Way<'_>, device: bool) -> Result<(), Refusal> {
        let mount = way.mount;
        let (place, clause) = (mount.target.display(), &mount.clause);
        match act {
            // A device node is written to without a write to the file system that it lies in.
            Act::Write if mount.flags.read_only && !device => {
                Err(Refusal::new(clause, format!("{place} is read-only: EROFS")))
            }
            Act::Exec if mount.flags.no_exec => {
                Err(Refusal::new(clause, format!("{place} is noexec: EACCES")))
            }
            _ => Ok(()),
        }
    }

    /// Rights that some rule at or above the path grants.
    fn landlocked(&self, path: &Path, wanted: Access) -> Result<(), Refusal> {
        let Some(rules) = self.landlock() else { return Ok(()) };
        let granted = |right: fn(&Access) -> bool| {
            rules.iter().any(|rule| path.starts_with(&rule.path) && right(&rule.access))
        };
        let rights: [Right; 5] = [
            ("read", "landlock.read", |access| access.read),
            ("run", "landlock.read", |access| access.exec),
            ("list", "landlock.read", |access| access.list),
            ("write", "landlock.write", |access| access.write),
            ("make files in", "landlock.write", |access| access.create),
        ];
        let lacking = rights.into_iter().find(|(_, _, right)| right(&wanted) && !granted(*right));
        let Some((word, clause, _)) = lacking else { return Ok(()) };
        let stated = match clause {
            "landlock.read" => self.policy.landlock.read.is_some(),
            _ => self.policy.landlock.write.is_some(),
        };
        let clause = if stated { clause } else { "landlock.enabled" };
        Err(Refusal::new(clause, format!("Landlock lets nobody {word} {}: EACCES", path.display())))
    }

    /// The calls by which it is done.
    fn called(&self, act: Act) -> Result<(), Refusal> {
        let refused = match act {
            Act::Read | Act::See => self.refused("openat", &[]),
            Act::Write => self.refused("openat", &[0, 0, WRITING, 0o644]),
            Act::Exec => self.refused("execve", &[]),
        };
        refused.map_or(Ok(()), Err)
    }
}
