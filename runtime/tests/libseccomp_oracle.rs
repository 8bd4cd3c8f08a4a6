//! Airlock's filters against libseccomp's for the same rules: both programs are executed by Airlock's
//! interpreter over every number and the corners of every argument that a rule looks at.
//!
//! Where the two differ on purpose, the tests say so:
//! * numbers that the table does not know, and -1, get ENOSYS from Airlock, the default from libseccomp;
//! * a conditional rule beside an unconditional one of another action is lost in libseccomp, so such
//!   calls are compared with a filter of their own, whose default is the unconditional action;
//! * random rules come one to a call: libseccomp 2.5.4 merges the rules of a call into one tree without
//!   a way back, and then answers wrongly to `arg1 > MAX` beside `arg1 >= MAX && arg3 >= 2`.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};

use airlock_runtime::seccomp::{
    Instruction, PROFILES, Program, SeccompData, Verdict, all, compile, profile, run, syscall_name,
    syscall_number,
};
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall,
};
use proptest::prelude::*;
use proptest::sample::select;

const NATIVE: u32 = 0xc000_003e;

/// One rule of one call; no conditions: always.
#[derive(Clone, Debug)]
struct Rule {
    number: u32,
    action: ScmpAction,
    conditions: Vec<LinuxSeccompArg>,
}

fn rules(document: &LinuxSeccomp) -> Vec<Rule> {
    let entries = document.syscalls().iter().flatten();
    let rule = |entry: &LinuxSyscall, name: &String| Rule {
        number: syscall_number(name).unwrap(),
        action: action(entry.action(), entry.errno_ret()),
        conditions: entry.args().clone().unwrap_or_default(),
    };
    entries.flat_map(|entry| entry.names().iter().map(move |name| rule(entry, name))).collect()
}

fn action(action: LinuxSeccompAction, errno: Option<u32>) -> ScmpAction {
    let data = errno.unwrap_or(1);
    match action {
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActLog => ScmpAction::Log,
        LinuxSeccompAction::ScmpActErrno => ScmpAction::Errno(i32::try_from(data).unwrap()),
        LinuxSeccompAction::ScmpActTrace => ScmpAction::Trace(u16::try_from(data).unwrap()),
        LinuxSeccompAction::ScmpActNotify => ScmpAction::Notify,
        LinuxSeccompAction::ScmpActTrap => ScmpAction::Trap,
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => ScmpAction::KillThread,
        LinuxSeccompAction::ScmpActKillProcess => ScmpAction::KillProcess,
    }
}

fn comparison(arg: &LinuxSeccompArg) -> ScmpArgCompare {
    let (op, datum) = match arg.op() {
        LinuxSeccompOperator::ScmpCmpNe => (ScmpCompareOp::NotEqual, arg.value()),
        LinuxSeccompOperator::ScmpCmpLt => (ScmpCompareOp::Less, arg.value()),
        LinuxSeccompOperator::ScmpCmpLe => (ScmpCompareOp::LessOrEqual, arg.value()),
        LinuxSeccompOperator::ScmpCmpEq => (ScmpCompareOp::Equal, arg.value()),
        LinuxSeccompOperator::ScmpCmpGe => (ScmpCompareOp::GreaterEqual, arg.value()),
        LinuxSeccompOperator::ScmpCmpGt => (ScmpCompareOp::Greater, arg.value()),
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            (ScmpCompareOp::MaskedEqual(arg.value()), arg.value_two().unwrap_or(0))
        }
    };
    ScmpArgCompare::new(u32::try_from(arg.index()).unwrap(), op, datum)
}

