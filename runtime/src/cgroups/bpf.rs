//! The cgroup v2 device program: assembled here, loaded and attached by bpf(2).
//!
//! No BPF library is used: they raise RLIMIT_MEMLOCK first, which needs CAP_SYS_RESOURCE, while kernels since
//! 5.11 charge BPF memory to the memory cgroup instead.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::devices::{Access, DeviceFilter, DeviceKind};
use super::error::CgroupError;

/// One instruction, as `struct bpf_insn` of `linux/bpf.h` lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInsn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Registers: the verdict, the context that the kernel passes, its four parts, and two of scratch.
const VERDICT: u8 = 0;
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const MISMATCH: u8 = 6;
const PART: u8 = 7;

/// `BPF_LDX | BPF_MEM | BPF_W`, and operations of the class `BPF_ALU64`; `BPF_JMP | BPF_EXIT`.
const LOAD_WORD: u8 = 0x61;
const MOVE_REGISTER: u8 = 0xbf;
const OR_REGISTER: u8 = 0x4f;
const MOVE: u8 = 0xb7;
const SUBTRACT: u8 = 0x17;
const AND: u8 = 0x57;
const XOR: u8 = 0xa7;
const SHIFT_RIGHT: u8 = 0x77;
const EXIT: u8 = 0x95;

impl BpfInsn {
    const fn new(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        // The two register fields are bit fields, whose order follows the byte order.
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        Self { code, registers, offset, immediate }
    }
}

/// Assembles the program of a filter.
///
/// The context is `struct bpf_cgroup_dev_ctx`: a word with the accesses above 16 bits of kind, the major
/// and the minor number. The program returns 1 to allow and 0 to deny (the kernel then answers EPERM).
///
/// It has no branches: the kernel's verifier follows each way through a program, which made loading the same
/// filter with jumps cost 0.35 ms instead of 0.1.
pub fn device_program(filter: &DeviceFilter) -> Vec<BpfInsn> {
    let op = |code, to, immediate| BpfInsn::new(code, to, 0, 0, immediate);
    let register = |code, to, from| BpfInsn::new(code, to, from, 0, 0);
    // 1 where it was 0, else 0: all values are below 2^32, so that only 0 - 1 has the highest bit set.
    let is_zero = |to| [op(SUBTRACT, to, 1), op(SHIFT_RIGHT, to, 63)];
    let mut program = vec![
        BpfInsn::new(LOAD_WORD, KIND, CONTEXT, 0, 0),
        register(MOVE_REGISTER, ACCESS, KIND),
        op(AND, KIND, 0xffff),
        op(SHIFT_RIGHT, ACCESS, 16),
        BpfInsn::new(LOAD_WORD, MAJOR, CONTEXT, 4, 0),
        BpfInsn::new(LOAD_WORD, MINOR, CONTEXT, 8, 0),
        op(MOVE, VERDICT, 0),
    ];
    for set in filter.exceptions() {
        // An exception from "allow" denies a request for any of its accesses, and one from "deny" allows a
        // request for nothing but its accesses.
        let mask = access_mask(set.access);
        program.push(register(MOVE_REGISTER, MISMATCH, ACCESS));
        if filter.default_verdict() {
            program.push(op(AND, MISMATCH, mask));
            program.extend(is_zero(MISMATCH));
        } else {
            program.push(op(AND, MISMATCH, !mask));
        }
        let number = |number: Option<u32>| number.and_then(|number| i32::try_from(number).ok());
        let parts =
            [(KIND, Some(kind_number(set.kind))), (MAJOR, number(set.major)), (MINOR, number(set.minor))];
        // Numbers above i32::MAX were refused when the rule was read.
        for (part, wanted) in parts.into_iter().filter_map(|(part, wanted)| Some((part, wanted?))) {
            program.extend([
                register(MOVE_REGISTER, PART, part),
                op(XOR, PART, wanted),
                register(OR_REGISTER, MISMATCH, PART),
            ]);
        }
        program.extend(is_zero(MISMATCH));
        program.push(register(OR_REGISTER, VERDICT, MISMATCH));
    }
    // The verifier wants to see that nothing but 0 or 1 can come out.
    program.extend([
        op(AND, VERDICT, 1),
        op(XOR, VERDICT, i32::from(filter.default_verdict())),
        op(EXIT, 0, 0),
    ]);
    program
}

