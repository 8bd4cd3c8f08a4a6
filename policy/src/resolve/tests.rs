use std::path::Path;

use airlock_runtime::spec::{Node, RootKind, Writable};
use oci_spec::runtime::{LinuxNamespaceType, LinuxSeccompAction, PosixRlimitType};

use std::path::PathBuf;

use super::*;
use crate::host::HostEntry;
use crate::overrides::{Overrides, parse_mount_arg};

fn debian() -> HostTree {
    use HostEntry::{Dir, File, Link};
    let entries = [
        ("/usr", Dir),
        ("/opt", Dir),
        ("/bin", Link("usr/bin".into())),
        ("/lib64", Link("usr/lib64".into())),
        ("/etc/alternatives", Dir),
        ("/etc/ssl/certs", Dir),
        ("/etc/java-17-openjdk", Dir),
        ("/etc/ld.so.cache", File),
        ("/etc/localtime", Link("/usr/share/zoneinfo/Etc/UTC".into())),
        ("/etc/os-release", Link("../usr/lib/os-release".into())),
        ("/etc/timezone", Link("/run/timezone".into())),
    ];
    let system = entries.into_iter().map(|(path, entry)| (path.into(), entry)).collect();
    HostTree { system, ..HostTree::default() }
}

fn input() -> ResolveInput {
    ResolveInput {
        args: vec!["python3".into(), "-c".into(), "1".into()],
        caller_env: BTreeMap::from([("LANG".into(), "de_DE".into()), ("SECRET".into(), "x".into())]),
        host: debian(),
    }
}

fn load(arg: &str, overrides: &Overrides) -> Policy {
    Policy::load(arg, overrides, Path::new("/home/ann")).unwrap()
}

fn base() -> Policy {
    load("base", &Overrides::default())
}

/// `base` with lines added.
fn extended(text: &str) -> Policy {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("p.toml"), format!("version = 1\n{text}\n")).unwrap();
    Policy::load("p.toml", &Overrides::default(), directory.path()).unwrap()
}

fn resolved(policy: &Policy) -> Spec {
    resolve(policy, &input()).unwrap()
}

/// Destinations in attach order.
fn destinations(spec: &Spec) -> Vec<&str> {
    spec.oci.mounts().iter().flatten().map(|mount| mount.destination().to_str().unwrap()).collect()
}

fn options(spec: &Spec, destination: &str) -> Vec<String> {
    let mounts = spec.oci.mounts().as_ref().unwrap();
    let mount = mounts.iter().find(|mount| mount.destination() == Path::new(destination)).unwrap();
    mount.options().clone().unwrap()
}

fn actions(spec: &Spec, call: &str) -> Vec<LinuxSeccompAction> {
    let seccomp = spec.oci.linux().as_ref().unwrap().seccomp().as_ref().unwrap();
    let rules = seccomp.syscalls().iter().flatten();
    rules.filter(|rule| rule.names().iter().any(|name| name == call)).map(|rule| rule.action()).collect()
}

#[test]
fn every_built_in_policy_resolves_and_grants_nothing_beyond_base() {
    for name in crate::builtin::names() {
        let spec = resolved(&load(name, &Overrides::default()));
        let process = spec.oci.process().as_ref().unwrap();
        assert_eq!(spec.airlock.policy, name);
        assert_eq!(spec.airlock.network, spec::Network::None, "{name}");
        assert_eq!(spec.airlock.landlock.as_ref().unwrap().min_abi, 1, "{name}");
        assert!(process.capabilities().as_ref().unwrap().bounding().as_ref().unwrap().is_empty(), "{name}");
        assert!(spec.oci.linux().as_ref().unwrap().seccomp().is_some(), "{name}");
        assert!(!spec.airlock.nesting && spec.airlock.best_effort.is_empty(), "{name}");
    }
}

