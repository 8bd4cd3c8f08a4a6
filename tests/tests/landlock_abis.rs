//! Every Landlock ABI below the kernel's: a kernel that has no more is made by answering for it, from outside of
//! Airlock, what landlock_create_ruleset(2) says its version is (seccomp_unotify(2)).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::thread::JoinHandle;

use airlock_tests::{Outcome, Run, Site, reader, record_refusal, skip};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Installs a filter that asks its listener about queries of Landlock's version, and allows all else.
fn install() -> io::Result<OwnedFd> {
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const NUMBER: u32 = 0;
    /// The lower half of the third argument.
    const FLAGS: u32 = 32;
    /// LANDLOCK_CREATE_RULESET_VERSION of `linux/landlock.h`.
    const VERSION: u32 = 1;
    let create = u32::try_from(libc::SYS_landlock_create_ruleset).map_err(io::Error::other)?;
    let mut filter = [
        line(LOAD, 0, 0, NUMBER),
        line(IF_EQUAL, 0, 3, create),
        line(LOAD, 0, 0, FLAGS),
        line(IF_EQUAL, 0, 1, VERSION),
        line(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        line(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: the program's six instructions outlive the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match i32::try_from(listener) {
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(number @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a descriptor, without allocating.
fn send(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    buffer.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"l")], &mut buffer, SendFlags::empty())?;
    Ok(())
}

fn receive(socket: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut buffer, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut listeners = buffer.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    listeners.next().expect("the listener")
}

/// Answers every query with this version until nobody is left who could ask; says how many there were.
fn answer(listener: &File, version: u8) -> u32 {
    let mut answered = 0;
    loop {
        let mut ready = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::NONE).unwrap();
        if !ready[0].revents().unwrap().contains(PollFlags::POLLIN) {
            return answered;
        }
        // SAFETY: all zero is a value of this structure of numbers, and the one that the call wants.
        let mut query: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one such structure.
        if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut query) } != 0 {
            // The one who asked was killed meanwhile.
            continue;
        }
        let reply = libc::seccomp_notif_resp { id: query.id, val: version.into(), error: 0, flags: 0 };
        // SAFETY: the kernel reads one such structure.
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const reply) };
        answered += 1;
    }
}

/// The run on a kernel with this ABI, and who answers for that kernel once it is started.
fn with_abi(run: Run<'_>, version: u8) -> (Run<'_>, JoinHandle<u32>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let run = run.with(|command| {
        // SAFETY: the closure makes three system calls and allocates nothing.
        unsafe { command.pre_exec(move || send(theirs.as_fd(), install()?.as_fd())) };
    });
    (run, std::thread::spawn(move || answer(&File::from(receive(&ours)), version)))
}

/// What a report must say of an ABI: written from the kernel's documentation (userspace-api/landlock.rst).
fn said(version: u8) -> String {
    let lacks = [
        (3, "truncating files (needs ABI 3)"),
        (5, "ioctl on devices (needs ABI 5)"),
        (6, "signals and abstract sockets (needs ABI 6)"),
        (9, "connecting to sockets in mounted directories (needs ABI 9)"),
    ];
    let lacks: Vec<&str> =
        lacks.iter().filter(|(since, _)| version < *since).map(|(_, lack)| *lack).collect();
    match lacks[..] {
        [] => format!("Landlock ABI {version}"),
        _ => format!("Landlock ABI {version}, which cannot restrict {}", lacks.join(", ")),
    }
}

#[test]
fn each_abi_below_the_kernels_is_used_as_far_as_it_goes_and_no_further_is_promised() {
    let newest = u8::try_from(reader::landlock_abi()).unwrap_or(0);
    if newest == 0 {
        skip!("this kernel has no Landlock");
    }
    let site = Site::new();
    let data = site.folder("data");
    let policy = |landlock: &str| {
        let mount =
            format!("[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\nmode = \"rw\"\n", data.display());
        site.policy(&format!("[landlock]\n{landlock}\n{mount}"))
    };
    for version in 1..=newest {
        let end = |landlock: &str, action: &[&str]| {
            let (run, answers) = with_abi(site.run().policy(policy(landlock)), version);
            let ended = run.end([&["/probe/probe"], action].concat());
            assert!(answers.join().unwrap() > 0, "nobody asked for the ABI: {ended}");
            ended
        };
        let lacking = end(&format!("min_abi = {}", version + 1), &["cwd"]);
        let message = format!("the policy asks for ABI {}, this kernel has {version}", version + 1);
        record_refusal(
            "a Landlock ABI above the kernel's",
            &lacking.refused(&[&message, "newer kernel"]).stderr,
        );

        let ended = end("write = [\"/data\"]", &["write", "/data/kept", "content"]);
        Outcome::of(&ended).done();
        let report = ended.report();
        let lines = report.field("enforced").as_array().unwrap();
        let of_landlock = lines.iter().find(|line| line["clause"] == "landlock.min_abi").unwrap();
        assert_eq!(of_landlock["what"], said(version), "{report}");

        let narrow = "write = [\"/tmp\"]";
        Outcome::of(&end(narrow, &["write", "/data/new", "x"])).refused(&["EACCES"]);
        let emptied = Outcome::of(&end(narrow, &["empty", "/data/kept"]));
        if version < 3 { drop(emptied.done()) } else { emptied.refused(&["EACCES"]) }
    }
}
