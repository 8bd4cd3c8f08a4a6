/* The probe: one static program, one action per run.
 *
 * It prints "ok VALUE" and exits 0, or prints "refused ERRNO" and exits 1. A wrong call of the probe
 * itself exits 2, so that a broken test never looks like a refusal. */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct action {
	const char *name;
	int arguments;
	void (*act)(char **argument);
};

extern const struct action file_actions[], ipc_actions[], kernel_actions[], life_actions[];

/* Ends the probe: the action was done. */
_Noreturn void done(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends the probe: the kernel refused, with errno. */
_Noreturn void refused(void);
/* Ends the probe if a call returned a negative value; else hands the value back. */
long tried(long result);
/* Does the action that the words name. */
void act(char **words);
/* A number in any of C's notations. */
long number(const char *text);

#endif