#[test]
fn base_has_its_own_namespaces_no_capabilities_and_limits() {
    let spec = resolved(&base());
    let linux = spec.oci.linux().as_ref().unwrap();
    let namespaces = linux.namespaces().as_ref().unwrap();
    assert_eq!(namespaces.len(), 7);
    assert!(namespaces.iter().all(|namespace| namespace.path().is_none()));
    assert!(namespaces.iter().any(|namespace| namespace.typ() == LinuxNamespaceType::Network));

    let process = spec.oci.process().as_ref().unwrap();
    assert_eq!((process.user().uid(), process.user().gid()), (1000, 1000));
    assert_eq!(process.no_new_privileges(), Some(true));
    let capabilities = process.capabilities().as_ref().unwrap();
    for set in [
        capabilities.bounding(),
        capabilities.effective(),
        capabilities.inheritable(),
        capabilities.permitted(),
        capabilities.ambient(),
    ] {
        assert!(set.as_ref().unwrap().is_empty());
    }
    let rlimits = process.rlimits().as_ref().unwrap();
    assert_eq!((rlimits[0].soft(), rlimits[0].hard()), (1, 1), "a piped core pattern ignores 0");
    let pending = rlimits.iter().find(|limit| limit.typ() == PosixRlimitType::RlimitSigpending).unwrap();
    assert_eq!((pending.soft(), pending.hard()), (1024, 1024));

    let resources = linux.resources().as_ref().unwrap();
    let memory = resources.memory().as_ref().unwrap();
    assert_eq!((memory.limit(), memory.swap()), (Some(4 << 30), Some(4 << 30)), "no swap on top");
    assert_eq!(resources.pids().as_ref().unwrap().limit(), 1024);
    assert!(resources.cpu().is_none());
    let devices = resources.devices().as_ref().unwrap();
    assert!(!devices[0].allow() && devices[0].typ().is_none() && devices[0].major().is_none());
    assert!(devices[1..].iter().all(|rule| rule.access().as_deref() == Some("rw") && rule.major().is_some()));
    assert!(linux.masked_paths().as_ref().unwrap().contains(&"/proc/kcore".to_owned()));
    assert!(linux.readonly_paths().as_ref().unwrap().contains(&"/proc/sys".to_owned()));
}

#[test]
fn the_host_root_shows_programs_and_none_of_the_host_s_data() {
    let spec = resolved(&base());
    assert_eq!(
        destinations(&spec),
        [
            "/dev",
            "/dev/pts",
            "/dev/shm",
            "/etc/alternatives",
            "/etc/java-17-openjdk",
            "/etc/ssl/certs",
            "/home/user",
            "/opt",
            "/proc",
            "/run",
            "/tmp",
            "/usr",
        ]
    );
    assert_eq!(options(&spec, "/usr"), ["rbind", "rprivate", "rro", "rnosuid", "rnodev", "rexec"]);
    assert!(options(&spec, "/etc/ssl/certs").contains(&"rnoexec".to_owned()));
    assert!(options(&spec, "/tmp").contains(&"size=1073741824".to_owned()));
    assert_eq!(spec.airlock.root, RootKind::Host);
    assert_eq!(spec.airlock.writable, Writable::None);
    assert_eq!(spec.oci.root().as_ref().unwrap().readonly(), Some(true));

    let skeleton = &spec.airlock.skeleton;
    let link = |path: &str, target: &str| Node::Link { path: path.into(), target: target.into() };
    assert!(skeleton.contains(&link("/bin", "usr/bin")));
    assert!(skeleton.contains(&link("/etc/os-release", "../usr/lib/os-release")));
    assert!(skeleton.contains(&link("/var/tmp", "/tmp")));
    let cache = PathBuf::from("/etc/ld.so.cache");
    assert!(skeleton.contains(&Node::Copy { path: cache.clone(), source: cache }));
    let paths: Vec<&Path> = skeleton.iter().map(node_path).collect();
    assert!(!paths.contains(&Path::new("/etc/timezone")), "its target below /run is not shown");
    let passwd = skeleton.iter().find_map(|node| match node {
        Node::File { path, content, .. } if path == Path::new("/etc/passwd") => Some(content.as_str()),
        _ => None,
    });
    assert!(passwd.unwrap().contains("\nuser:x:1000:1000:user:/home/user:/bin/sh\n"));
}

