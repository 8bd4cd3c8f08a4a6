//! Freezing, killing and removing, and what a group leaves behind.

use super::*;

#[test]
fn a_frozen_process_stands_still_and_can_be_killed() {
    let needs = Needs { control: true, statistics: true, ..Needs::default() };
    for fixture in Fixture::each_view(&needs) {
        let mut child = fixture.spawn(BUSY);
        let used = || fixture.0.stats().unwrap().cpu_usage_ns.unwrap();
        fixture.0.freeze(PATIENCE).unwrap();
        let before = used();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(used(), before, "frozen");
        fixture.0.thaw().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while used() == before {
            assert!(Instant::now() < deadline, "thawed");
            std::thread::sleep(Duration::from_millis(5));
        }
        fixture.0.freeze(PATIENCE).unwrap();
        fixture.0.kill(PATIENCE).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(fixture.0.pids().unwrap(), [0; 0]);
    }
}

#[test]
fn kill_ends_every_process_of_a_forking_tree_that_ignores_sigterm() {
    for fixture in Fixture::each_view(&Needs { control: true, ..Needs::default() }) {
        let script = "trap '' TERM; (setsid sleep 60 &) ; i=0; while [ $i -lt 30 ]; do sleep 60 & i=$((i+1)); done; wait";
        let mut child = fixture.spawn(script);
        let deadline = Instant::now() + PATIENCE;
        while fixture.0.pids().unwrap().len() < 10 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(2));
        }
        fixture.0.kill(PATIENCE).unwrap();
        assert_eq!(fixture.0.pids().unwrap(), [0; 0]);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

/// crun#868: a process that does not go made removal loop for ever.
#[test]
fn removal_of_an_inhabited_cgroup_ends_and_names_the_process() {
    for fixture in Fixture::each_view(&Needs { control: true, ..Needs::default() }) {
        let mut child = fixture.spawn("exec sleep 60");
        let error = fixture.0.remove(Duration::from_millis(30)).unwrap_err();
        assert!(matches!(&error, CgroupError::StillAlive { pids, .. } if *pids == [child.id()]), "{error}");
        fixture.0.kill(PATIENCE).unwrap();
        child.wait().unwrap();
    }
}

/// runc#4040: a cgroup left behind.
#[test]
fn removal_takes_nested_directories_and_can_be_repeated() {
    for fixture in Fixture::each_view(&Needs { control: true, statistics: true, ..Needs::default() }) {
        let paths: Vec<PathBuf> = fixture.0.paths().map(|(_, path)| path).collect();
        for path in &paths {
            fs::create_dir_all(path.join("a/b/c")).unwrap();
            fs::create_dir_all(path.join("a/d")).unwrap();
        }
        let deep: PathBuf = paths[0].join(vec!["n"; 100].join("/"));
        fs::create_dir_all(deep).unwrap();
        fixture.0.remove(PATIENCE).unwrap();
        assert!(!paths.is_empty() && paths.iter().all(|path| !path.parent().unwrap().exists()));
        fixture.0.remove(PATIENCE).unwrap();
    }
}

#[test]
fn a_recorded_cgroup_is_opened_killed_and_removed() {
    let Some(fixture) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    let mut child = fixture.spawn("exec sleep 60");
    let text = serde_json::to_string(&fixture.0.record()).unwrap();
    let record: CgroupRecord = serde_json::from_str(&text).unwrap();
    let opened = Cgroup::open(&record, &CgroupFacts::read().unwrap()).unwrap();
    assert_eq!(opened.record(), record);
    opened.kill(PATIENCE).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    opened.remove(PATIENCE).unwrap();
    assert!(fixture.0.paths().all(|(_, path)| !path.parent().unwrap().exists()));
    assert_eq!(Cgroup::open(&record, &CgroupFacts::read().unwrap()).unwrap().paths().count(), 0);
}

#[test]
fn a_record_that_names_an_ordinary_directory_is_refused() {
    let Some(fixture) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("box")).unwrap();
    let mut record = fixture.0.record();
    record.trees[0].path = directory.path().join("box");
    let facts = CgroupFacts::read().unwrap();
    assert!(matches!(Cgroup::open(&record, &facts), Err(CgroupError::Record { .. })));
    record.trees[0].mount = directory.path().into();
    assert!(matches!(Cgroup::open(&record, &facts), Err(CgroupError::Record { .. })));
    assert!(directory.path().join("box").exists());
}

