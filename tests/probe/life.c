/* Processes, signals, and use of resources. */
#include "probe.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static void rest(double seconds)
{
	struct timespec left = { .tv_sec = seconds, .tv_nsec = (seconds - (long)seconds) * 1e9 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static void send_signal(char **argument)
{
	tried(kill(number(argument[0]), number(argument[1])));
	done("sent");
}

/* Touches BYTES of memory. */
static void eat(char **argument)
{
	size_t size = number(argument[0]);
	char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		refused();
	for (size_t at = 0; at < size; at += 4096)
		memory[at] = 1;
	done("eaten");
}

static void end_group(void)
{
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	while (wait(0) > 0)
		;
}

/* Has COUNT children alive at once, in a process group of its own. */
static void children(char **argument)
{
	setpgid(0, 0);
	for (long left = number(argument[0]); left; left--) {
		pid_t child = fork();

		if (child < 0) {
			int reason = errno;

			end_group();
			errno = reason;
			refused();
		}
		if (!child) {
			pause();
			_exit(0);
		}
	}
	end_group();
	done("forked");
}

/* Forks without end and without mercy. */
static void bomb(char **argument)
{
	(void)argument;
	signal(SIGTERM, SIG_IGN);
	for (;;)
		fork();
}

/* Computes for SECONDS of wall time; says the CPU time it got, in milliseconds. */
static void spin(char **argument)
{
	struct timespec now, end;
	struct rusage used;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += number(argument[0]);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	getrusage(RUSAGE_SELF, &used);
	done("%ld", used.ru_utime.tv_sec * 1000 + used.ru_utime.tv_usec / 1000 +
			    used.ru_stime.tv_sec * 1000 + used.ru_stime.tv_usec / 1000);
}

static void limit(char **argument)
{
	struct rlimit both;

	tried(getrlimit(number(argument[0]), &both));
	done("%ld %ld", (long)both.rlim_cur, (long)both.rlim_max);
}

/* Has COUNT inotify instances at once. */
static void watchers(char **argument)
{
	for (long left = number(argument[0]); left; left--)
		tried(inotify_init1(0));
	done("made");
}

/* Watches COUNT files of its own making. */
static void watches(char **argument)
{
	int watcher = tried(inotify_init1(0));
	char name[64];

	for (long left = number(argument[0]); left; left--) {
		snprintf(name, sizeof name, "/tmp/watched-%ld", left);
		close(tried(open(name, O_CREAT | O_WRONLY, 0600)));
		tried(inotify_add_watch(watcher, name, IN_MODIFY));
	}
	done("watched");
}

/* Has COUNT children in user and host name namespaces of their own at once. */
static void namespaces(char **argument)
{
	setpgid(0, 0);
	for (long left = number(argument[0]); left; left--) {
		int reason = 0, answer[2];

		tried(pipe(answer));
		if (!tried(fork())) {
			reason = unshare(CLONE_NEWUSER | CLONE_NEWUTS) ? errno : 0;
			reason = write(answer[1], &reason, sizeof reason) < 0;
			pause();
			_exit(reason);
		}
		close(answer[1]);
		tried(read(answer[0], &reason, sizeof reason));
		close(answer[0]);
		if (reason) {
			end_group();
			errno = reason;
			refused();
		}
	}
	end_group();
	done("made");
}

static volatile sig_atomic_t seen;

static void note(int which)
{
	seen = which;
}

/* Says "ready", waits for a signal, and exits with its number. */
static void wait_signal(char **argument)
{
	const int wanted[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT };
	sigset_t none;

	(void)argument;
	for (size_t index = 0; index < sizeof wanted / sizeof *wanted; index++) {
		struct sigaction action = { .sa_handler = note };
		sigset_t blocked;

		sigemptyset(&blocked);
		sigaddset(&blocked, wanted[index]);
		sigprocmask(SIG_BLOCK, &blocked, 0);
		sigaction(wanted[index], &action, 0);
	}
	sigemptyset(&none);
	puts("ready");
	fflush(stdout);
	while (!seen)
		sigsuspend(&none);
	exit(seen);
}

/* Ignores all that can be ignored, says "ready", and stays. */
static void stay(char **argument)
{
	(void)argument;
	for (int which = 1; which < 32; which++)
		signal(which, SIG_IGN);
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}

/* Leaves COUNT orphans that end at once; after a moment counts the zombies that it can see. */
static void orphans(char **argument)
{
	char path[64], line[512];
	long zombies = 0;

	for (long left = number(argument[0]); left; left--)
		if (!tried(fork())) {
			if (!fork())
				_exit(0);
			_exit(0);
		}
	while (wait(0) > 0)
		;
	rest(0.3);
	for (int pid = 1; pid < 4096; pid++) {
		FILE *file;

		snprintf(path, sizeof path, "/proc/%d/stat", pid);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(line, sizeof line, file) && strstr(line, ") Z "))
			zombies++;
		fclose(file);
	}
	done("%ld", zombies);
}

/* A daemon: forks twice, starts its own session, keeps the standard descriptors, stays SECONDS. */
static void daemonize(char **argument)
{
	if (!tried(fork())) {
		setsid();
		if (!fork())
			rest(number(argument[0]));
		_exit(0);
	}
	wait(0);
	done("left");
}

static void stop_self(char **argument)
{
	(void)argument;
	puts("ready");
	fflush(stdout);
	raise(SIGSTOP);
	done("continued");
}

/* Prints BYTES. */
static void pour(char **argument)
{
	static char block[1 << 16];

	memset(block, 'x', sizeof block);
	for (long left = number(argument[0]); left > 0;) {
		long step = left < (long)sizeof block ? left : (long)sizeof block;

		left -= tried(write(1, block, step));
	}
	exit(0);
}

/* Closes its standard descriptors, then exits with STATUS. */
static void close_all(char **argument)
{
	close_range(0, ~0U, 0);
	_exit(number(argument[0]));
}

static void die_by(char **argument)
{
	int which = number(argument[0]);

	signal(which, SIG_DFL);
	raise(which);
	exit(2);
}

static void rest_for(char **argument)
{
	puts("ready");
	fflush(stdout);
	rest(atof(argument[0]));
	exit(0);
}

/* Says whether a core could be dumped: "ok 1" means that the kernel would try. */
static void dumpable(char **argument)
{
	(void)argument;
	done("%d", prctl(PR_GET_DUMPABLE));
}

const struct action life_actions[] = {
	{ "signal", 2, send_signal },
	{ "eat", 1, eat },
	{ "children", 1, children },
	{ "bomb", 0, bomb },
	{ "spin", 1, spin },
	{ "limit", 1, limit },
	{ "watchers", 1, watchers },
	{ "watches", 1, watches },
	{ "namespaces", 1, namespaces },
	{ "wait-signal", 0, wait_signal },
	{ "stay", 0, stay },
	{ "orphans", 1, orphans },
	{ "daemonize", 1, daemonize },
	{ "stop-self", 0, stop_self },
	{ "pour", 1, pour },
	{ "close-all", 1, close_all },
	{ "die-by", 1, die_by },
	{ "rest", 1, rest_for },
	{ "dumpable", 0, dumpable },
	{ 0 },
};