#[test]
fn a_skeleton_makes_parents_first_and_nothing_twice() {
    let spec = resolved(&base());
    let mut made = vec![PathBuf::from("/")];
    for node in &spec.airlock.skeleton {
        let path = node_path(node);
        assert!(made.contains(&path.parent().unwrap().to_owned()), "{} has no parent yet", path.display());
        assert!(!made.contains(&path.to_owned()), "{} is made twice", path.display());
        made.push(path.to_owned());
    }
}

fn node_path(node: &Node) -> &Path {
    match node {
        Node::Dir { path, .. }
        | Node::Link { path, .. }
        | Node::File { path, .. }
        | Node::Copy { path, .. }
        | Node::LoaderCache { path, .. } => path,
    }
}

#[test]
fn every_mount_names_the_clause_it_comes_from() {
    let mut overrides = Overrides { workspace: Some("w".into()), ..Overrides::default() };
    overrides.mounts.push(parse_mount_arg("/srv/d:/data").unwrap());
    let spec = resolved(&load("research", &overrides));
    for destination in destinations(&spec) {
        assert!(spec.airlock.origins.contains_key(Path::new(destination)), "{destination}");
    }
    assert_eq!(spec.airlock.origins[Path::new("/data")], "[[mount]] /data");
    assert_eq!(spec.airlock.origins[Path::new("/dev/shm")], "limits.shm");
}

#[test]
fn the_workspace_is_writable_runs_programs_and_is_the_working_directory() {
    let overrides = Overrides { workspace: Some("./project".into()), ..Overrides::default() };
    let spec = resolved(&load("base", &overrides));
    assert_eq!(options(&spec, "/workspace"), ["rbind", "rprivate", "rrw", "rnosuid", "rnodev", "rexec"]);
    assert_eq!(spec.oci.process().as_ref().unwrap().cwd(), Path::new("/workspace"));
    let mounts = spec.oci.mounts().as_ref().unwrap();
    let workspace = mounts.iter().find(|mount| mount.destination().ends_with("workspace")).unwrap();
    assert_eq!(workspace.source().as_deref(), Some(Path::new("/home/ann/project")));
    let cwd = resolved(&base()).oci.process().as_ref().unwrap().cwd().clone();
    assert_eq!(cwd, Path::new("/home/user"));
}

#[test]
fn a_mount_is_read_only_and_runs_nothing_unless_the_policy_says_so() {
    let policy = extended("[[mount]]\nsource = \"/a\"\ntarget = \"/data\"");
    let wanted = ["rbind", "rprivate", "rro", "rnosuid", "rnodev", "rnoexec"];
    assert_eq!(options(&resolved(&policy), "/data"), wanted);
}

#[test]
fn a_mount_takes_the_place_of_what_airlock_would_put_there_or_below() {
    let spec = resolved(&extended(
        "[[mount]]\nsource = \"/a\"\ntarget = \"/home\"\n[[mount]]\nsource = \"/b\"\ntarget = \"/etc/ssl/certs\"",
    ));
    let destinations = destinations(&spec);
    assert!(!destinations.contains(&"/home/user"));
    assert_eq!(destinations.iter().filter(|destination| **destination == "/etc/ssl/certs").count(), 1);
    assert!(!spec.airlock.origins.contains_key(Path::new("/home/user")));
}

#[test]
fn a_mount_below_another_comes_after_it() {
    let spec = resolved(&extended(
        "[[mount]]\nsource = \"/a\"\ntarget = \"/m/deep\"\n[[mount]]\nsource = \"/b\"\ntarget = \"/m\"",
    ));
    let destinations = destinations(&spec);
    let at = |wanted| destinations.iter().position(|destination| *destination == wanted).unwrap();
    assert!(at("/m") < at("/m/deep"));
}

#[test]
fn a_mount_below_a_link_is_refused_at_its_place() {
    let policy = extended("[[mount]]\nsource = \"/a\"\ntarget = \"/bin/tool\"");
    let error = resolve(&policy, &input()).unwrap_err().to_string();
    assert!(error.contains("p.toml:4:10: /bin is a link to usr/bin inside"), "{error}");
}

