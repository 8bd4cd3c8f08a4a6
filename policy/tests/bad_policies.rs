//! Every mistake is shown at its line and column, with what to write instead.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use airlock_policy::{Diagnostic, Overrides, Policy, PolicyError, parse_mount_arg};

/// Loads `text` as a file and returns what is wrong with it.
fn diagnostics(text: &str) -> Vec<Diagnostic> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    fs::write(&file, text).unwrap();
    match Policy::load("./p.toml", &Overrides::default(), directory.path()) {
        Err(PolicyError::Invalid(diagnostics)) => diagnostics,
        other => panic!("{text}\nis not refused by a diagnostic: {other:?}"),
    }
}

/// What follows `version = 1` in a file; line and column of the first mistake; parts of message and help.
const BAD: &[(&str, (usize, usize), &str, &str)] = &[
    // Syntax, unknown names, wrong types.
    ("name = ", (2, 8), "string values must be quoted", ""),
    ("[limits]\nmemroy = \"4GiB\"", (3, 1), "unknown key `memroy`", "did you mean `memory`?"),
    ("frobnicate = 1", (2, 1), "unknown key `frobnicate`", "expected one of `version`"),
    ("[limit]", (2, 2), "unknown key `limit`", "did you mean `limits`?"),
    ("[root]\nkind = \"hots\"", (3, 8), "unknown value `hots`", "did you mean `host`?"),
    ("[identity]\nids = \"all\"", (3, 7), "unknown value `all`", "`subids`"),
    ("best_effort = [\"limits\", \"device\"]", (2, 26), "unknown value `device`", "did you mean `devices`?"),
    ("nesting = \"yes\"", (2, 11), "expected `true` or `false`, found the text \"yes\"", ""),
    ("nesting = \"true\"", (2, 11), "expected `true` or `false`, found the text", "without quotes: true"),
    ("[landlock]\nmin_abi = \"6\"", (3, 11), "expected a whole number, found the text", "without quotes: 6"),
    ("[gpu]\ncount = \"a, expected b\"", (3, 9), "found the text \"a, expected b\"", "such as 2"),
    ("[gpu]\ncount = \"1.5\"", (3, 9), "expected a whole number, found the text \"1.5\"", "such as 2"),
    ("[gpu]\ncount = 1.5", (3, 9), "expected a whole number, found 1.5", "such as 2"),
    ("name = 3", (2, 8), "expected text between quotes, found 3", "such as \"name\""),
    ("[root]\nkind = 3", (3, 8), "expected text between quotes", ""),
    ("mount = 5", (2, 9), "expected a list, found 5", "[\"one\", \"two\"]"),
    ("best_effort = \"limits\"", (2, 15), "expected a list, found the text", "in brackets: [\"limits\"]"),
    ("limits = 3", (2, 10), "expected a table, found 3", ""),
    ("limits = []", (2, 10), "expected a table, found a list", "[name]"),
    ("env = [[\"LANG\"], {}]", (2, 7), "expected a table, found a list", "[name]"),
    ("mount = [[\"/usr\"]]", (2, 10), "expected a table, found a list", "[name]"),
    ("[[gpu]]\ncount = 1", (2, 1), "expected a table, found a list", "[name]"),
    ("[mount]\nsource = \"/usr\"", (2, 1), "expected a list, found a table", "[[name]]"),
    ("[env]\nset = [\"A\"]", (3, 7), "expected a table, found a list", ""),
    ("[[mount]]\nsource = \"./data\"", (2, 1), "the key `target` is missing", "add `target = ...`"),
    ("name = \"a\"\nname = \"b\"", (3, 1), "`name` stands here a second time", "leave one"),
    ("[env]\n[limits]\n[env]", (4, 2), "`env` stands here a second time", "join the two"),
    // Root.
    ("[root]\nkind = \"image\"", (3, 8), "`image` is a reserved word", "kind = \"dir\""),
    ("[root]\nkind = \"dir\"", (3, 8), "needs `path`", "path = "),
    ("[root]\npath = \"./rootfs\"", (3, 8), "belongs to root kind `dir`", ""),
    ("[root]\nwritable = \"tmfs\"", (3, 12), "unknown value `tmfs`", "did you mean `tmpfs`?"),
    // Mounts.
    ("[[mount]]\nsource = \"a\"\ntarget = \"data\"", (4, 10), "`data` is not absolute", "\"/data\""),
    ("[[mount]]\nsource = \"a\"\ntarget = \"/\"", (4, 10), "cannot take the place of `/`", "kind = \"dir\""),
    ("[[mount]]\nsource = \"a\"\ntarget = \"/a/../b\"", (4, 10), "has `..` in it", "that is meant"),
    ("[[mount]]\nsource = \"a\"\ntarget = \"/proc/1\"", (4, 10), "at or below /proc", "itself"),
    ("[[mount]]\nsource = \"a\"\ntarget = \"/sys\"", (4, 10), "at or below /sys", "itself"),
    ("[[mount]]\nsource = \"a\"\ntarget = \"//dev/x\"", (4, 10), "at or below /dev", "itself"),
    ("[[mount]]\nsource = \"a\\u0000b\"\ntarget = \"/a\"", (3, 10), "a path with a NUL", ""),
    ("[[mount]]\nsource = \"a\"\ntarget = \"/a\\nb\"", (4, 10), "a newline", ""),
    ("[[mount]]\nsource = \"\"\ntarget = \"/a\"", (3, 10), "an empty path", ""),
    // A read-only /run still lets connect to the container engine's socket (greywall issue 55).
    ("[[mount]]\nsource = \"/run/\"\ntarget = \"/a\"", (3, 10), "sockets of the host's services", "in it"),
    ("[[mount]]\nsource = \"/\"\ntarget = \"/a\"", (3, 10), "sockets of the host's services", "in it"),
    // A host's procfs inside lets file operations be redirected (hakoniwa issue 164).
    ("[[mount]]\nsource = \"/proc\"\ntarget = \"/a\"", (3, 10), "below the host's /proc", "itself"),
    (
        "[[mount]]\nsource = \"a\"\ntarget = \"/a\"\n[[mount]]\nsource = \"b\"\ntarget = \"/a/\"",
        (7, 10),
        "/a is mounted twice",
        "",
    ),
    ("[process]\ncwd = \"work\"", (3, 7), "`work` is not absolute", "\"/work\""),
    // Identity.
    ("name = \"\"", (2, 8), "1 to 64 letters", ""),
    ("[identity]\nuser = \"1000\"", (3, 8), "`1000` is not a user", "\"1000:1000\""),
    ("[identity]\nuser = \"0:70000\"", (3, 8), "`0:70000` is not a user", "0 to 65535"),
    ("[identity]\nhostname = \"a..b\"", (3, 12), "no part of it is empty", ""),
    ("[capabilities]\nkeep = [\"CAP_NET_RAW\", \"net_admin\"]", (3, 24), "`net_admin`", "`CAP_NET_ADMIN`"),
    ("[capabilities]\nkeep = [\"CAP_NET_RAV\"]", (3, 9), "`CAP_NET_RAV`", "did you mean `CAP_NET_RAW`?"),
    // Network.
    ("[network]\nmode = \"broker\"", (3, 8), "`broker` is a reserved word", "`loopback`"),
    ("[network]\nallow = [\"a:1\"]", (3, 9), "belongs to network mode `broker`", ""),
    // Seccomp and Landlock.
    ("[seccomp]\nprofile = \"strct\"", (3, 11), "called `strct`", "did you mean `strict`?"),
    ("[seccomp]\nprofile = \"./none.json\"", (3, 11), "read seccomp profile", ""),
    ("[seccomp]\nallow = [\"ptrace\", \"memfd_crate\"]", (3, 20), "`memfd_crate`", "`memfd_create`"),
    ("[seccomp]\nallow = [\"bpf\"]\ndeny = [\"bpf\"]", (4, 9), "`bpf` is named twice", ""),
    ("[seccomp]\ndeny = [\"execve\"]", (3, 8), "execve, which Airlock itself needs", ""),
    ("[landlock]\nmin_abi = 11", (3, 11), "no ABI 11", "1 to 10"),
    ("[landlock]\nenabled = false\nmin_abi = 4", (3, 11), "contradicts the other keys", "leave one"),
    ("[landlock]\nwrite = [\"/tmp\", \"out\"]", (3, 18), "`out` is not absolute", "\"/out\""),
    // Limits.
    ("[limits]\nmemory = 64", (3, 10), "the size `64` has no unit", "\"64GiB\""),
    ("[limits]\nmemory = \"64Gb\"", (3, 10), "`Gb` is not a unit", "did you mean `GB`?"),
    ("[limits]\nmemory = \"0B\"", (3, 10), "a size of 0", ""),
    ("[limits]\nmemory = \"1KiB\"", (3, 10), "`1KiB` leaves no room", "at least 1MiB"),
    ("[limits]\nmemory = \"1x\"", (3, 10), "`x` is not a unit", "the units are TiB, GiB"),
    ("[limits]\nwall = \"10x\"", (3, 8), "`x` is not a unit", "the units are d, h, m, s, ms"),
    ("[limits]\nmemory = \"much\"", (3, 10), "`much` is not a size", "TiB"),
    ("[limits]\nmemory = true", (3, 10), "expected a number, or a number and its unit", ""),
    ("[limits]\ntmp = \"0GiB\"", (3, 7), "a size of 0", ""),
    ("[limits]\ntmp = \"unlimited\"", (3, 7), "`unlimited` is not a size", "\"64GiB\""),
    ("[limits]\nwall = \"4 hours\"", (3, 8), "`hours` is not a unit of a duration", "d, h, m, s, ms"),
    ("[limits]\nwall = \"0s\"", (3, 8), "ends the command before it starts", ""),
    ("[limits]\ncpus = 0", (3, 8), "`0` is not a number of CPUs", "8.0"),
    ("[limits]\ncpus = -1.5", (3, 8), "`-1.5` is not a number of CPUs", "8.0"),
    ("[limits]\ncpus = nan", (3, 8), "`NaN` is not a number of CPUs", "8.0"),
    ("[limits]\ncpuset = \"3-1\"", (3, 10), "`3-1` is not a list of CPUs", "\"0-3,8\""),
    // Runtimes read 0 as unlimited or as none (youki issue 3634).
    ("[limits]\npids = 0", (3, 8), "`0` is not a number of processes", "from 1"),
    ("[limits]\nnofile = 3.5", (3, 10), "`3.5` is not a number of open files", "whole number"),
    ("[limits]\nio_weight = 1001", (3, 13), "`1001` is not a block I/O weight", "10 to 1000"),
    // GPU.
    ("[gpu]", (2, 1), "asks for nothing", "count = 1"),
    ("[gpu]\ncount = 0", (3, 9), "0 is not a number of GPUs", "leave [gpu] out"),
    ("[gpu]\ncount = 1\ndevices = [\"0\"]", (4, 11), "contradict each other", "leave one"),
    ("[gpu]\ndevices = [\"\"]", (3, 12), "empty", ""),
    ("[gpu]\nshared = true", (2, 1), "asks for nothing", "count = 1"),
    ("[gpu]\ncount = 1\ncapabilities = [\"all\"]", (4, 17), "`all` is not a capability", "compute, utility"),
    ("[gpu]\ncount = 1\nfeatures = [\"mpss\"]", (4, 13), "unknown value `mpss`", "did you mean `mps`?"),
    ("[gpu]\ncount = 1\nmemory = \"20\"", (4, 10), "the size `20` has no unit", ""),
    ("[gpu]\ncount = 1\nenergy = \"0J\"", (4, 10), "an energy of 0 leaves nothing", ""),
    ("[gpu]\ncount = 1\nenergy = \"5mJ\"", (4, 10), "`mJ` is not a unit of an energy", "MJ"),
    (
        "[gpu]\ncount = 1\nutilisation = 80",
        (4, 15),
        "`80` is not a share in whole percent",
        "such as \"80%\"",
    ),
    ("[gpu]\ncount = 1\nutilisation = \"0%\"", (4, 15), "0% leaves nothing", ""),
    ("[gpu]\ncount = 1\nutilisation = \"100%\"", (4, 15), "nothing exceeds 100%", "leave it out"),
    ("[gpu]\ncount = 1\nutilisation = \"180%\"", (4, 15), "`180%` is not a share", ""),
    ("[gpu]\ncount = 1\nutilisation = \"5%\"\nshared = true", (2, 1), "`utilisation` and `shared`", ""),
    ("[gpu]\nnodes = [\"/dev/kfd\"]\nenergy = \"1J\"", (2, 1), "`energy` is of GPUs that", ""),
    ("[gpu]\ncount = 1\nmemory = \"1GiB\"\nshared = true", (2, 1), "`memory` and `shared` contradict", ""),
    ("[gpu]\ncount = 1\nreset = true\nshared = true", (2, 1), "`reset` and `shared` contradict", ""),
    (
        "[gpu]\nnodes = [\"/dev/kfd\"]\nreset = true",
        (2, 1),
        "`reset` is of GPUs that `count` or `devices`",
        "",
    ),
    ("[gpu]\ncdi = [\"gpu\"]", (3, 8), "is not the name of a CDI device", ""),
    ("[gpu]\nnodes = [\"/dev/dri/card0\"]", (3, 10), "is not a render node", "/dev/kfd"),
    ("[gpu]\nnodes = [\"/dev/dri/renderD1/../../sda\"]", (3, 10), "", ""),
    // Environment.
    ("[env]\npass = [\"LANG\", \"A=B\"]", (3, 17), "holds no `=`", ""),
    ("[env]\nset = { \"\" = \"x\" }", (3, 9), "name is not empty", ""),
    ("[env]\nset = { A = \"\\u0000\" }", (3, 13), "NUL", ""),
    ("[env]\npass = [\"A\"]\nset = { A = \"1\" }", (4, 9), "both passed and set", "leave one"),
    // Extends.
    ("extends = \"bas\"", (2, 11), "no built-in policy is called `bas`", "did you mean `base`?"),
    ("extends = \"./p.toml\"", (2, 11), "goes round in a circle: ./p.toml -> ./p.toml", ""),
];

