/* What the daemons' verbs (`dispatcher`, `worker`, `provision`, `up`) have in common: their log, the line
 * that says that they serve, and the checks of their options. */
#pragma once
#include <jansson.h>

#include "cli/credentials.h"

struct cli_log { /* what stands in each line */
    const char *role;
    const char *name;   /* of several daemons with the same role; NULL: none */
    const char *format; /* --log-format: "text", "json"; NULL: text */
};

extern const char *const cli_log_formats[];
#define CLI_LOG_OPTION(log) \
    {"log-format", \
     CLI_TEXT, \
     &(log)->format, \
     "F", \
     "write messages to stderr as text (default), or as json: one JSON object per line", \
     .choices = cli_log_formats}

bool cli_log_is_json(const struct cli_log *log);
/* Writes a line to stderr in one piece: time, role, message. */
void cli_log(const struct cli_log *log, bool warning, const char *format, ...) _printf_(3, 4);
/* Writes the error that ends a daemon, in the format of its log. Returns the exit code. */
int cli_log_end(const struct cli_log *log, const struct cw_error *err);
/* Prints {"ready": {...}}, by which a daemon says that it serves. Releases `ready`. */
void cli_print_ready(json_t *ready);
/* Raises the limit of open files to what the system allows: connections, data and shared memory take some. */
void cli_raise_limits(void);
/* Reads the token and loads TLS, both new and the caller's, also after an error; NULL where there is none.
 * CW_E_OPTION: `listen` is not loopback, and neither are there both TLS and a token, nor --insecure; or
 * `http` (NULL: no pages) is not, whose pages have neither TLS nor token. */
int cli_listen_open(const struct cli_credentials *c, const char *listen, const char *http, bool insecure,
                    char **ret_token, struct cw_tls **ret_tls, struct cw_error *err) _must_check_;
/* CW_E_OPTION: a --data-root is no directory. */
int cli_check_roots(const struct cli_texts *roots, struct cw_error *err) _must_check_;
