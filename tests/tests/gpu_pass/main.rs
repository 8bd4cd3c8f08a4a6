//! GPUs passed through, on a stand-in for NVIDIA's driver: nodes with real numbers, behind which this kernel has nothing.
//! Opening one that is let through gives ENXIO; one that the device filter refuses, EPERM.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod documents;
mod explain;
mod inside;
mod modules;
mod others;
mod roots;
mod scenarios;

use std::collections::BTreeSet;

use airlock_tests::{Gpus, Outcome, Run, Site};

/// PCI addresses of the scenario `eight`, by index.
const PCI: [&str; 8] = [
    "0000:19:00.0",
    "0000:3b:00.0",
    "0000:4c:00.0",
    "0000:5d:00.0",
    "0000:9b:00.0",
    "0000:bb:00.0",
    "0000:cb:00.0",
    "0000:db:00.0",
];

/// A site on a host with GPUs, and why there is none.
struct Place {
    site: Site,
    gpus: Gpus,
    script: String,
}

impl Place {
    fn new(scenario: &str) -> Result<Place, String> {
        let gpus = Gpus::new(scenario)?;
        let site = Site::new();
        let mut script = gpus.script().to_owned();
        if !site.caller().is_root() {
            // The kernel gives a user a new /proc where a whole one can be seen.
            let whole = site.path("whole");
            script += &format!("\nmkdir -p {}\nmount -t proc proc {0}", whole.display());
        }
        Ok(Place { site, gpus, script })
    }

    /// A run with these GPUs: an index, or what `--gpus` takes.
    fn run(&self, gpus: &str, clauses: &str) -> Run<'_> {
        let run = self.site.run().policy(self.site.policy(clauses));
        let run = match gpus.parse::<usize>() {
            // A number alone is a count.
            Ok(index) => run.flag("--gpus", PCI[index]),
            Err(_) if gpus.is_empty() => run,
            Err(_) => run.flag("--gpus", gpus),
        };
        run.where_root_did(&self.script)
    }

    /// One action of the probe with these GPUs.
    #[track_caller]
    fn tries<const N: usize>(&self, gpus: &str, action: [&str; N]) -> Outcome {
        self.run(gpus, "").probe(action)
    }

    /// The names in a directory.
    #[track_caller]
    fn lists(&self, gpus: &str, directory: &str) -> BTreeSet<String> {
        self.tries(gpus, ["list", directory]).done().split(' ').map(String::from).collect()
    }

    /// What a shell prints inside.
    #[track_caller]
    fn prints(&self, gpus: &str, script: &str) -> String {
        self.run(gpus, "").end(["/bin/sh", "-c", script]).succeeded().stdout
    }
}