#[test]
fn a_directory_that_exists_is_not_adopted_and_nothing_is_left_of_the_attempt() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    let target = target(&facts, &parent, "box", &statistics());
    let taken = target.trees.last().unwrap().path();
    fs::create_dir_all(&taken).unwrap();
    let result = Cgroup::create(&target);
    assert!(matches!(&result, Err(CgroupError::Exists { path }) if *path == taken), "{result:?}");
    assert!(taken.exists());
    for tree in &target.trees[..target.trees.len() - 1] {
        assert!(!tree.path().parent().unwrap().exists());
    }
    fs::remove_dir(&taken).unwrap();
    Cgroup::create(&target).unwrap().remove(PATIENCE).unwrap();
    let found = taken.parent().unwrap();
    assert!(found.exists(), "a parent that was found is left");
    fs::remove_dir(found).unwrap();
}

#[test]
fn sandboxes_that_share_a_new_parent_do_not_disturb_each_other() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (facts, parent) = (&facts, &parent);
            scope.spawn(move || {
                for _ in 0..25 {
                    let target = target(facts, parent, &format!("box{number}"), &statistics());
                    Cgroup::create(&target).unwrap().remove(PATIENCE).unwrap();
                }
            });
        }
    });
    for tree in target(&facts, &parent, "box", &statistics()).trees {
        assert!(!tree.path().parent().unwrap().exists(), "{} is left", tree.path().display());
    }
}

/// Whoever made it: the last in it removes it, also as a later process that has only the record.
#[test]
fn a_new_parent_goes_with_the_last_sandbox_in_it() {
    let Some(facts) = usable() else { return };
    let top = fresh_parent();
    let parent = target(&facts, &top, "box", &statistics()).trees[0].path();
    let below =
        CgroupPath::new(PathBuf::from("/").join(parent.parent().unwrap().file_name().unwrap()).join("inner"))
            .unwrap();
    let [first, second] =
        ["first", "second"].map(|name| Cgroup::create(&target(&facts, &below, name, &statistics())).unwrap());
    let paths: Vec<PathBuf> = second.paths().map(|(_, path)| path).collect();
    first.remove(PATIENCE).unwrap();
    assert!(paths.iter().all(|path| path.exists()));
    Cgroup::open(&second.record(), &facts).unwrap().remove(PATIENCE).unwrap();
    for path in paths {
        let parents = path.ancestors().skip(1).take(2);
        assert!(parents.clone().all(|parent| !parent.exists()), "{} is left", path.display());
    }
}

/// Leaves into which callers moved themselves: those of the dead go, those of the living stay.
#[test]
fn leaves_of_dead_callers_are_removed() {
    let Some(facts) = usable() else { return };
    let Some(tree) = facts.v2.clone() else {
        eprintln!("skipped: no v2 tree");
        return;
    };
    let own = PathBuf::from(format!("/airlock-test-{}-leaves", std::process::id()));
    let scope = tree.mount.join(own.strip_prefix("/").unwrap());
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let leaf = |pid: u32| scope.join(format!("supervisor-{pid}"));
    let (living, gone, other) = (leaf(std::process::id()), leaf(dead.id()), scope.join("supervisor-x"));
    let make = || [&living, &gone, &other].map(|path| fs::create_dir_all(path).unwrap());
    let record = CgroupRecord {
        name: "box".into(),
        trees: vec![TreeRecord {
            version: Version::V2,
            mount: tree.mount.clone(),
            path: scope.join("box"),
            controllers: BTreeSet::new(),
            above: 0,
        }],
    };
    let callers = CgroupFacts { v2: Some(V2Tree { own: Some(own), ..tree }), ..facts.clone() };
    for (facts, record) in [(&callers, None), (&facts, Some(&record))] {
        make();
        facts.remove_leaves(record);
        assert!(living.exists() && other.exists() && !gone.exists(), "{record:?}");
        for path in [&living, &other] {
            fs::remove_dir(path).unwrap();
        }
    }
    fs::remove_dir(scope).unwrap();
}

#[test]
fn two_hundred_create_and_remove_cycles_leave_nothing() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    let mut paths: Vec<PathBuf> = vec![];
    for _ in 0..200 {
        let group = Cgroup::create(&target(&facts, &parent, "box", &statistics())).unwrap();
        paths = group.paths().map(|(_, path)| path).collect();
        assert!(paths.iter().all(|path| path.is_dir()));
        group.remove(PATIENCE).unwrap();
    }
    assert!(!paths.is_empty());
    for path in paths {
        assert!(!path.parent().unwrap().exists(), "{} is left", path.display());
    }
}
