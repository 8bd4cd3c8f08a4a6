//! What the kernel says: filters, mounts, control groups, the status of a process.

use std::path::Component;

use airlock_runtime::cgroups::CgroupFacts;
use airlock_runtime::ids::subordinate_range;
use airlock_runtime::live::{MountView, Status};
use airlock_runtime::seccomp::{
    Architecture, Decompiled, Disproof, Fault, Instruction, MAX_INSTRUCTIONS, Program, SeccompData, X32_BIT,
    run,
};

use super::{Target, parts};

pub(super) const FILTER: Target = Target { name: "filter", held: (64 << 20, 1024), body: filter };

pub(super) const MOUNTINFO: Target = Target { name: "mountinfo", held: (64 << 10, 256), body: mountinfo };

pub(super) const STATUS: Target = Target { name: "status", held: (64 << 10, 256), body: status };

/// Bytes of an instruction, as the kernel lays it out.
const INSTRUCTION: usize = 8;
/// Steps for telling and for proving it.
const STEPS: u64 = 1_000_000;

/// A program ends, is shown line by line, and does what is told of it.
fn filter(data: &[u8]) {
    let step = |bytes: &[u8]| Instruction {
        code: u16::from_le_bytes([bytes[0], bytes[1]]),
        jt: bytes[2],
        jf: bytes[3],
        k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    let program =
        Program { instructions: data.chunks_exact(INSTRUCTION).take(MAX_INSTRUCTIONS).map(step).collect() };
    assert_eq!(program.to_string().lines().count(), program.instructions.len());
    let native = Architecture::native().unwrap().audit();
    for number in [0, 59, 600, X32_BIT, u32::MAX] {
        for args in [[0; 6], [u64::MAX; 6], [0, 1, 2, 1 << 31, 1 << 32, 1 << 63]] {
            match run(&program, &SeccompData { number, arch: native, instruction_pointer: 7, args }) {
                Ok(_) => {}
                Err(Fault::Operation { at, .. } | Fault::Operand { at, .. }) => {
                    assert!(at < program.instructions.len());
                }
                Err(Fault::End { at }) => assert!(at >= program.instructions.len()),
            }
        }
    }
    let told = Decompiled::of(&program, STEPS).unwrap();
    if let Err(Disproof::Answer { data, table, program }) = told.prove() {
        panic!("{data:x?}: told {table}, answers {program}");
    }
}

/// A list of mounts, and after a line `%%%` the control groups of a process. No more mounts are read than lines are there;
/// where control groups are found they are absolute and lead nowhere else.
fn mountinfo(data: &[u8]) {
    let parts = parts(data);
    let (mounts, groups) = (parts[0], parts.get(1).copied().unwrap_or_default());
    let text = String::from_utf8_lossy(mounts);
    let list = MountView::list(&text);
    assert!(list.len() <= text.lines().count());
    for mount in &list {
        let MountView { id, target, root, kind, options, propagates } = mount;
        let tag = if *propagates { " shared:1" } else { "" };
        let line = format!("{id} 1 0:1 {root} {target} {}{tag} - {kind} source rw\n", options.join(","));
        assert_eq!(MountView::list(&line), std::slice::from_ref(mount), "{line:?}");
    }
    let facts = CgroupFacts::parse(mounts, groups);
    let v1 = facts.v1.iter().map(|tree| (&tree.mount, &tree.own));
    for (mount, own) in v1.chain(facts.v2.iter().map(|tree| (&tree.mount, &tree.own))) {
        assert!(mount.is_absolute(), "{}", mount.display());
        let own = own.iter().flat_map(|own| own.components());
        assert!(!own.into_iter().any(|part| part == Component::ParentDir), "{facts:?}");
    }
}

/// The fields of a status stand in it, and what is read of them is no more than they hold. A text of subordinate ids
/// gives a range that ends below the last id.
fn status(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let status = Status::of(&text);
    for line in text.lines() {
        let Some((key, _)) = line.split_once(':') else { continue };
        let field = status.field(key).unwrap();
        assert!(text.contains(field) && !field.contains('\n'));
        assert!(status.numbers(key).len() <= field.split_whitespace().count());
        assert_eq!(status.number(key), status.numbers(key).first().copied());
        if let Ok(mask) = u64::from_str_radix(field, 16) {
            assert_eq!(status.capabilities(key).len(), mask.count_ones() as usize);
        }
    }
    if let Some((start, count)) = subordinate_range(&text, "alice", 1000) {
        assert!(count > 0 && start.checked_add(count).is_some(), "{start} {count}");
    }
}
