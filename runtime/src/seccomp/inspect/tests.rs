use super::super::{Instruction, PROFILES, Program, compile, profile, run, set_action};
use super::*;

fn document(text: &str) -> LinuxSeccomp {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_built_in_profiles_are_what_their_tables_say() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let proof = FilterTable::of(&document).unwrap().prove(&compile(&document).unwrap()).unwrap();
        assert_eq!((proof.numbers, proof.by_pairs), (3 * 601 + 4, 0), "{name}");
        assert!(proof.cases > 20_000, "{name}: {proof:?}");
    }
}

#[test]
fn a_call_is_told_in_words() {
    let document = document(
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 25,
             "args": [{"index": 1, "value": 4294967295, "valueTwo": 21522, "op": "SCMP_CMP_MASKED_EQ"}]},
            {"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": 2, "op": "SCMP_CMP_LE"}, {"index": 2, "value": 7, "op": "SCMP_CMP_NE"}]}]}"#,
    );
    let table = FilterTable::of(&document).unwrap();
    let told = |call| table.calls().find(|(name, ..)| *name == call).unwrap().2.to_string();
    assert_eq!(told("read"), "allow");
    assert_eq!(told("write"), "errno 1");
    assert_eq!(
        told("ioctl"),
        "errno 25 if arg1 & 0xffffffff == 0x5412; allow if arg0 <= 0x2 and arg2 != 0x7; else errno 1"
    );
    table.prove(&compile(&document).unwrap()).unwrap();
}

/// Without its document, a program is told as its document says.
#[test]
fn a_program_is_told_by_following_it() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let program = compile(&document).unwrap();
        let read = Decompiled::of(&program).unwrap();
        let proof = read.prove().unwrap();
        assert_eq!(proof, FilterTable::of(&document).unwrap().prove(&program).unwrap(), "{name}");
        let table = FilterTable::of(&document).unwrap();
        for ((name, number, told), (_, _, written)) in read.calls().zip(table.calls()) {
            assert_eq!(told.may_run(), written.may_run(), "{name} {number}: {told} {written}");
            assert_eq!(told.always_runs(), written.always_runs(), "{name} {number}: {told} {written}");
        }
    }
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
         "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]}]}"#;
    let read = Decompiled::of(&compile(&document(text)).unwrap()).unwrap();
    let told = |call| read.calls().find(|(name, ..)| *name == call).unwrap().2.to_string();
    assert_eq!((told("read"), told("write")), ("allow".into(), "errno 1".into()));
    assert_eq!(told("socket"), "allow if arg0 == 0x1; else errno 1");
    assert_eq!(told("clone"), "allow if arg0.low & 0x7e020000 == 0x0; else errno 1");
    assert_eq!(read.answer(0x4000_0003, 1).unwrap().to_string(), "kill process");
}

/// The proof of a program's own ways is executed too: another program's ways are no proof.
#[test]
fn ways_of_another_program_are_caught() {
    let document = profile("default").unwrap();
    let program = compile(&document).unwrap();
    let read = Decompiled::of(&program).unwrap();
    let ways = |data: &SeccompData| read.answer(data.arch, data.number).unwrap().otherwise;
    assert!(matches!(prove::prove(&program, read_arch(), ways), Err(Disproof::Answer { .. })));
    // A comparison with the index register cannot be told.
    let x = Instruction { code: 0x1d, jt: 0, jf: 0, k: 0 };
    let end = Instruction { code: 0x06, jt: 0, jf: 0, k: 0 };
    let told = Decompiled::of(&Program { instructions: vec![x, end] });
    assert_eq!(told.unwrap_err(), Opaque::Instruction { at: 0 });
}