/// `BPF_DEVCG_DEV_*`.
fn kind_number(kind: DeviceKind) -> i32 {
    match kind {
        DeviceKind::Block => 1,
        DeviceKind::Char => 2,
    }
}

/// `BPF_DEVCG_ACC_*`.
fn access_mask(access: Access) -> i32 {
    i32::from(access.mknod) | i32::from(access.read) << 1 | i32::from(access.write) << 2
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The parts of `union bpf_attr` that are used; the kernel takes the rest as zero.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct AttachAttr {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
}

#[repr(C)]
struct QueryAttr {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
}

#[repr(C)]
struct InfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Head of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    prog_type: u32,
    id: u32,
}

/// # Safety
/// Every address in `attr` must be valid for what `command` does with it.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<i32> {
    // SAFETY: `attr` lives through the call and its size is given; the caller vouches for the addresses in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}

fn raw(fd: &impl AsRawFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

/// A program in the kernel.
#[derive(Debug)]
pub(super) struct Program {
    fd: OwnedFd,
    id: u32,
}

/// How many different filters one process keeps loaded.
const CACHED: usize = 16;

/// Loads the filter's program, once per process: it costs 0.1 ms. `path` is for the error.
pub(super) fn load(filter: &DeviceFilter, path: &Path) -> Result<Arc<Program>, CgroupError> {
    static LOADED: Mutex<Vec<(DeviceFilter, Arc<Program>)>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, program)) = loaded.iter().find(|(known, _)| known == filter) {
        return Ok(Arc::clone(program));
    }
    let program = Program::load(&device_program(filter))
        .map_err(|source| CgroupError::io("load the device program (needs root) for", path, source))?;
    let program = Arc::new(program);
    if loaded.len() == CACHED {
        loaded.remove(0);
    }
    loaded.push((filter.clone(), Arc::clone(&program)));
    Ok(program)
}

impl Program {
    fn load(instructions: &[BpfInsn]) -> io::Result<Self> {
        const LICENSE: &std::ffi::CStr = c"Apache-2.0";
        let mut attr = LoadAttr {
            prog_type: BPF_PROG_TYPE_CGROUP_DEVICE,
            insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
            insns: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            prog_name: *b"airlock_devices\0",
            expected_attach_type: BPF_CGROUP_DEVICE,
            ..LoadAttr::default()
        };
        // SAFETY: `insns` points to `insn_cnt` instructions and `license` to a string, both outliving the call.
        let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attr) }?;
        // SAFETY: the kernel has just made this descriptor (close-on-exec) for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut info = ProgInfo::default();
        let mut attr = InfoAttr {
            bpf_fd: raw(&fd),
            info_len: u32::try_from(size_of::<ProgInfo>()).map_err(io::Error::other)?,
            info: std::ptr::from_mut(&mut info) as u64,
        };
        // SAFETY: `info` points to `info_len` writable bytes, outliving the call.
        unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }?;
        Ok(Self { fd, id: info.id })
    }

    /// The kernel's number for it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Attaches it to a v2 directory, beside programs of the parents; all of them must allow an access.
    /// O_PATH descriptors are refused.
    pub(super) fn attach(&self, dir: BorrowedFd<'_>, path: &Path) -> Result<(), CgroupError> {
        let mut attr = AttachAttr {
            target_fd: raw(&dir),
            attach_bpf_fd: raw(&self.fd),
            attach_type: BPF_CGROUP_DEVICE,
            attach_flags: BPF_F_ALLOW_MULTI,
        };
        // SAFETY: the attribute holds no addresses.
        let attached = unsafe { bpf(BPF_PROG_ATTACH, &mut attr) };
        attached.map(drop).map_err(|source| CgroupError::io("attach the device program to", path, source))
    }
}

