use super::super::{Instruction, PROFILES, Program, compile, profile, run, set_action};
use super::*;

fn document(text: &str) -> LinuxSeccomp {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_built_in_profiles_are_what_their_tables_say() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let proof = FilterTable::of(&document).unwrap();
        let proof = proof.prove(&compile(&document).unwrap(), STEPS).unwrap();
        assert_eq!((proof.numbers, proof.by_pairs), (3 * 601 + 4, 0), "{name}");
        assert_eq!(proof.undecided, []);
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
    table.prove(&compile(&document).unwrap(), STEPS).unwrap();
}

/// Without its document, a program is told as its document says.
#[test]
fn a_program_is_told_by_following_it() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let program = compile(&document).unwrap();
        let read = Decompiled::of(&program, STEPS).unwrap();
        let proof = read.prove().unwrap();
        let table = FilterTable::of(&document).unwrap();
        assert_eq!(proof, table.prove(&program, STEPS).unwrap(), "{name}");
        for ((name, number, told), (_, _, written)) in read.calls.iter().zip(table.calls()) {
            let told = told.as_ref().unwrap();
            assert_eq!(told.may_run(), written.may_run(), "{name} {number}: {told} {written}");
            assert_eq!(told.always_runs(), written.always_runs(), "{name} {number}: {told} {written}");
        }
    }
    let text = r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW",
         "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]}]}"#;
    let read = Decompiled::of(&compile(&document(text)).unwrap(), STEPS).unwrap();
    let told = |call| answer(&read, call).as_ref().unwrap().to_string();
    assert_eq!((told("read"), told("write")), ("allow".into(), "errno 1".into()));
    assert_eq!(told("socket"), "allow if arg0 == 0x1; else errno 1");
    assert_eq!(told("clone"), "allow if arg0.low & 0x7e020000 == 0x0; else errno 1");
    assert_eq!(read.i386.unwrap().to_string(), "kill process");
}

fn answer<'a>(read: &'a Decompiled, call: &str) -> &'a Told {
    &read.calls.iter().find(|(name, ..)| *name == call).unwrap().2
}

/// The proof of a program's own ways is executed too: another program's ways are no proof.
#[test]
fn ways_of_another_program_are_caught() {
    let program = compile(&profile("default").unwrap()).unwrap();
    let ways = |call, budget: &mut budget::Budget| decompile::ways(&program, call, budget).ok();
    let proof = |of: &Program| prove::prove(of, read_arch(), STEPS, ways);
    proof(&program).unwrap();
    let other = Program { instructions: vec![RETURN] };
    assert!(matches!(proof(&other), Err(Disproof::Answer { .. })));
}

/// A comparison with the index register cannot be told, and the calls that do not come there can.
#[test]
fn what_cannot_be_told_is_so_of_those_calls_alone() {
    let x = Instruction { code: 0x1d, jt: 0, jf: 0, k: 0 };
    let program = Program { instructions: vec![LOAD_NUMBER, jump_if(1, 1, 0), x, RETURN] };
    let read = Decompiled::of(&program, STEPS).unwrap();
    assert_eq!(answer(&read, "write").as_ref().unwrap().to_string(), "kill thread");
    assert_eq!(*answer(&read, "read"), Err(Opaque::Instruction { at: 2 }));
    let proof = read.prove().unwrap();
    assert!(proof.covers(1) && !proof.covers(0));
}

const LOAD_NUMBER: Instruction = Instruction { code: 0x20, jt: 0, jf: 0, k: 0 };
const RETURN: Instruction = Instruction { code: 0x06, jt: 0, jf: 0, k: 0 };

fn jump_if(k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code: 0x15, jt, jf, k }
}

/// What one call may be made to do: `blocks` are there for read(2) alone, whose number is 0.
fn hostile(block: impl Fn(u32) -> Vec<Instruction>) -> Program {
    let mut instructions = vec![LOAD_NUMBER, jump_if(0, 1, 0), RETURN];
    let allow = Instruction { k: Verdict::Allow.raw(), ..RETURN };
    let mut count = 0;
    while instructions.len() + 8 < crate::seccomp::MAX_INSTRUCTIONS {
        instructions.extend(block(count));
        count += 1;
    }
    instructions.extend([jump_if(7, 0, 1), allow, RETURN]);
    Program { instructions }
}

