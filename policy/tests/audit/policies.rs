//! Policies, as what follows the first lines of a file that extends `strict`.

use std::fs;

use airlock_policy::audit::{Finding, Subject};

/// Rule; a policy that trips it; the nearest one that does not.
pub(crate) const PAIRS: &[(&str, &str, &str)] = &[
    ("AL009", "nesting = true", "nesting = false"),
    ("AL012", "[identity]\ngroups = \"auto\"", "[identity]\ngroups = \"none\""),
    ("AL013", "[identity]\nids = \"direct\"", "[identity]\nids = \"range\""),
    ("AL020", "[capabilities]\nkeep = [\"CAP_SYS_PTRACE\"]", ""),
    ("AL022", "[capabilities]\nkeep = [\"CAP_MKNOD\"]", ""),
    (
        "AL030",
        "[[mount]]\nsource = \"/etc\"\ntarget = \"/a\"",
        "[[mount]]\nsource = \"/etc/alternatives\"\ntarget = \"/a\"",
    ),
    (
        "AL032",
        "[[mount]]\nsource = \"/srv/x/s\"\ntarget = \"/s\"\nsocket = true",
        "[[mount]]\nsource = \"/srv/x/s\"\ntarget = \"/s\"",
    ),
    (
        "AL040",
        "[[mount]]\nsource = \"/home/u/project/.git\"\ntarget = \"/a\"\nmode = \"rw\"",
        "[[mount]]\nsource = \"/home/u/project/.git\"\ntarget = \"/a\"",
    ),
    (
        "AL041",
        "[[mount]]\nsource = \"/srv/a\"\ntarget = \"/a\"\nmode = \"rw\"\nexec = true",
        "[[mount]]\nsource = \"/srv/a\"\ntarget = \"/a\"\nmode = \"rw\"",
    ),
    ("AL042", "[env.set]\nPYTHONPATH = \"/usr/lib/x:/tmp/x\"", "[env.set]\nPYTHONPATH = \"/usr/lib/x\""),
    ("AL044", "[root]\nwritable = \"./upper\"", "[root]\nwritable = \"tmpfs\""),
    ("AL045", "[root]\ntmp_exec = true", "[root]\ntmp_exec = false"),
    (
        "AL050",
        "[[mount]]\nsource = \"/home/u/.ssh\"\ntarget = \"/a\"",
        "[[mount]]\nsource = \"/home/u/.sshx\"\ntarget = \"/a\"",
    ),
    ("AL051", "[env.set]\nHF_TOKEN = \"x\"", "[env.set]\nMAX_TOKENS = \"x\"\nHF_TOKEN = \"\""),
    ("AL052", "[env]\npass = [\"OPENAI_API_KEY\"]", "[env]\npass = [\"OPENAI_BASE\"]"),
    ("AL053", "[env]\npass = [\"LD_PRELOAD\"]", "[env]\npass = [\"LANG\"]"),
    ("AL060", "[seccomp]\nprofile = \"none\"", ""),
    ("AL063", "[seccomp]\nallow = [\"io_uring_setup\"]", ""),
    ("AL064", "[seccomp]\nallow = [\"clone3\"]", ""),
    ("AL065", "[seccomp]\nallow = [\"unshare\"]", ""),
    ("AL066", "[seccomp]\nallow = [\"keyctl\"]", ""),
    ("AL067", "[seccomp]\nallow = [\"socket\"]", "[seccomp]\nprofile = \"default\""),
    ("AL068", "[seccomp]\nallow = [\"ptrace\"]", ""),
    ("AL069", "[seccomp]\nallow = [\"ioctl\"]", "[seccomp]\nprofile = \"default\""),
    ("AL070", "[seccomp]\nallow = [\"mount_setattr\"]", ""),
    ("AL071", "[seccomp]\nallow = [\"open_by_handle_at\"]", ""),
    ("AL072", "[seccomp]\nallow = [\"bpf\"]", ""),
    ("AL073", "[seccomp]\nallow = [\"finit_module\"]", ""),
    ("AL074", "[seccomp]\nallow = [\"openat2\"]", ""),
    ("AL075", "[seccomp]\nallow = [\"chmod\"]", ""),
    ("AL080", "[landlock]\nenabled = false", "[landlock]\nenabled = true"),
    ("AL081", "[landlock]\nmin_abi = 0", "[landlock]\nmin_abi = 1"),
    ("AL082", "[landlock]\nwrite = [\"/usr/lib\"]", "[landlock]\nwrite = [\"/tmp/x\"]"),
    (
        "AL094",
        "[gpu]\ncount = 1\ncapabilities = [\"graphics\"]",
        "[gpu]\ncount = 1\ncapabilities = [\"compute\"]",
    ),
    ("AL098", "[gpu]\ncount = 1\nshared = true", "[gpu]\ncount = 1"),
    ("AL099", "[gpu]\ncount = 1\nfeatures = [\"mps\"]", "[gpu]\ncount = 1\nfeatures = [\"gds\"]"),
    ("AL093", "[gpu]\ndevices = [\"all\"]", "[gpu]\ndevices = [\"0\"]"),
    ("AL096", "best_effort = [\"devices\"]", ""),
    ("AL100", "[limits]\nmemory = \"unlimited\"", "[limits]\nmemory = \"1GiB\""),
    ("AL101", "[limits]\npids = \"unlimited\"", "[limits]\npids = 10"),
    ("AL102", "[limits]\nwall = \"unlimited\"", "[limits]\nwall = \"1h\""),
    ("AL103", "[limits]\ncpus = \"unlimited\"", "[limits]\ncpus = \"unlimited\"\ncpuset = \"0\""),
    ("AL104", "[limits]\nswap = \"unlimited\"", "[limits]\nswap = \"1GiB\""),
    ("AL106", "[limits]\nshm = \"1GiB\"", "[limits]\nshm = \"512MiB\""),
    ("AL107", "[limits]\ncore = \"1MiB\"", "[limits]\ncore = \"0B\""),
    ("AL108", "best_effort = [\"limits\"]", ""),
    ("AL110", "[network]\nmode = \"loopback\"", "[network]\nmode = \"none\""),
];

/// What is found in a policy file with this in it.
pub(crate) fn findings(text: &str) -> Vec<Finding> {
    let directory = tempfile::tempdir().unwrap();
    let head = "version = 1\nname = \"p\"\nextends = \"strict\"\n";
    fs::write(directory.path().join("p.toml"), format!("{head}{text}\n")).unwrap();
    Subject::policy_named("./p.toml", directory.path()).unwrap().findings()
}

/// The place is that of the value in the file which sets it.
#[test]
fn a_finding_stands_where_the_clause_does() {
    let found = findings("[limits]\ncore = \"1MiB\"\n[[mount]]\nsource = \"/etc\"\ntarget = \"/a\"");
    let places: Vec<_> =
        found.iter().map(|found| (found.rule, &*found.file, found.line, found.column)).collect();
    assert_eq!(places, [("AL030", "./p.toml", 7, 10), ("AL107", "./p.toml", 5, 8)]);
    assert_eq!(found[0].clause, "[[mount]] /a");
}
