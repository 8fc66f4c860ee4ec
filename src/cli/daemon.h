/* What the daemons' verbs have in common. */
#pragma once
#include <signal.h>

#include "base/error.h"

/* A daemon that can't say after this that it is ready ends. */
#define CLI_READY_NS UINT64_C(15000000000)

/* SIGINT and SIGTERM are waited for, from now on, in all threads. */
void cli_block_signals(sigset_t *ret);
/* Returns which one came. */
int cli_wait_signal(const sigset_t *signals);
/* A line on stderr: time, role (arg), what happened. */
void cli_daemon_log(void *role, const char *message);
/* An address beyond this machine is refused without TLS, unless told otherwise. */
int cli_check_listen(const char *address, bool insecure, struct cw_error *err) _must_check_;