#[test]
fn each_mistake_is_shown_where_it_stands() {
    let mut wrong = Vec::new();
    for (text, at, message, help) in BAD {
        let found = diagnostics(&format!("version = 1\n{text}\n"));
        let first = &found[0];
        let right = (first.place.line, first.place.column) == *at
            && first.message.contains(message)
            && first.help.as_deref().unwrap_or_default().contains(help);
        if !right || found.len() != 1 || first.place.file != "./p.toml" {
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            wrong.push(format!("{text:?}, expected at {at:?}:\n{}", shown.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), BAD.len(), wrong.join("\n\n"));
}

#[test]
fn a_policy_says_its_version() {
    let shown = |text| diagnostics(text)[0].to_string();
    assert!(shown("name = \"x\"").starts_with("./p.toml:1:1: the policy does not say its version"));
    assert!(shown("version = 2").contains("version 2 of the policy language is unknown"));
}

#[test]
fn all_mistakes_of_a_file_are_shown_at_once() {
    let found = diagnostics("version = 1\n[limits]\npids = 0\nmemory = 1\n[identity]\nuser = \"x\"\n");
    let lines: Vec<usize> = found.iter().map(|diagnostic| diagnostic.place.line).collect();
    assert_eq!(lines, [3, 4, 6]);
}

#[test]
fn ten_thousand_mounts_are_refused_in_one_line() {
    let mount = |n| format!("[[mount]]\nsource = \"/a\"\ntarget = \"/m{n}\"\n");
    let text: String = (0..10_000).map(mount).collect();
    let found = diagnostics(&format!("version = 1\n{text}"));
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("10000 mounts; at most 1024"));
    assert_eq!(found[0].place.line, 2 + 3 * 1024);
}

#[test]
fn a_circle_of_files_names_the_whole_chain() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, extends: &str| {
        fs::write(directory.path().join(name), format!("version = 1\nextends = \"{extends}\"\n")).unwrap();
    };
    write("a.toml", "./b.toml");
    write("b.toml", "c.toml");
    write(
        "c.toml",
        "../{}/a.toml".replace("{}", directory.path().file_name().unwrap().to_str().unwrap()).as_str(),
    );
    let error = Policy::load("a.toml", &Overrides::default(), directory.path()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("c.toml:2:11: `extends` goes round in a circle: a.toml -> "), "{text}");
    assert!(text.contains("b.toml -> ") && text.contains("c.toml -> "), "{text}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_who_wants_it() {
    let directory = tempfile::tempdir().unwrap();
    let load =
        |arg: &str| Policy::load(arg, &Overrides::default(), directory.path()).unwrap_err().to_string();
    assert!(load("./none.toml").contains("none.toml: No such file"), "{}", load("./none.toml"));
    fs::write(directory.path().join("a.toml"), "version = 1\nextends = \"./none.toml\"\n").unwrap();
    assert!(load("a.toml").ends_with("(wanted by a.toml:2:11)"), "{}", load("a.toml"));
    fs::write(directory.path().join("b.toml"), b"version = 1\n# \xff\n").unwrap();
    assert!(load("b.toml").contains("line 2 is not UTF-8"));
    fs::write(directory.path().join("c.toml"), vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(load("c.toml").contains("more than 1 MiB"));
    assert!(load("reserch").contains("did you mean `research`?"));
    assert!(load("nothing").contains("base, research, replay"));
}

#[test]
fn a_mistake_on_the_command_line_is_shown_like_one_in_a_file() {
    let overrides = Overrides {
        memory: Some("64".into()),
        mounts: vec![parse_mount_arg("data:/proc/x").unwrap()],
        env: vec!["=x".into()],
        ..Overrides::default()
    };
    let error = Policy::load("base", &overrides, Path::new("/")).unwrap_err().to_string();
    assert!(error.contains("command line:2:10: the size `64` has no unit"), "{error}");
    assert!(error.contains("command line:1:14: nothing can be mounted at or below /proc"), "{error}");
    assert!(error.contains("1 | --mount data:/proc/x\n  |              ^^^^^^^"), "{error}");
    assert!(error.contains("command line:3:7: a variable's name"), "{error}");
}

#[test]
fn a_container_engine_s_own_seccomp_format_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let load = |profile: &str| {
        fs::write(directory.path().join("s.json"), profile).unwrap();
        let text = "version = 1\n[seccomp]\nprofile = \"./s.json\"\n";
        fs::write(directory.path().join("p.toml"), text).unwrap();
        Policy::load("p.toml", &Overrides::default(), directory.path()).map_err(|error| error.to_string())
    };
    let good = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["bpf"], "action": "SCMP_ACT_ERRNO"}]}"#;
    let before = load(good).unwrap().digest().unwrap();
    assert_ne!(load(&good.replace("bpf", "mount")).unwrap().digest().unwrap(), before);
    let conditional = good.replace("\"names\"", "\"includes\": {\"caps\": [\"CAP_BPF\"]}, \"names\"");
    assert!(load(&conditional).unwrap_err().contains("p.toml:3:11: key `includes`"));
    assert!(load("[]").unwrap_err().contains("not a seccomp profile"));
    assert!(load("{").unwrap_err().contains("not a JSON document"));
    let deadly = good.replace("bpf", "read");
    assert!(load(&deadly).unwrap_err().contains("p.toml:3:11: seccomp: the filter answers"));
}
