//! Credentials in reach.

use super::super::document::Mount;
use super::super::rule::{Area, Check, Rule, Severity};

/// Parts of paths that hold credentials.
const FILES: [&str; 18] = [
    "/.ssh",
    "/.aws",
    "/.azure",
    "/.config/gcloud",
    "/.config/gh",
    "/.docker/config.json",
    "/.gnupg",
    "/.kube",
    "/.netrc",
    "/.npmrc",
    "/.pypirc",
    "/.huggingface",
    "/.cache/huggingface/token",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/kubernetes",
    "/etc/ssl/private",
    "/secrets/kubernetes.io",
];

/// Parts of names of variables that hold credentials.
const NAMES: [&str; 8] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL"];

/// Variables by which whoever sets them chooses what code runs.
const LOADERS: [&str; 9] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "PATH",
];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL050",
        area: Area::Secrets,
        severity: Severity::High,
        title: "files with credentials are mounted",
        why: "keys and tokens in them open other machines and accounts to the code inside",
        reference: "OpenHands/software-agent-sdk#4802",
        remedy: "leave them out; let a process outside do what needs them",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                let source = format!("{}/", mount.source.trim_end_matches('/'));
                if FILES.iter().any(|part| source.contains(&format!("{part}/"))) {
                    hits.member(format!("{}/source", mount.at), format!("{} is mounted", mount.source));
                }
            }
        }),
    },
    Rule {
        id: "AL051",
        area: Area::Secrets,
        severity: Severity::Medium,
        title: "a credential in the environment",
        why: "every process inside reads it in its own memory and in /proc/PID/environ, and it stands in a file in clear",
        reference: "inflexa#88, gh-aw-firewall#720",
        remedy: "pass it by a descriptor to the one process that needs it, outside of the sandbox if that can be",
        check: Check::Sandbox(|subject, hits| {
            for (at, name, value) in subject.document().env() {
                if is_secret(name) && !value.is_empty() {
                    hits.member(at, format!("{name} is set"));
                }
            }
        }),
    },
    Rule {
        id: "AL052",
        area: Area::Secrets,
        severity: Severity::Medium,
        title: "the caller's credential is passed on",
        why: "a variable of that name in the caller's environment reaches every process inside",
        reference: "inflexa#88, gh-aw-firewall#720",
        remedy: "leave it out of `env.pass`",
        check: Check::Sandbox(|subject, hits| {
            let pass = subject.policy().into_iter().flat_map(|policy| &policy.env.pass);
            for name in pass.filter(|name| is_secret(name)) {
                hits.clause("env.pass", format!("{name} is passed on"));
            }
        }),
    },
    Rule {
        id: "AL053",
        area: Area::Secrets,
        severity: Severity::Low,
        title: "the caller chooses what code runs",
        why: "loaders and interpreters run what this variable names, so the sandbox depends on who started it",
        reference: "CVE-2025-23266, benchflow#115",
        remedy: "set it in `env.set`, or leave it out",
        check: Check::Sandbox(|subject, hits| {
            let pass = subject.policy().into_iter().flat_map(|policy| &policy.env.pass);
            for name in pass.filter(|name| LOADERS.contains(&name.as_str())) {
                hits.clause("env.pass", format!("{name} is passed on"));
            }
        }),
    },
];

fn is_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    // Names of files and numbers of tokens are no credentials.
    let harmless = name.ends_with("_FILE") || name.starts_with("MAX_") || name.contains("TOKENIZER");
    NAMES.iter().any(|part| name.contains(part)) && !harmless
}
