/* Files, directories, devices, descriptors. */
#include "probe.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void read_file(char **argument)
{
	char text[1 << 16];
	int file = tried(open(argument[0], O_RDONLY | O_NONBLOCK));
	long length = tried(read(file, text, sizeof text - 1));

	text[length] = 0;
	done("%s", text);
}

static void open_file(char **argument)
{
	tried(open(argument[0], strcmp(argument[1], "w") ? O_RDONLY : O_WRONLY));
	done("opened");
}

static void write_file(char **argument)
{
	int file = tried(open(argument[0], O_WRONLY | O_CREAT, 0644));

	tried(write(file, argument[1], strlen(argument[1])));
	done("written");
}

static void empty_file(char **argument)
{
	tried(truncate(argument[0], 0));
	done("emptied");
}

/* Writes BYTES to PATH in blocks; says how much fitted when the space ends. */
static void fill(char **argument)
{
	static char block[1 << 16];
	long wanted = number(argument[1]);
	int file = tried(open(argument[0], O_WRONLY | O_CREAT | O_TRUNC, 0644));

	for (long written = 0; written < wanted;)
		written += tried(write(file, block, sizeof block));
	done("filled");
}

static void list(char **argument)
{
	DIR *folder = opendir(argument[0]);
	struct dirent *entry;

	if (!folder)
		refused();
	printf("ok");
	while ((entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			printf(" %s", entry->d_name);
	putchar('\n');
}

static void run(char **argument)
{
	tried(execv(argument[0], argument));
}

static void change_mode(char **argument)
{
	tried(chmod(argument[0], number(argument[1])));
	done("changed");
}

static void create_with_mode(char **argument)
{
	umask(0);
	tried(open(argument[0], O_WRONLY | O_CREAT | O_EXCL, number(argument[1])));
	done("created");
}

static void make_node(char **argument)
{
	dev_t device = makedev(number(argument[1]), number(argument[2]));

	tried(mknod(argument[0], S_IFCHR | 0666, device));
	done("made");
}

/* Makes a file at PATH and renames it so that a whiteout, a device, stays there. */
static void leave_whiteout(char **argument)
{
	char moved[PATH_MAX];

	snprintf(moved, sizeof moved, "%s.moved", argument[0]);
	if (open(argument[0], O_WRONLY | O_CREAT | O_EXCL, 0644) < 0) {
		perror("probe: create");
		exit(2);
	}
	tried(renameat2(AT_FDCWD, argument[0], AT_FDCWD, moved, RENAME_WHITEOUT));
	done("left");
}

static void working_directory(char **argument)
{
	char path[PATH_MAX];

	(void)argument;
	if (!getcwd(path, sizeof path))
		refused();
	done("%s", path);
}

/* Opens COUNT descriptors. */
static void open_many(char **argument)
{
	for (long left = number(argument[0]); left; left--)
		tried(open("/", O_PATH));
	done("opened");
}

/* Names every open descriptor and what it is, the one for reading the list left out. */
static void descriptors(char **argument)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[PATH_MAX];

	(void)argument;
	if (!folder)
		refused();
	printf("ok");
	while ((entry = readdir(folder))) {
		long length;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(folder))
			continue;
		length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		printf(" %s=%s", entry->d_name, target);
	}
	putchar('\n');
}

const struct action file_actions[] = {
	{ "read", 1, read_file },
	{ "open", 2, open_file },
	{ "write", 2, write_file },
	{ "empty", 1, empty_file },
	{ "fill", 2, fill },
	{ "list", 1, list },
	{ "run", 1, run },
	{ "chmod", 2, change_mode },
	{ "create", 2, create_with_mode },
	{ "mknod", 3, make_node },
	{ "whiteout", 1, leave_whiteout },
	{ "cwd", 0, working_directory },
	{ "open-many", 1, open_many },
	{ "descriptors", 0, descriptors },
	{ 0 },
};
