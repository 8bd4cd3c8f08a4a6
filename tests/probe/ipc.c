/* Networks, sockets, System V and POSIX objects, keys. */
#include "probe.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum { SESSION_KEYRING = -3, READ_ID = 0, SEARCH = 10, UNLINK = 9 };

static struct sockaddr_in loopback(const char *port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(number(port)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static void connect_tcp(char **argument)
{
	struct sockaddr_in address = loopback(argument[0]);
	int peer = tried(socket(AF_INET, SOCK_STREAM, 0));

	tried(connect(peer, (struct sockaddr *)&address, sizeof address));
	done("connected");
}

static void bind_tcp(char **argument)
{
	struct sockaddr_in address = loopback(argument[0]);
	int listener = tried(socket(AF_INET, SOCK_STREAM, 0));

	tried(bind(listener, (struct sockaddr *)&address, sizeof address));
	tried(listen(listener, 1));
	done("bound");
}

/* Listens on the loopback interface and connects to itself. */
static void talk_to_self(char **argument)
{
	struct sockaddr_in address = loopback("0");
	socklen_t length = sizeof address;
	int listener = tried(socket(AF_INET, SOCK_STREAM, 0));
	int peer = tried(socket(AF_INET, SOCK_STREAM, 0));

	(void)argument;
	tried(bind(listener, (struct sockaddr *)&address, sizeof address));
	tried(listen(listener, 1));
	tried(getsockname(listener, (struct sockaddr *)&address, &length));
	tried(connect(peer, (struct sockaddr *)&address, length));
	done("connected");
}

/* A name that starts with @ is abstract. */
static void connect_unix(char **argument)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t length = strlen(argument[0]);
	int peer = tried(socket(AF_UNIX, SOCK_STREAM, 0));

	if (length >= sizeof address.sun_path)
		exit(2);
	memcpy(address.sun_path, argument[0], length);
	if (address.sun_path[0] == '@')
		address.sun_path[0] = 0;
	tried(connect(peer, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + length));
	done("connected");
}

static void interfaces(char **argument)
{
	struct if_nameindex *all = if_nameindex();

	(void)argument;
	if (!all)
		refused();
	printf("ok");
	for (struct if_nameindex *one = all; one->if_index; one++)
		printf(" %s", one->if_name);
	putchar('\n');
}

static void open_socket(char **argument)
{
	tried(socket(number(argument[0]), number(argument[1]), number(argument[2])));
	done("opened");
}

static void attach_segment(char **argument)
{
	tried(shmget(number(argument[0]), 0, 0));
	done("found");
}

static void make_segment(char **argument)
{
	tried(shmget(number(argument[0]), 4096, IPC_CREAT | IPC_EXCL | 0666));
	done("made");
}

static void open_queue(char **argument)
{
	tried(mq_open(argument[0], O_RDONLY));
	done("opened");
}

static void make_queue(char **argument)
{
	struct mq_attr small = { .mq_maxmsg = 1, .mq_msgsize = 64 };

	tried(mq_open(argument[0], O_CREAT | O_EXCL | O_RDWR, 0666, &small));
	done("made");
}

static void make_key(char **argument)
{
	long key = tried(syscall(SYS_add_key, "user", argument[0], "x", 1, SESSION_KEYRING));

	done("%ld", key);
}

static void find_key(char **argument)
{
	long key = tried(syscall(SYS_keyctl, SEARCH, SESSION_KEYRING, "user", argument[0], 0));

	done("%ld", key);
}

static void keyring(char **argument)
{
	(void)argument;
	done("%ld", tried(syscall(SYS_keyctl, READ_ID, SESSION_KEYRING, 0)));
}

static volatile sig_atomic_t told;

static void tell(int which)
{
	(void)which;
	told = 1;
}

/* Prints the ids outside of this user namespace, and how many processes are in sight. */
static void look_around(void)
{
	char map[128] = "";
	FILE *file = fopen("/proc/self/uid_map", "r");
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	long processes = 0;

	if (!file || !folder || !fgets(map, sizeof map, file))
		refused();
	while ((entry = readdir(folder)))
		processes += atoi(entry->d_name) > 0;
	printf("ok %ld %s", processes, map);
}

/* Takes NAME and KEY for itself alone in every name space that has names: abstract sockets, System V objects,
 * files, POSIX shared memory, keys. A neighbour that had taken them already would be met with EEXIST or the like.
 * Says "ready", waits for SIGTERM, looks around, and gives them back. */
static void neighbour(char **argument)
{
	const char *name = argument[0];
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct sigaction action = { .sa_handler = tell };
	char file[64], shared[64];
	sigset_t blocked, none;
	long key;
	int segment, listener = tried(socket(AF_UNIX, SOCK_STREAM, 0));

	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, 0);
	sigaction(SIGTERM, &action, 0);

	snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	tried(bind(listener, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
	segment = tried(shmget(number(argument[1]), 4096, IPC_CREAT | IPC_EXCL | 0600));
	snprintf(file, sizeof file, "/tmp/%s", name);
	tried(open(file, O_CREAT | O_EXCL | O_WRONLY, 0600));
	snprintf(shared, sizeof shared, "/%s", name);
	tried(shm_open(shared, O_CREAT | O_EXCL | O_RDWR, 0600));
	if (syscall(SYS_keyctl, SEARCH, SESSION_KEYRING, "user", name, 0) >= 0) {
		errno = EEXIST;
		refused();
	}
	key = tried(syscall(SYS_add_key, "user", name, "x", 1, SESSION_KEYRING));

	puts("ready");
	fflush(stdout);
	while (!told)
		sigsuspend(&none);
	look_around();
	unlink(file);
	shm_unlink(shared);
	shmctl(segment, IPC_RMID, 0);
	syscall(SYS_keyctl, UNLINK, key, SESSION_KEYRING);
}

const struct action ipc_actions[] = {
	{ "connect-tcp", 1, connect_tcp },
	{ "bind-tcp", 1, bind_tcp },
	{ "talk-to-self", 0, talk_to_self },
	{ "connect-unix", 1, connect_unix },
	{ "interfaces", 0, interfaces },
	{ "socket", 3, open_socket },
	{ "find-segment", 1, attach_segment },
	{ "make-segment", 1, make_segment },
	{ "open-queue", 1, open_queue },
	{ "make-queue", 1, make_queue },
	{ "make-key", 1, make_key },
	{ "find-key", 1, find_key },
	{ "keyring", 0, keyring },
	{ "neighbour", 2, neighbour },
	{ 0 },
};
