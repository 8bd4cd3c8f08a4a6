//! Random documents against the second reading.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

fn actions() -> impl Strategy<Value = LinuxSeccompAction> {
    use LinuxSeccompAction::*;
    select(vec![
        ScmpActKill,
        ScmpActKillThread,
        ScmpActKillProcess,
        ScmpActTrap,
        ScmpActErrno,
        ScmpActNotify,
        ScmpActTrace,
        ScmpActLog,
        ScmpActAllow,
    ])
}

fn values() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..4_u64,
        (0..64_u32).prop_map(|bit| 1 << bit),
        any::<u32>().prop_map(u64::from),
        any::<u32>().prop_map(|high| u64::from(high) << 32),
        Just(u64::MAX),
        Just(u64::from(u32::MAX)),
    ]
}

fn arguments() -> impl Strategy<Value = LinuxSeccompArg> {
    use LinuxSeccompOperator::*;
    let op = select(vec![ScmpCmpNe, ScmpCmpLt, ScmpCmpLe, ScmpCmpEq, ScmpCmpGe, ScmpCmpGt, ScmpCmpMaskedEq]);
    (0..6_usize, op, values(), values())
        .prop_map(|(index, op, value, two)| arg(index, op, value, (op == ScmpCmpMaskedEq).then_some(two)))
}

fn entries() -> impl Strategy<Value = LinuxSyscall> {
    let mut names: Vec<&str> = all().iter().map(|(name, _)| *name).collect();
    names.extend(["read", "open", "clone", "close"].repeat(30));
    names.push("no_such_call");
    let names = proptest::collection::vec(select(names), 1..12);
    let args = proptest::collection::vec(arguments(), 0..4);
    (names, actions(), proptest::option::of(0..4096_u32), args).prop_map(|(names, action, errno, args)| {
        let mut entry = entry(&names, action, args);
        entry.set_errno_ret(errno);
        entry
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_random_documents_say(
        default in actions(),
        errno in proptest::option::of(0..4096_u32),
        entries in proptest::collection::vec(entries(), 0..24),
        more in proptest::collection::vec(any::<u64>(), 2),
    ) {
        let mut document = document(default, entries);
        document.set_default_errno_ret(errno);
        let program = compile(&document).unwrap();
        evaluate::compare(&document, &program, &more);
    }
}