/// What could not be read was taken for absent, and programs were not found for want of `/lib64`.
#[test]
fn a_path_of_the_host_that_nobody_could_look_at_is_no_absent_one() {
    let unknown = [("/lib64".to_owned(), "Input/output error".to_owned())].into();
    let error = resolve(&base(), &ResolveInput { host: HostTree { unknown, ..debian() }, ..input() });
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "root.kind: /lib64 of this host cannot be looked at: Input/output error");
}

#[test]
fn a_missing_source_is_refused_at_its_place_or_left_out_if_optional() {
    let mount = |optional: bool| {
        extended(&format!("[[mount]]\nsource = \"/no/such\"\ntarget = \"/data\"\noptional = {optional}"))
    };
    let resolve_here = |policy: &Policy| {
        let host = HostTree::read().with_sources(policy);
        resolve(policy, &ResolveInput { host, ..input() })
    };
    let error = resolve_here(&mount(false)).unwrap_err().to_string();
    assert!(error.contains("p.toml:3:10: the host has no /no/such"), "{error}");
    assert!(error.contains("3 | source = \"/no/such\""), "{error}");
    assert!(!destinations(&resolve_here(&mount(true)).unwrap()).contains(&"/data"));
    let present = extended("[[mount]]\nsource = \"/usr\"\ntarget = \"/data\"\noptional = true");
    assert!(destinations(&resolve_here(&present).unwrap()).contains(&"/data"));
}

#[test]
fn a_source_is_relative_to_the_file_that_states_it() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let mount = |target| format!("[[mount]]\nsource = \"./x\"\ntarget = \"{target}\"\n");
    std::fs::write(below.join("low.toml"), format!("version = 1\n{}", mount("/low"))).unwrap();
    let top = format!("version = 1\nextends = \"below/low.toml\"\n{}", mount("/top"));
    std::fs::write(directory.path().join("top.toml"), top).unwrap();
    let policy = Policy::load("./top.toml", &Overrides::default(), directory.path()).unwrap();
    let real = directory.path().canonicalize().unwrap();
    let sources: Vec<&Path> = policy.mount.iter().map(|mount| mount.source.as_path()).collect();
    assert_eq!(sources, [real.join("below/x"), real.join("x")]);
}

#[test]
fn layers_merge_mounts_by_target_and_variables_by_name_and_replace_lists() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write(
        "low.toml",
        "version = 1\nname = \"low\"\n[[mount]]\nsource = \"/a\"\ntarget = \"/m\"\n\
         [env]\npass = [\"A\", \"B\"]\nset = { X = \"1\", Y = \"1\" }\n",
    );
    write(
        "top.toml",
        "version = 1\nextends = \"low.toml\"\n[[mount]]\nsource = \"/b\"\ntarget = \"/m\"\nmode = \"rw\"\n\
         [env]\npass = [\"C\"]\nset = { Y = \"2\" }\n",
    );
    let overrides = Overrides { env: vec!["D".into(), "Z=3".into()], ..Overrides::default() };
    let policy = Policy::load("top.toml", &overrides, directory.path()).unwrap();
    assert_eq!(policy.name, "top", "a name is not inherited");
    assert_eq!(policy.mount.len(), 1);
    assert_eq!(policy.mount[0].source, Path::new("/b"));
    assert_eq!(policy.env.pass, ["C", "D"], "the command line adds to the list");
    let set: Vec<(&str, &str)> = policy.env.set.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(set, [("X", "1"), ("Y", "2"), ("Z", "3")]);
}

#[test]
fn only_named_variables_of_the_caller_are_passed_on() {
    let env = resolved(&base()).oci.process().as_ref().unwrap().env().clone().unwrap();
    assert!(env.contains(&"LANG=de_DE".to_owned()));
    assert!(env.contains(&"HOME=/home/user".to_owned()));
    assert!(!env.iter().any(|variable| variable.starts_with("SECRET")));
    let none = resolved(&load("scorer", &Overrides::default()));
    let env = none.oci.process().as_ref().unwrap().env().clone().unwrap();
    assert!(env.contains(&"LANG=C.UTF-8".to_owned()));
}

