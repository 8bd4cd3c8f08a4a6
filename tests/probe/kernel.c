/* System calls: by name with plain arguments, and through the two other entry tables. */
#include "probe.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CALL(name) { #name, SYS_##name }

static const struct {
	const char *name;
	long number;
} calls[] = {
	CALL(acct),
	CALL(add_key),
	CALL(adjtimex),
	CALL(bpf),
	CALL(clock_settime),
	CALL(clone),
	CALL(clone3),
	CALL(delete_module),
	CALL(fanotify_init),
	CALL(finit_module),
	CALL(fsopen),
	CALL(fspick),
	CALL(init_module),
	CALL(io_uring_enter),
	CALL(io_uring_register),
	CALL(io_uring_setup),
	CALL(ioctl),
	CALL(kcmp),
	CALL(kexec_load),
	CALL(keyctl),
	CALL(lookup_dcookie),
	CALL(mount),
	CALL(mount_setattr),
	CALL(move_mount),
	CALL(name_to_handle_at),
	CALL(open_by_handle_at),
	CALL(open_tree),
	CALL(perf_event_open),
	CALL(personality),
	CALL(pivot_root),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(ptrace),
	CALL(quotactl),
	CALL(request_key),
	CALL(setns),
	CALL(settimeofday),
	CALL(swapoff),
	CALL(swapon),
	CALL(syslog),
	CALL(umount2),
	CALL(unshare),
	CALL(userfaultfd),
};

/* call NAME [ARGUMENT...]: "buffer" stands for a zeroed page, "nowhere" for a bad pointer. */
static void call(char **argument)
{
	static char buffer[4096];
	long values[6] = { 0 }, code = -1;

	for (size_t index = 0; index < sizeof calls / sizeof *calls; index++)
		if (!strcmp(calls[index].name, argument[0]))
			code = calls[index].number;
	if (code < 0)
		code = number(argument[0]);
	for (int index = 0; index < 6 && argument[index + 1]; index++) {
		const char *word = argument[index + 1];

		if (!strcmp(word, "buffer"))
			values[index] = (long)buffer;
		else if (!strcmp(word, "nowhere"))
			values[index] = 8;
		else
			values[index] = number(word);
	}
	done("%ld", tried(syscall(code, values[0], values[1], values[2], values[3], values[4], values[5])));
}

/* getpid by its number in the x32 table. */
static void x32(char **argument)
{
	(void)argument;
	done("%ld", tried(syscall(0x40000000 | SYS_getpid)));
}

/* getpid by its number in the i386 table. */
static void int80(char **argument)
{
	long result;

	(void)argument;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	done("%ld", result);
}

/* Attaches to a child of its own. */
static void trace(char **argument)
{
	pid_t child = tried(fork());

	(void)argument;
	if (!child) {
		pause();
		_exit(0);
	}
	if (ptrace(PTRACE_SEIZE, child, 0, 0) < 0) {
		int reason = errno;

		kill(child, SIGKILL);
		errno = reason;
		refused();
	}
	kill(child, SIGKILL);
	done("attached");
}

/* Makes the mount at PATH read-only. */
static void set_read_only(char **argument)
{
	struct mount_attr change = { .attr_set = MOUNT_ATTR_RDONLY };

	tried(syscall(SYS_mount_setattr, -100, argument[0], 0, &change, sizeof change));
	done("changed");
}

/* Makes the mount at PATH writable. */
static void set_writable(char **argument)
{
	struct mount_attr change = { .attr_clr = MOUNT_ATTR_RDONLY };

	tried(syscall(SYS_mount_setattr, -100, argument[0], 0, &change, sizeof change));
	done("changed");
}

static void unmount(char **argument)
{
	tried(umount2(argument[0], MNT_DETACH));
	done("unmounted");
}

static void mount_tmpfs(char **argument)
{
	tried(mount("tmpfs", argument[0], "tmpfs", 0, 0));
	done("mounted");
}

/* A child in new namespaces by clone(2), which the flags' mask in the filter must see. */
static void clone_with(char **argument)
{
	long child = tried(syscall(SYS_clone, number(argument[0]) | SIGCHLD, 0, 0, 0, 0));

	if (!child)
		_exit(0);
	done("cloned");
}

static void set_host_name(char **argument)
{
	tried(sethostname(argument[0], strlen(argument[0])));
	done("set");
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	if (file < 0 || write(file, text, strlen(text)) < 0) {
		fprintf(stderr, "probe: %s: %s\n", path, strerror(errno));
		exit(2);
	}
	close(file);
}

/* Another action, done by root of a user namespace made for it, with namespaces of mounts and the host name. */
static void nested(char **argument)
{
	char uids[32], gids[32];

	snprintf(uids, sizeof uids, "0 %d 1", getuid());
	snprintf(gids, sizeof gids, "0 %d 1", getgid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS) < 0) {
		perror("probe: unshare");
		exit(2);
	}
	put("/proc/self/uid_map", uids);
	put("/proc/self/setgroups", "deny");
	put("/proc/self/gid_map", gids);
	act(argument);
}

const struct action kernel_actions[] = {
	{ "call", 1, call },
	{ "x32", 0, x32 },
	{ "int80", 0, int80 },
	{ "trace", 0, trace },
	{ "set-read-only", 1, set_read_only },
	{ "set-writable", 1, set_writable },
	{ "unmount", 1, unmount },
	{ "mount-tmpfs", 1, mount_tmpfs },
	{ "clone-with", 1, clone_with },
	{ "set-host-name", 1, set_host_name },
	{ "nested", 1, nested },
	{ 0 },
};