/// libseccomp's program for these rules, on this architecture.
fn oracle<'a>(default: ScmpAction, rules: impl Iterator<Item = &'a Rule>) -> Program {
    let mut context = ScmpFilterContext::new(default).unwrap();
    context.set_act_badarch(ScmpAction::KillProcess).unwrap();
    for rule in rules.filter(|rule| rule.action != default) {
        let call = ScmpSyscall::from_raw_syscall(rule.number.try_into().unwrap());
        let conditions: Vec<_> = rule.conditions.iter().map(comparison).collect();
        if conditions.is_empty() {
            context.add_rule(rule.action, call).unwrap();
        } else {
            context.add_rule_conditional(rule.action, call, &conditions).unwrap();
        }
    }
    let mut file = tempfile::tempfile().unwrap();
    context.export_bpf(&file).unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let (steps, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    let instructions = steps.iter().map(|[c0, c1, jt, jf, k @ ..]| Instruction {
        code: u16::from_le_bytes([*c0, *c1]),
        jt: *jt,
        jf: *jf,
        k: u32::from_le_bytes(*k),
    });
    Program { instructions: instructions.collect() }
}

fn data(number: u32, args: [u64; 6]) -> SeccompData {
    SeccompData { number, arch: NATIVE, instruction_pointer: 0, args }
}

/// Argument values at which some rule could change its mind.
fn corners(rules: &[&Rule], index: usize) -> Vec<u64> {
    let mut values = BTreeSet::from([0, 1, u64::from(u32::MAX), u64::MAX]);
    for condition in rules.iter().flat_map(|rule| &rule.conditions).filter(|c| c.index() == index) {
        for value in [condition.value(), condition.value_two().unwrap_or(0)] {
            values.extend([value, value.wrapping_sub(1), value.wrapping_add(1), !value, value ^ 1 << 32]);
        }
        let bits = (0..64).map(|bit| 1 << bit).filter(|bit| condition.value() & bit != 0);
        values.extend(bits.map(|bit: u64| condition.value_two().unwrap_or(0) ^ bit));
    }
    values.into_iter().collect()
}

/// All combinations of the corners of the arguments that these rules name.
fn inputs(rules: &[&Rule]) -> Vec<[u64; 6]> {
    let mut inputs = vec![[0; 6], [u64::MAX; 6]];
    for index in 0..6 {
        if !rules.iter().flat_map(|rule| &rule.conditions).any(|c| c.index() == index) {
            continue;
        }
        let values = corners(rules, index);
        inputs = inputs
            .iter()
            .flat_map(|input| {
                values.iter().map(|value| {
                    let mut input = *input;
                    input[index] = *value;
                    input
                })
            })
            .collect();
    }
    inputs
}

fn compare(ours: &Program, theirs: &Program, rules: &[&Rule], number: u32) {
    for args in inputs(rules) {
        let data = data(number, args);
        let (ours, theirs) = (run(ours, &data).unwrap(), run(theirs, &data).unwrap());
        assert_eq!(ours, theirs, "{:?} {data:x?} {rules:?}", syscall_name(number));
    }
}

#[test]
fn the_built_in_profiles_agree_with_libseccomp() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let ours = compile(&document).unwrap();
        let rules = rules(&document);
        let mut by_number: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
        rules.iter().for_each(|rule| by_number.entry(rule.number).or_default().push(rule));
        let (mixed, plain): (Vec<_>, Vec<_>) =
            by_number.iter().partition(|(_, rules)| rules.iter().any(|rule| rule.action != rules[0].action));
        let mixed_names: Vec<_> = mixed.iter().map(|(number, _)| syscall_name(**number).unwrap()).collect();
        match *name {
            "default" => assert_eq!(mixed_names, ["ioctl", "socket"]),
            _ => assert_eq!(mixed_names, [""; 0]),
        }

        let default = ScmpAction::Errno(1);
        let theirs = oracle(default, plain.iter().flat_map(|(_, rules)| rules.iter().copied()));
        for number in (0..1024).chain([1 << 30, (1 << 30) + 1, (1 << 30) + 520, 1 << 31, u32::MAX]) {
            if syscall_name(number).is_none() && number < 1 << 30 || number == u32::MAX {
                assert_eq!(run(&ours, &data(number, [0; 6])).unwrap(), Verdict::NO_SUCH_CALL);
                assert_eq!(run(&theirs, &data(number, [0; 6])).unwrap(), Verdict::Errno(1));
            } else if !mixed.iter().any(|(mixed, _)| **mixed == number) {
                compare(&ours, &theirs, by_number.get(&number).map_or(&[], Vec::as_slice), number);
            }
            for arch in [0x4000_0003, 0xc000_00b7, 0] {
                let foreign = SeccompData { arch, ..data(number, [0; 6]) };
                assert_eq!(run(&ours, &foreign).unwrap(), Verdict::KillProcess);
                assert_eq!(run(&theirs, &foreign).unwrap(), Verdict::KillProcess);
            }
        }
        for (number, rules) in mixed {
            let wide = rules.iter().find(|rule| rule.conditions.is_empty());
            let wide = wide.map_or(default, |rule| rule.action);
            let narrow = rules.iter().copied().filter(|rule| !rule.conditions.is_empty());
            compare(&ours, &oracle(wide, narrow), rules, *number);
        }
    }
}

#[test]
fn the_table_agrees_with_libseccomp() {
    let mut known = 0;
    for (name, number) in all() {
        if let Ok(call) = ScmpSyscall::from_name(name) {
            known += 1;
            assert_eq!(i64::from(call.as_raw_syscall()), i64::from(*number), "{name}");
        }
    }
    assert!(known > 350, "{known}");
}

fn conditions() -> impl Strategy<Value = Vec<LinuxSeccompArg>> {
    let ops = select(vec![
        LinuxSeccompOperator::ScmpCmpNe,
        LinuxSeccompOperator::ScmpCmpLt,
        LinuxSeccompOperator::ScmpCmpLe,
        LinuxSeccompOperator::ScmpCmpEq,
        LinuxSeccompOperator::ScmpCmpGe,
        LinuxSeccompOperator::ScmpCmpGt,
        LinuxSeccompOperator::ScmpCmpMaskedEq,
    ]);
    let value =
        || prop_oneof![any::<u64>(), 0..3_u64, any::<u32>().prop_map(|v| u64::from(v) << 32), Just(u64::MAX)];
    let condition = (0..6_usize, ops, value(), value()).prop_map(|(index, op, value, two)| {
        let builder = LinuxSeccompArgBuilder::default().index(index).op(op).value(value);
        builder.value_two(two).build().unwrap()
    });
    proptest::collection::vec(condition, 1..4).prop_map(|mut conditions| {
        // libseccomp takes an argument once per rule.
        let mut seen = BTreeSet::new();
        conditions.retain(|condition| seen.insert(condition.index()));
        conditions
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_conditions_agree_with_libseccomp(
        calls in proptest::collection::btree_map(0..335_u32, conditions(), 1..8),
        errno in 2..200_u32,
    ) {
        let mut document = LinuxSeccomp::default();
        document.set_default_action(LinuxSeccompAction::ScmpActErrno);
        let mut entries = Vec::new();
        for (number, conditions) in calls {
            let mut entry = LinuxSyscall::default();
            entry
                .set_names(syscall_name(number).map(str::to_owned).into_iter().collect())
                .set_action(LinuxSeccompAction::ScmpActErrno)
                .set_errno_ret(Some(errno))
                .set_args(Some(conditions));
            entries.push(entry);
        }
        document.set_syscalls(Some(entries));
        let rules = rules(&document);
        let ours = compile(&document).unwrap();
        let theirs = oracle(ScmpAction::Errno(1), rules.iter());
        for (_, number) in all() {
            let rules: Vec<_> = rules.iter().filter(|rule| rule.number == *number).collect();
            compare(&ours, &theirs, &rules, *number);
        }
    }
}
