/* What the daemons' verbs have in common. */
#pragma once
#include <signal.h>

#include "cli/options.h"

/* SIGINT and SIGTERM are waited for, from now on, in all threads. */
void cli_block_signals(sigset_t *ret);
/* Returns which one came. */
int cli_wait_signal(const sigset_t *signals);

/* Who logs, and how. */
struct cli_log {
    const char *role;
    const char *name;   /* of several with the same role, or NULL */
    const char *format; /* --log-format: "text", "json"; NULL: text */
};

#define CLI_LOG_OPTION(log) \
    {"log-format", \
     CLI_TEXT, \
     &(log)->format, \
     "F", \
     "of what it says on stderr: text (default), or a JSON object per line", \
     0, \
     0, \
     cli_log_formats, \
     NULL}
extern const char *const cli_log_formats[];
/* A line on stderr, written as a whole: time, role, what happened. */
void cli_log(const struct cli_log *log, bool warning, const char *format, ...) _printf_(3, 4);
/* The error that ends a daemon, in the format of its log; returns the exit code. */
int cli_log_end(const struct cli_log *log, const struct cw_error *err);
/* As many open files as the system allows: connections, data and shared memory take some each. */
void cli_raise_limits(void);
/* Addresses beyond this machine are refused unless there are both TLS and a token, or --insecure. */
int cli_check_listen(const char *address, bool tls, bool token, bool insecure,
                     struct cw_error *err) _must_check_;
/* What pipelines may read below is a directory that is there. */
int cli_check_roots(const struct cli_texts *roots, struct cw_error *err) _must_check_;
/* The pages of --http have neither: they stay on this machine, unless --insecure. NULL: none. */
int cli_check_http(const char *address, bool insecure, struct cw_error *err) _must_check_;
