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

int main(int count, char **words)
{
	const struct action *groups[] = { file_actions, ipc_actions, kernel_actions, life_actions };

	for (size_t group = 0; count > 1 && group < sizeof groups / sizeof *groups; group++)
		for (const struct action *action = groups[group]; action->name; action++)
			if (!strcmp(action->name, words[1])) {
				if (count - 2 < action->arguments) {
					fprintf(stderr, "probe: %s takes %d\n", words[1], action->arguments);
					return 2;
				}
				action->act(words + 2);
				return 0;
			}
	fprintf(stderr, "probe: no action %s\n", count > 1 ? words[1] : "given");
	return 2;
}
