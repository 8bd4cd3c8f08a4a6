#include "probe.h"
#include <stdarg.h>

void done(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("ok ", stdout);
	vprintf(format, list);
	putchar('\n');
	va_end(list);
	exit(0);
}

void refused(void)
{
	const char *name = strerrorname_np(errno);

	printf("refused %s\n", name ? name : "unknown");
	exit(1);
}

long tried(long result)
{
	if (result < 0)
		refused();
	return result;
}

long number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 0);

	if (end == text || *end) {
		fprintf(stderr, "probe: not a number: %s\n", text);
		exit(2);
	}
	return value;
}

void act(char **words)
{
	const struct action *groups[] = { file_actions, ipc_actions, kernel_actions, life_actions };
	int count = 0;

	while (words[count])
		count++;
	for (size_t group = 0; count && group < sizeof groups / sizeof *groups; group++)
		for (const struct action *action = groups[group]; action->name; action++)
			if (!strcmp(action->name, words[0])) {
				if (count - 1 < action->arguments) {
					fprintf(stderr, "probe: %s takes %d\n", words[0], action->arguments);
					exit(2);
				}
				action->act(words + 1);
				exit(0);
			}
	fprintf(stderr, "probe: no action %s\n", count ? words[0] : "given");
	exit(2);
}

int main(int count, char **words)
{
	(void)count;
	act(words + 1);
}
