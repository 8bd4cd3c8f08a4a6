//! Landlock's floor and the rules that follow from the mounts.

use super::*;

fn landlock(table: Value) -> Spec {
    spec(|spec| {
        spec["airlock"]["landlock"] = table;
        spec["oci"]["mounts"].as_array_mut().unwrap().push(bind("/srv", "/srv", &["rw", "noexec"]));
    })
}

fn rules(spec: &Spec) -> Vec<String> {
    let plan = planned(spec, &having(root(), "/srv", directory((501, 20))));
    let rules = about(&plan, "Landlock");
    rules[0].split_whitespace().skip(3).map(String::from).collect()
}

#[test]
fn rights_follow_from_the_mounts() {
    // Writable mounts may be written, read-only ones not, noexec ones not run; names are listed everywhere.
    let all =
        ["/etc=rl", "/tmp=rxlwc", "/usr=rxl", "/srv=rlwc", "/dev=rlwi", "/dev/pts=rlwi", "/proc=rlw", "/=l"];
    assert_eq!(rules(&landlock(json!({ "min_abi": 1 }))), all);
}

#[test]
fn a_writable_root_may_be_written() {
    let mut spec = landlock(json!({ "min_abi": 1 }));
    spec.airlock.writable = crate::spec::Writable::Tmpfs { size: 4096 };
    let rules = rules(&spec);
    assert!(rules.contains(&"/=rxlwc".into()) && rules.contains(&"/usr=rxlwc".into()), "{rules:?}");
}

#[test]
fn the_policys_table_narrows_and_never_widens() {
    let table = json!({ "min_abi": 1, "read": ["/usr/lib", "/srv/a", "/nowhere"], "write": ["/", "/usr"] });
    let narrowed = rules(&landlock(table));
    let read: Vec<&String> =
        narrowed.iter().filter(|rule| rule.contains("=r") && !rule.starts_with("/dev")).collect();
    assert_eq!(read, ["/usr/lib=rxl", "/srv/a=rl", "/proc=rlw"], "{narrowed:?}");
    let written: Vec<&String> = narrowed.iter().filter(|rule| rule.ends_with("=wc")).collect();
    assert_eq!(written, ["/tmp=wc", "/srv=wc"], "/usr is read-only: {narrowed:?}");
    assert!(!narrowed.contains(&"/=l".into()), "listing is part of reading");
}

#[test]
fn a_kernel_below_the_floor_is_refused_with_the_remedy() {
    let facts = |landlock_abi| HostFacts { landlock_abi, ..root() };
    let floor = |min_abi: u8| spec(|spec| spec["airlock"]["landlock"]["min_abi"] = min_abi.into());
    let message = refusal(&floor(4), &facts(3));
    assert!(
        message.contains("asks for ABI 4, this kernel has 3") && message.contains("newer kernel"),
        "{message}"
    );
    assert!(refusal(&floor(1), &facts(0)).contains("lsm=landlock"));
    assert_eq!(
        about(&planned(&floor(4), &facts(6)), "Landlock ABI 6").len(),
        1,
        "what is above the floor is used"
    );
    let lowered = planned(&floor(0), &facts(0));
    assert_eq!(about(&lowered, "Landlock"), [""; 0], "best effort");
    assert!(lowered.lowered.iter().any(|lowered| lowered.clause == "landlock"), "{:?}", lowered.lowered);
    assert_eq!(planned(&floor(0), &facts(1)).lowered, []);
}
