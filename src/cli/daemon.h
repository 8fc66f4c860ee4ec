/* Shared by the verbs that run daemons (`dispatcher`, `worker`, `provision`, `up`): their log, the line that
 * reports that they are ready, and checks of their options. */
#pragma once
#include <jansson.h>

#include "cli/credentials.h"

struct cli_log { /* the parts that all lines of a daemon's log share; borrowed texts */
    const char *role;
    const char *name;   /* tells daemons with the same role apart; NULL: none */
    const char *format; /* --log-format: "text", "json"; NULL: text */
};

extern const char *const cli_log_formats[];
#define CLI_LOG_OPTION(log) \
    {"log-format", \
     CLI_TEXT, \
     &(log)->format, \
     "F", \
     "write log messages to stderr as text (default) or json (one JSON object per line)", \
     .choices = cli_log_formats}

bool cli_log_is_json(const struct cli_log *log);
/* Writes a line to stderr in one piece: time, role, message. */
void cli_log(const struct cli_log *log, bool warning, const char *format, ...) _printf_(3, 4);
/* Writes the error that ends a daemon, in the format of its log. Returns the exit code. */
int cli_log_end(const struct cli_log *log, const struct cw_error *err);
/* Prints {"ready": {...}} to stdout, which reports that a daemon is ready. Drops the caller's reference to
 * `ready`. */
void cli_print_ready(json_t *ready);
/* Raises the limit of open files to the maximum that the system allows, because each connection, data file
 * and block of shared memory takes one. */
void cli_raise_limits(void);
/* Reads the token, loads the TLS files, and checks the addresses to listen at. *ret_token and *ret_tls are
 * new, or NULL if the option was not given; the caller frees them, also after an error. http may be NULL.
 * CW_E_OPTION, unless
 * --insecure is given: `listen` is not a loopback address, and TLS or the token is missing; or `http` is not
 * a loopback address, because HTTP pages have neither TLS nor token. */
int cli_listen_open(const struct cli_credentials *c, const char *listen, const char *http, bool insecure,
                    char **ret_token, struct cw_tls **ret_tls, struct cw_error *err) _must_check_;
/* CW_E_OPTION: a --data-root is not a directory. */
int cli_check_roots(const struct cli_texts *roots, struct cw_error *err) _must_check_;