#[test]
fn limits_are_compiled_to_the_kernel_s_units() {
    let spec = resolved(&extended(
        "[limits]\nmemory = \"1GiB\"\nswap = \"unlimited\"\ncpus = 1.5\ncpuset = \"0-1\"\npids = \"unlimited\"\n\
         io_weight = 500\nwall = \"90s\"\nnofile = 128",
    ));
    let resources = spec.oci.linux().as_ref().unwrap().resources().clone().unwrap();
    assert_eq!(resources.memory().as_ref().unwrap().swap(), Some(-1));
    let cpu = resources.cpu().as_ref().unwrap();
    assert_eq!(
        (cpu.quota(), cpu.period(), cpu.cpus().as_deref()),
        (Some(150_000), Some(100_000), Some("0-1"))
    );
    assert!(resources.pids().is_none());
    assert_eq!(resources.block_io().as_ref().unwrap().weight(), Some(500));
    assert_eq!(spec.airlock.wall_ms, Some(90_000));
    assert_eq!(spec.oci.process().as_ref().unwrap().rlimits().as_ref().unwrap()[1].soft(), 128);
}

#[test]
fn the_seccomp_lists_and_nesting_change_the_profile() {
    use LinuxSeccompAction::{ScmpActAllow, ScmpActErrno, ScmpActLog};
    let spec = resolved(&extended("[seccomp]\nallow = [\"ptrace\"]\ndeny = [\"getcwd\"]\nlog = [\"uname\"]"));
    assert_eq!(actions(&resolved(&base()), "ptrace"), [], "not allowed by the profile");
    assert_eq!(actions(&resolved(&base()), "getcwd"), [ScmpActAllow]);
    assert_eq!(actions(&spec, "ptrace"), [ScmpActAllow]);
    assert_eq!(actions(&spec, "getcwd"), [ScmpActErrno]);
    assert_eq!(actions(&spec, "uname"), [ScmpActLog]);
    assert_eq!(actions(&resolved(&base()), "unshare"), []);
    assert_eq!(actions(&resolved(&extended("nesting = true")), "unshare"), [ScmpActAllow]);
    let none = resolved(&extended("[seccomp]\nprofile = \"none\"\n[landlock]\nenabled = false"));
    assert!(none.oci.linux().as_ref().unwrap().seccomp().is_none() && none.airlock.landlock.is_none());
}

#[test]
fn a_directory_as_root_gets_no_skeleton() {
    let spec = resolved(&extended("[root]\nkind = \"dir\"\npath = \"/srv/rootfs\"\nwritable = \"./upper\""));
    assert_eq!(spec.airlock.root, RootKind::Dir("/srv/rootfs".into()));
    assert!(spec.airlock.skeleton.is_empty());
    assert!(!destinations(&spec).contains(&"/usr"));
    assert!(destinations(&spec).contains(&"/proc"));
    assert!(matches!(spec.airlock.writable, Writable::Dir { path } if path.ends_with("upper")));
    assert_eq!(spec.oci.root().as_ref().unwrap().readonly(), Some(false));
}

#[test]
fn an_empty_root_has_no_program_of_the_host() {
    let spec = resolved(&extended("[root]\nkind = \"empty\""));
    assert_eq!(spec.airlock.root, RootKind::Empty);
    assert_eq!(destinations(&spec), ["/dev", "/dev/pts", "/dev/shm", "/home/user", "/proc", "/run", "/tmp"]);
}

