//! A second reading of OCI documents, which shares nothing with the compiler but the call table.

use super::*;

/// The 32 bits that the document asks for.
pub(super) fn expected(document: &LinuxSeccomp, data: &SeccompData) -> u32 {
    const KILL: u32 = 0x8000_0000;
    let default = document.default_action().as_u32(document.default_errno_ret());
    let unknown = match document.default_action().to_string().as_str() {
        "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG" | "SCMP_ACT_TRACE" | "SCMP_ACT_NOTIFY" => default,
        _ => 0x0005_0000 | 38,
    };
    if data.arch != NATIVE {
        return KILL;
    }
    if data.number == u32::MAX {
        return unknown;
    }
    if data.number >= 1 << 30 {
        return KILL;
    }
    let Some(name) = syscall_name(data.number) else {
        return unknown;
    };
    let entries = document.syscalls().iter().flatten();
    let entries: Vec<_> = entries.filter(|entry| entry.names().iter().any(|known| known == name)).collect();
    let conditional = |entry: &&&LinuxSyscall| entry.args().as_ref().is_some_and(|args| !args.is_empty());
    let matching = entries.iter().filter(conditional).find(|entry| holds(entry, &data.args));
    let wide = entries.iter().find(|entry| !conditional(entry));
    matching.or(wide).map_or(default, |entry| entry.action().as_u32(entry.errno_ret()))
}

fn holds(entry: &LinuxSyscall, args: &[u64; 6]) -> bool {
    let conditions = entry.args().as_deref().unwrap_or_default();
    let mut held = conditions.iter().map(|condition| {
        let (given, value) = (args[condition.index()], condition.value());
        match condition.op().to_string().as_str() {
            "SCMP_CMP_EQ" => given == value,
            "SCMP_CMP_NE" => given != value,
            "SCMP_CMP_LT" => given < value,
            "SCMP_CMP_LE" => given <= value,
            "SCMP_CMP_GT" => given > value,
            "SCMP_CMP_GE" => given >= value,
            "SCMP_CMP_MASKED_EQ" => given & value == condition.value_two().unwrap_or(0) & value,
            other => panic!("{other}"),
        }
    });
    let mut seen = [0; 6];
    conditions.iter().for_each(|condition| seen[condition.index()] += 1);
    if seen.iter().any(|times| *times > 1) { held.any(|held| held) } else { held.all(|held| held) }
}

/// Values that could make a difference to some condition on argument `index` of the call.
pub(super) fn corners(document: &LinuxSeccomp, name: &str, index: usize) -> Vec<u64> {
    let mut values = vec![0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32, 1 << 63];
    let entries = document.syscalls().iter().flatten();
    let entries = entries.filter(|entry| entry.names().iter().any(|known| known == name));
    let mut mentioned = false;
    for condition in entries.filter_map(|entry| entry.args().as_ref()).flatten() {
        if condition.index() != index {
            continue;
        }
        mentioned = true;
        for value in [condition.value(), condition.value_two().unwrap_or(0)] {
            values.extend([value, value.wrapping_sub(1), value.wrapping_add(1), !value]);
            values.extend([value | 1 << 32, value ^ 1 << 63, value << 32, value >> 32]);
        }
        if condition.op() == ScmpCmpMaskedEq {
            let (mask, two) = (condition.value(), condition.value_two().unwrap_or(0));
            let bits = (0..64).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
            values.extend(bits.flat_map(|bit: u64| [bit, two ^ bit, bit | 0xabcd << 48]));
            values.extend([two | !mask, two | 0xffff_ffff << 32]);
        }
    }
    if !mentioned {
        values.truncate(3);
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// Runs the program over every number and the corners of every argument that the call's rules mention.
pub(super) fn compare(document: &LinuxSeccomp, program: &Program, more: &[u64]) {
    let check = |data: SeccompData| {
        let got = run(program, &data).unwrap().raw();
        let want = expected(document, &data);
        assert_eq!(got, want, "{:?} {data:x?}: {got:#x}, not {want:#x}", syscall_name(data.number));
    };
    let beyond = [0x3fff_ffff, 1 << 30, (1 << 30) + 1, (1 << 30) + 520, 1 << 31, u32::MAX - 1, u32::MAX];
    for number in (0..1024).chain(beyond) {
        for args in [[0; 6], [1; 6], [u64::MAX; 6]] {
            check(data(number, args));
            for arch in [0x4000_0003, 0xc000_00b7, 0, u32::MAX] {
                check(SeccompData { arch, ..data(number, args) });
            }
        }
        let Some(name) = syscall_name(number) else {
            continue;
        };
        let mentioned: Vec<usize> = (0..6).filter(|index| mentions(document, name, *index)).collect();
        let values: Vec<Vec<u64>> = mentioned
            .iter()
            .map(|index| corners(document, name, *index).into_iter().chain(more.iter().copied()).collect())
            .collect();
        for (at, index) in mentioned.iter().enumerate() {
            for fill in [0, 1, u64::MAX] {
                for value in &values[at] {
                    let mut args = [fill; 6];
                    args[*index] = *value;
                    check(data(number, args));
                    for (other, others) in mentioned.iter().zip(&values).skip(at + 1) {
                        for value in others {
                            args[*other] = *value;
                            check(data(number, args));
                        }
                    }
                }
            }
        }
    }
}

fn mentions(document: &LinuxSeccomp, name: &str, index: usize) -> bool {
    let entries = document.syscalls().iter().flatten();
    let entries = entries.filter(|entry| entry.names().iter().any(|known| known == name));
    entries.filter_map(|entry| entry.args().as_ref()).flatten().any(|condition| condition.index() == index)
}
