/* Starts daemons as child processes: runs this program again with another verb, and waits until it is ready.
 * Called by `up`. */
#pragma once
#include <jansson.h>
#include <sys/types.h>

#include "base/error.h"
#include "cli/daemon.h"

/*
 * Starts a daemon and waits until it prints its line {"ready": ...}, or until SIGINT or SIGTERM, which the
 * caller has blocked, is pending (CW_E_INTERRUPTED). argv: "cachew", the verb, its options, NULL. log: gets a
 * warning if the daemon is slow. *ret is its process id, *ret_ready the object that it printed, new. The
 * child gets SIGTERM when this process ends.
 */
int cli_child_start(const char *const *argv, const struct cli_log *log, pid_t *ret, json_t **ret_ready,
                    struct cw_error *err) _must_check_;
