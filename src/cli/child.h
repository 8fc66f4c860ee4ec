/* Daemons as child processes: starts this program again under another verb, and waits until it serves. Called
 * by `up`. */
#pragma once
#include <jansson.h>
#include <sys/types.h>

#include "base/error.h"
#include "cli/daemon.h"

/*
 * Starts a daemon and waits until it says that it serves, or until SIGINT or SIGTERM is pending. argv:
 * "cachew", the verb ..., NULL; log: gets a warning if the daemon is slow. *ret_ready is the object that it
 * printed, new. The child gets SIGTERM when this process ends.
 */
int cli_child_start(const char *const *argv, const struct cli_log *log, pid_t *ret, json_t **ret_ready,
                    struct cw_error *err) _must_check_;