#[test]
fn gpus_are_asked_for_in_the_specs_words() {
    let overrides = Overrides { gpus: Some("2".into()), ..Overrides::default() };
    let spec = resolve(&load("base", &overrides), &input()).unwrap();
    let gpu = spec.airlock.gpu.unwrap();
    assert_eq!((gpu.count, gpu.shared, gpu.skip_hooks), (Some(2), false, false));
    let text = "[gpu]\ndevices = [\"GPU-1\"]\nshared = true\nfeatures = [\"mps\"]\ncdi = [\"a.com/b=c\"]\n\
        cdi_hooks = \"skip\"\nnodes = [\"/dev/dri/renderD128\"]";
    let gpu = resolved(&extended(text)).airlock.gpu.unwrap();
    assert_eq!(gpu.devices, ["GPU-1"]);
    assert_eq!(gpu.cdi, ["a.com/b=c"]);
    assert_eq!(gpu.features, [spec::GpuFeature::Mps].into());
    assert!(gpu.shared && gpu.skip_hooks && gpu.nodes.len() == 1);
    let gpu =
        resolved(&extended("[gpu]\ncount = 1\nmemory = \"20GiB\"\nreset = true\n")).airlock.gpu.unwrap();
    assert_eq!((gpu.memory, gpu.reset), (Some(20 << 30), true));
    let gpu = resolved(&extended("[gpu]\ncount = 1\nenergy = \"2kWh\"\nutilisation = \"80%\"\n")).airlock.gpu;
    let gpu = gpu.unwrap();
    assert_eq!((gpu.energy, gpu.utilisation), (Some(7_200_000), Some(80)));
    // A policy above another lifts its limit.
    let text = "[gpu]\ncount = 1\nmemory = \"unlimited\"\n";
    assert_eq!(resolved(&extended(text)).airlock.gpu.unwrap().memory, None);
}

#[test]
fn a_command_is_needed_and_no_argument_holds_a_nul() {
    let with = |args: Vec<String>| resolve(&base(), &ResolveInput { args, ..input() });
    assert!(matches!(with(vec![]), Err(PolicyError::Argument { .. })));
    assert!(matches!(with(vec!["a\0b".into()]), Err(PolicyError::Argument { .. })));
}

#[test]
fn the_digest_is_that_of_what_the_policy_says() {
    let digest = |policy: &Policy| policy.digest().unwrap();
    assert_eq!(digest(&base()), digest(&base()));
    assert_eq!(resolved(&base()).airlock.policy_digest, digest(&base()));
    let more = Overrides { memory: Some("8GiB".into()), ..Overrides::default() };
    assert_ne!(digest(&load("base", &more)), digest(&base()));
    let same = Overrides { memory: Some("4096MiB".into()), ..Overrides::default() };
    assert_eq!(digest(&load("base", &same)), digest(&base()));
}

/// Replies that wait in a route socket are charged to no memory cgroup.
#[test]
fn only_a_loopback_brings_netlink_route_sockets() {
    use airlock_runtime::seccomp::{SeccompData, Verdict, compile, run, syscall_number};
    let answer = |text: &str, protocol: u64| {
        let spec = resolved(&extended(text));
        let filter = compile(spec.oci.linux().as_ref().unwrap().seccomp().as_ref().unwrap()).unwrap();
        let number = syscall_number("socket").unwrap();
        let args = [16, 3, protocol, 0, 0, 0];
        run(&filter, &SeccompData { number, arch: 0xc000_003e, instruction_pointer: 0, args }).unwrap()
    };
    let absent = Verdict::Errno(97);
    let loopback = "network.mode = \"loopback\"\n";
    assert_eq!(answer("", 0), absent);
    assert_eq!(answer(loopback, 0), Verdict::Allow);
    assert_eq!(answer(loopback, 9), absent);
    assert_eq!(answer(&format!("{loopback}seccomp.deny = [\"socket\"]"), 0), Verdict::Errno(1));
    assert_eq!(answer(&format!("{loopback}seccomp.profile = \"strict\""), 0), Verdict::Errno(1));
}

// A read-only directory of the host has no room for a new mount point.
#[test]
fn opt_is_taken_apart_where_something_new_is_mounted_in_it() {
    let overrides =
        Overrides { mounts: vec![parse_mount_arg("/data:/opt/harness").unwrap()], ..Overrides::default() };
    let policy = load("base", &overrides);
    assert!(destinations(&resolved(&policy)).contains(&"/opt"));
    let conda = ("/opt/conda".to_owned(), HostEntry::Dir);
    let host = HostTree { opt: Some([conda].into()), ..debian() };
    let spec = resolve(&policy, &ResolveInput { host, ..input() }).unwrap();
    let destinations = destinations(&spec);
    assert!(!destinations.contains(&"/opt"));
    assert!(destinations.contains(&"/opt/conda") && destinations.contains(&"/opt/harness"));
    assert_eq!(options(&spec, "/opt/conda"), options(&resolved(&base()), "/opt"));
}