/// Programs as long as the kernel takes, made to be followed for ever: ways that part and meet, thousands of values of
/// every argument, masks that pile up, and one way that has thousands of tests.
fn hostile_programs() -> [Program; 4] {
    let load = |n: u32| Instruction { code: 0x20, k: 16 + 4 * (n % 12), ..RETURN };
    let set = |bit: u32| Instruction { code: 0x45, jt: 1, jf: 0, k: 1 << (bit % 32) };
    let and = |bit: u32| Instruction { code: 0x54, k: !(1 << (bit % 32)), ..RETURN };
    let scattered = |n: u32| n.wrapping_mul(0x9e37_79b1);
    [
        hostile(|n| vec![load(n), jump_if(scattered(n), 1, 0), load(n + 5)]),
        hostile(|n| vec![load(n), Instruction { code: 0x25, ..jump_if(scattered(n), 0, 0) }]),
        hostile(|n| vec![set(n / 12), and(n), if n % 40 == 0 { load(n) } else { set(n + 3) }, and(n + 1)]),
        hostile(|n| vec![load(0), jump_if(n, 0, 1), RETURN]),
    ]
}

/// The work is bounded and not the time, so the same is decided everywhere.
#[test]
fn a_hostile_filter_takes_no_more_than_its_steps() {
    for (at, mut program) in hostile_programs().into_iter().enumerate() {
        let read = Decompiled::of(&program, STEPS / 10).unwrap();
        let proof = read.prove().unwrap();
        assert_eq!(*answer(&read, "read"), Err(Exhausted { steps: STEPS / 10 }.into()), "{at}");
        assert_eq!(proof.undecided, [(read_arch().audit(), 0), (0x4000_0003, 0)], "{at}");
        // Whoever fills one call takes nothing from the others.
        assert_eq!(answer(&read, "write").as_ref().unwrap().to_string(), "kill thread", "{at}");
        // The same for every call.
        program.instructions.drain(..3);
        let read = Decompiled::of(&program, STEPS / 10).unwrap();
        let proof = read.prove().unwrap();
        assert!(!proof.covers(0) && answer(&read, "read").is_err(), "{at}");
    }
}

#[test]
fn steps_that_do_not_suffice_give_no_answer() {
    let program = compile(&profile("default").unwrap()).unwrap();
    let read = Decompiled::of(&program, 0).unwrap();
    let none = Err(Opaque::Steps(Exhausted { steps: 0 }));
    assert!(read.calls.iter().all(|(.., told)| *told == none));
    assert_eq!(none.clone().unwrap_err().to_string(), "not decided within 0 steps");
    assert_eq!((&read.unknown, &read.x32, &read.i386), (&none, &none, &none));
    let proof = FilterTable::of(&profile("default").unwrap()).unwrap().prove(&program, 0).unwrap();
    assert_eq!((proof.numbers, proof.cases, proof.undecided.len()), (0, 0, 3 * 601 + 4));
    // With a few of them, what is decided is right.
    let all = Decompiled::of(&program, STEPS).unwrap();
    for steps in [10_000, 50_000, 200_000] {
        let some = Decompiled::of(&program, steps).unwrap();
        let decided = some.calls.iter().zip(&all.calls).filter(|(some, _)| some.2.is_ok());
        assert!(decided.clone().all(|(some, all)| some == all));
        let proof = some.prove().unwrap();
        assert_eq!(proof.numbers + proof.undecided.len() as u64, 3 * 601 + 4);
    }
}

/// Names may be repeated without end: what they cost is bounded before a program is there to be measured.
#[test]
fn a_document_may_not_repeat_itself_without_end() {
    let names = |count: usize| vec!["\"read\""; count].join(",");
    let text = |count| {
        format!(
            r#"{{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{{"names": [{}], "action": "SCMP_ACT_ALLOW",
                "args": [{{"index": 0, "value": 0, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}}]}}]}}"#,
            names(count)
        )
    };
    compile(&document(&text(4096))).unwrap();
    let error = compile(&document(&text(4097))).unwrap_err();
    assert!(matches!(error, SeccompError::Rules { ref call } if call == "read"), "{error}");
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
    table.prove(&program, STEPS).unwrap();
    let (mut caught, mut same) = (0, 0);
    for at in 0..program.instructions.len() {
        let original = program.instructions[at];
        let bits = (0..32).map(|bit| Instruction { k: original.k ^ (1 << bit), ..original });
        let swapped = Instruction { jt: original.jf, jf: original.jt, ..original };
        for instruction in bits.chain([swapped]).filter(|instruction| *instruction != original) {
            let mut changed = program.clone();
            changed.instructions[at] = instruction;
            if table.prove(&changed, STEPS).is_err() {
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
    let disproof = FilterTable::of(&document).unwrap().prove(&compile(&other).unwrap(), STEPS).unwrap_err();
    let Disproof::Answer { data, table, program } = disproof else { panic!("{disproof}") };
    assert_eq!((data.number, table, program), (250, Verdict::Errno(1), Verdict::Allow));
}