/// Ids of the device programs attached to a v2 directory itself.
pub(super) fn attached(dir: BorrowedFd<'_>, path: &Path) -> Result<Vec<u32>, CgroupError> {
    let mut ids = vec![0_u32; 64];
    let mut attr = QueryAttr {
        target_fd: raw(&dir),
        attach_type: BPF_CGROUP_DEVICE,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: ids.as_mut_ptr() as u64,
        prog_cnt: 64,
        padding: 0,
    };
    // SAFETY: `prog_ids` points to `prog_cnt` writable words, outliving the call.
    unsafe { bpf(BPF_PROG_QUERY, &mut attr) }
        .map_err(|source| CgroupError::io("query the device programs of", path, source))?;
    ids.truncate(attr.prog_cnt as usize);
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::super::devices::{DeviceRule, DeviceSet, Devices};
    use super::*;

    /// Runs a program as the kernel would, for the instructions that the assembler uses.
    fn run(program: &[BpfInsn], kind: i32, access: i32, major: u32, minor: u32) -> bool {
        let context = [u64::from((access << 16 | kind).cast_unsigned()), major.into(), minor.into()];
        let mut registers = [0_u64; 11];
        for &BpfInsn { code, registers: fields, offset, immediate } in program {
            let (to, from) = (usize::from(fields & 15), usize::from(fields >> 4));
            let constant = i64::from(immediate).cast_unsigned();
            match code {
                LOAD_WORD => registers[to] = context[usize::try_from(offset).unwrap() / 4],
                MOVE_REGISTER => registers[to] = registers[from],
                OR_REGISTER => registers[to] |= registers[from],
                MOVE => registers[to] = constant,
                SUBTRACT => registers[to] = registers[to].wrapping_sub(constant),
                AND => registers[to] &= constant,
                XOR => registers[to] ^= constant,
                SHIFT_RIGHT => registers[to] >>= constant,
                EXIT => {
                    assert!(registers[0] < 2, "the kernel takes 0 and 1 only");
                    return registers[0] == 1;
                }
                _ => panic!("unknown instruction {code:#x}"),
            }
        }
        panic!("the program does not end")
    }

    fn set(kind: DeviceKind, major: Option<u32>, minor: Option<u32>, read: bool, write: bool) -> Devices {
        Devices::Set(DeviceSet { kind, major, minor, access: Access { read, write, mknod: false } })
    }

    fn program(rules: &[(bool, Devices)]) -> Vec<BpfInsn> {
        let rules: Vec<_> = rules.iter().map(|&(allow, devices)| DeviceRule { allow, devices }).collect();
        DeviceFilter::compile(&rules).unwrap().program()
    }

    const READ: i32 = 2;
    const WRITE: i32 = 4;
    const CHAR: i32 = 2;
    const BLOCK: i32 = 1;

    #[test]
    fn without_rules_everything_is_denied() {
        let program = program(&[]);
        assert!(!run(&program, CHAR, READ, 1, 3));
        assert!(!run(&program, BLOCK, WRITE, 8, 0));
    }

    #[test]
    fn an_allowed_set_allows_its_accesses_and_no_more() {
        let program = program(&[
            (false, Devices::All),
            (true, set(DeviceKind::Char, Some(1), Some(3), true, false)),
            (true, set(DeviceKind::Char, Some(136), None, true, true)),
        ]);
        assert!(run(&program, CHAR, READ, 1, 3));
        assert!(!run(&program, CHAR, WRITE, 1, 3));
        assert!(!run(&program, CHAR, READ | WRITE, 1, 3), "half allowed is denied");
        assert!(!run(&program, CHAR, READ, 1, 5), "another minor");
        assert!(!run(&program, BLOCK, READ, 1, 3), "another kind");
        assert!(run(&program, CHAR, READ | WRITE, 136, 77), "any minor");
        assert!(!run(&program, CHAR, 1, 136, 77), "mknod");
    }

    #[test]
    fn read_and_write_allowed_by_two_rules_are_allowed_together() {
        let program = program(&[
            (true, set(DeviceKind::Char, Some(1), Some(3), true, false)),
            (true, set(DeviceKind::Char, Some(1), Some(3), false, true)),
        ]);
        assert!(run(&program, CHAR, READ | WRITE, 1, 3));
    }

    #[test]
    fn a_denied_set_denies_any_request_that_touches_it() {
        let program =
            program(&[(true, Devices::All), (false, set(DeviceKind::Block, None, None, false, true))]);
        assert!(run(&program, BLOCK, READ, 8, 0));
        assert!(!run(&program, BLOCK, READ | WRITE, 8, 0));
        assert!(run(&program, CHAR, WRITE, 8, 0));
    }
}
