/* Daemons as child processes: this program again, under another verb. */
#pragma once
#include <jansson.h>
#include <sys/types.h>

#include "base/error.h"

struct cli_log;

struct cli_child_options {
    const char *const *argv;    /* "cachew", the verb ..., NULL */
    const struct cli_log *slow; /* where a warning goes if it is slow; NULL: nobody is told */
};

/*
 * Starts it and waits until it says that it serves, which takes long on a slow machine. *ret_ready: what it
 * said, new. It gets SIGTERM when this process ends.
 */
int cli_child_start(const struct cli_child_options *o, pid_t *ret, json_t **ret_ready,
                    struct cw_error *err) _must_check_;