/// Found with tests/fuzz: a process chooses the filter that `audit seccomp --pid` reads of it, and with 64 instructions it
/// could keep the reader at work until its memory ran out.
#[test]
fn a_filter_that_is_made_to_be_told_for_ever_is_not_told() {
    let step = |code, jf, k| Instruction { code, jt: 0, jf, k };
    let end = step(0x06, 0, 0x7fff_0000);
    // Masks of one argument, each of them laid on or passed over: as many ways as there are subsets.
    let masks = (0..24).flat_map(|bit| {
        [
            step(0x20, 0, 16 + 4 * (bit % 12)),
            Instruction { jf: 1, ..step(0x45, 0, 1 << bit) },
            step(0x54, 0, !(1 << bit)),
        ]
    });
    let program = Program { instructions: masks.chain([end]).collect() };
    assert!(matches!(Decompiled::of(&program), Err(Opaque::Ways { .. })));
    // The same for a call of another architecture alone, which is not followed before the proof.
    let guard = [step(0x20, 0, 4), Instruction { jt: 1, ..step(0x15, 0, 0x4000_0003) }, end];
    let masks = (0..31).flat_map(|bit| {
        let load = [step(0x20, 0, 16), step(0x45, 1, 1 << bit), step(0x54, 0, !(1 << bit))];
        if bit == 0 { load.to_vec() } else { load[1..].to_vec() }
    });
    let program = Program { instructions: guard.into_iter().chain(masks).chain([end]).collect() };
    let proof = Decompiled::of(&program).unwrap().prove();
    assert_eq!(proof, Err(Disproof::TooMany { number: 0 }));
}

/// One argument compared with many values, in both halves: their combinations are millions.
#[test]
fn a_document_with_too_many_comparisons_is_not_proven() {
    let compare = |value: u64| {
        format!(
            r#"{{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{{"index": 0, "value": {value}, "op": "SCMP_CMP_EQ"}}]}}"#
        )
    };
    let rules: Vec<String> =
        (1..400).map(|number: u64| compare((number * 77) | ((number * 33) << 32))).collect();
    let document =
        document(&format!(r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{}]}}"#, rules.join(",")));
    let proof = FilterTable::of(&document).unwrap().prove(&compile(&document).unwrap());
    assert_eq!(proof, Err(Disproof::TooMany { number: 0 }));
}

fn read_arch() -> Architecture {
    Architecture::native().unwrap()
}

/// Whatever one instruction is made to do otherwise, some case shows it. Where none does, the instruction makes no
/// difference to any call: the data of an ALLOW, a jump that is never taken.
#[test]
fn a_corrupted_instruction_is_caught() {
    let document = document(
        r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "write", "exit", "mmap"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [
                {"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": 5, "op": "SCMP_CMP_GT"}]},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
             "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]}]}"#,
    );
    let table = FilterTable::of(&document).unwrap();
    let program = compile(&document).unwrap();
    table.prove(&program).unwrap();
    let (mut caught, mut same) = (0, 0);
    for at in 0..program.instructions.len() {
        let original = program.instructions[at];
        let bits = (0..32).map(|bit| Instruction { k: original.k ^ (1 << bit), ..original });
        let swapped = Instruction { jt: original.jf, jf: original.jt, ..original };
        for instruction in bits.chain([swapped]).filter(|instruction| *instruction != original) {
            let mut changed = program.clone();
            changed.instructions[at] = instruction;
            if table.prove(&changed).is_err() {
                caught += 1;
            } else {
                same += 1;
                assert_same(&program, &changed);
            }
        }
    }
    assert!(caught > 8 * same, "{caught} caught, {same} without effect");
}

/// Both programs answer the same to every number with arguments around and far from what they look at.
fn assert_same(program: &Program, changed: &Program) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for number in (0..600).chain([X32_BIT, u32::MAX]) {
        for width in [0, 4, 31, 32, 33, 63] {
            let args = [0; 6].map(|_| random() >> (63 - width));
            let data = SeccompData::native(number, args).unwrap();
            assert_eq!(run(program, &data), run(changed, &data), "{data:x?}\n{program}\n{changed}");
        }
    }
}

#[test]
fn a_table_of_another_document_is_no_proof() {
    let document = profile("default").unwrap();
    let mut other = document.clone();
    set_action(&mut other, "keyctl", oci_spec::runtime::LinuxSeccompAction::ScmpActAllow, None);
    let disproof = FilterTable::of(&document).unwrap().prove(&compile(&other).unwrap()).unwrap_err();
    let Disproof::Answer { data, table, program } = disproof else { panic!("{disproof}") };
    assert_eq!((data.number, table, program), (250, Verdict::Errno(1), Verdict::Allow));
}
