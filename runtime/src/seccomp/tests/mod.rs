//! Programs against documents: what the compiled filter answers is what the document says.

mod evaluate;
mod profiles;
mod random;

use super::*;
use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall, LinuxSyscallBuilder,
};

const NATIVE: u32 = 0xc000_003e;

fn data(number: u32, args: [u64; 6]) -> SeccompData {
    SeccompData { number, arch: NATIVE, instruction_pointer: 0x7fff_0000_1234, args }
}

fn answer(program: &Program, number: u32, args: [u64; 6]) -> Verdict {
    run(program, &data(number, args)).unwrap()
}

fn arg(index: usize, op: LinuxSeccompOperator, value: u64, two: Option<u64>) -> LinuxSeccompArg {
    let builder = LinuxSeccompArgBuilder::default().index(index).op(op).value(value);
    match two {
        Some(two) => builder.value_two(two).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

fn entry(names: &[&str], action: LinuxSeccompAction, args: Vec<LinuxSeccompArg>) -> LinuxSyscall {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    LinuxSyscallBuilder::default().names(names).action(action).args(args).build().unwrap()
}

fn document(default: LinuxSeccompAction, entries: Vec<LinuxSyscall>) -> LinuxSeccomp {
    let mut document = LinuxSeccomp::default();
    document.set_default_action(default).set_syscalls(Some(entries));
    document
}

use LinuxSeccompAction::{ScmpActAllow, ScmpActErrno, ScmpActKillProcess, ScmpActNotify, ScmpActTrace};
use LinuxSeccompOperator::{ScmpCmpEq, ScmpCmpGe, ScmpCmpLe, ScmpCmpMaskedEq};

#[test]
fn a_narrow_refusal_stands_before_a_wide_permission_in_either_order() {
    let narrow = entry(&["ioctl"], ScmpActErrno, vec![arg(1, ScmpCmpMaskedEq, 0xffff_ffff, Some(0x5412))]);
    let wide = entry(&["ioctl"], ScmpActAllow, Vec::new());
    for entries in [vec![narrow.clone(), wide.clone()], vec![wide, narrow]] {
        let program = compile(&document(ScmpActKillProcess, entries)).unwrap();
        assert_eq!(answer(&program, 16, [0, 0x5413, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(answer(&program, 16, [0, 0x5412, 0, 0, 0, 0]), Verdict::Errno(1));
        // CVE-2019-10063: the kernel ignores the high half, so a filter that compares it is passed.
        assert_eq!(answer(&program, 16, [0, 0x1_0000_5412, 0, 0, 0, 0]), Verdict::Errno(1));
    }
}

#[test]
fn an_argument_named_twice_in_one_rule_makes_two_rules() {
    let between = vec![arg(0, ScmpCmpGe, 100, None), arg(0, ScmpCmpLe, 10, None)];
    let program = compile(&document(ScmpActErrno, vec![entry(&["close"], ScmpActAllow, between)])).unwrap();
    for (value, verdict) in [(5, Verdict::Allow), (50, Verdict::Errno(1)), (500, Verdict::Allow)] {
        assert_eq!(answer(&program, 3, [value, 0, 0, 0, 0, 0]), verdict, "{value}");
    }
}

#[test]
fn unknown_numbers_get_enosys_unless_the_default_lets_calls_through() {
    let refuses = compile(&document(ScmpActKillProcess, Vec::new())).unwrap();
    let allows = compile(&document(ScmpActAllow, Vec::new())).unwrap();
    // runc#2750: EPERM for a number that glibc tries first breaks programs that would fall back.
    for number in [337, 400, 470, 1000, 0x3fff_ffff, u32::MAX] {
        assert_eq!(answer(&refuses, number, [0; 6]), Verdict::NO_SUCH_CALL);
        assert_eq!(answer(&allows, number, [0; 6]), Verdict::Allow);
    }
    assert_eq!(answer(&refuses, 0, [0; 6]), Verdict::KillProcess);
    assert_eq!(Verdict::NO_SUCH_CALL, Verdict::Errno(u16::try_from(libc::ENOSYS).unwrap()));
}

#[test]
fn unknown_names_are_skipped_and_listed() {
    let entries = vec![entry(&["read", "riscv_flush_icache", "socketcall"], ScmpActAllow, Vec::new())];
    let document = document(ScmpActErrno, entries);
    assert_eq!(unknown_names(&document), ["riscv_flush_icache", "socketcall"]);
    let program = compile(&document).unwrap();
    assert_eq!(answer(&program, 0, [0; 6]), Verdict::Allow);
}

#[test]
fn values_out_of_range_are_named() {
    let mut bad = entry(&["read"], ScmpActErrno, Vec::new());
    bad.set_errno_ret(Some(4096));
    let error = compile(&document(ScmpActAllow, vec![bad.clone()])).unwrap_err();
    assert_eq!(error.to_string(), "seccomp: read: errnoRet 4096 is out of range");
    bad.set_action(ScmpActTrace);
    assert!(compile(&document(ScmpActAllow, vec![bad.clone()])).is_ok());
    bad.set_errno_ret(Some(0x1_0000));
    assert!(compile(&document(ScmpActAllow, vec![bad])).is_err());

    let bad = entry(&["read"], ScmpActErrno, vec![arg(6, ScmpCmpEq, 0, None)]);
    let error = compile(&document(ScmpActAllow, vec![bad])).unwrap_err();
    assert_eq!(error.to_string(), "seccomp: read: argument index 6 is not 0 to 5");
}

#[test]
fn a_listener_is_compiled_but_not_installed() {
    let program =
        compile(&document(ScmpActErrno, vec![entry(&["read"], ScmpActNotify, Vec::new())])).unwrap();
    assert_eq!(answer(&program, 0, [0; 6]), Verdict::Notify);
    assert!(matches!(install(&program, Flags::default()), Err(SeccompError::Notify)));
}

/// Comparisons jump 255 instructions at most (eight bits), so far targets need bridges.
#[test]
fn long_programs_jump_right_and_too_long_ones_are_refused() {
    let checks = |width: u64| -> LinuxSeccomp {
        let entry = |(name, number): &(&str, u32)| {
            let args = (0..width).map(|low| {
                let value = u64::from(*number) << 32 | low;
                entry(
                    &[name],
                    ScmpActAllow,
                    vec![arg(0, ScmpCmpEq, value, None), arg(3, ScmpCmpLe, value, None)],
                )
            });
            args.collect::<Vec<_>>()
        };
        document(ScmpActErrno, all().iter().flat_map(entry).collect())
    };
    let document = checks(1);
    let program = compile(&document).unwrap();
    assert!(program.instructions.len() > 3000, "{}", program.instructions.len());
    evaluate::compare(&document, &program, &[]);

    let error = compile(&checks(2)).unwrap_err();
    assert!(matches!(error, SeccompError::TooLong { length } if length > MAX_INSTRUCTIONS), "{error}");
}

#[test]
fn a_listing_shows_jump_targets() {
    let entries = vec![entry(&["read"], ScmpActAllow, Vec::new())];
    let text = compile(&document(ScmpActErrno, entries)).unwrap().to_string();
    assert!(text.starts_with("   0: load arch\n   1: if == 0xc000003e go 2 else "), "{text}");
    assert!(text.contains("allow\n") && text.contains("errno 1\n") && text.contains("errno 38\n"), "{text}");
}

#[test]
fn the_interpreter_names_what_the_kernel_would_refuse() {
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let fault =
        |steps: &[Instruction]| run(&Program { instructions: steps.to_vec() }, &data(0, [0; 6])).unwrap_err();
    assert_eq!(fault(&[]), Fault::End { at: 0 });
    assert_eq!(fault(&[step(0x05, 7)]), Fault::End { at: 8 });
    assert_eq!(fault(&[step(0x20, 64)]), Fault::Operand { at: 0, k: 64 });
    assert_eq!(fault(&[step(0x20, 2)]), Fault::Operand { at: 0, k: 2 });
    assert_eq!(fault(&[step(0x28, 0)]), Fault::Operation { at: 0, code: 0x28 });
}

/// Data flow through every register and the scratch memory: ((7 * 6 - 2) / 4) ^ 3 = 9, then the high
/// half of an argument.
#[test]
fn the_interpreter_computes() {
    let step = |code, k| Instruction { code, jt: 0, jf: 0, k };
    let instructions = vec![
        step(0x00, 6),
        step(0x07, 0),
        step(0x00, 7),
        step(0x2c, 0),
        step(0x14, 2),
        step(0x34, 4),
        step(0xa4, 3),
        step(0x02, 15),
        step(0x00, 0),
        step(0x61, 15),
        step(0x20, 20),
        Instruction { code: 0x1d, jt: 0, jf: 1, k: 0 },
        step(0x06, 0x7fff_0000),
        step(0x06, 0x8000_0000),
    ];
    let program = Program { instructions };
    assert_eq!(answer(&program, 0, [9 << 32, 0, 0, 0, 0, 0]), Verdict::Allow);
    assert_eq!(answer(&program, 0, [9, 0, 0, 0, 0, 0]), Verdict::KillProcess);
}
