/* Shared by the verbs that run daemons (`dispatcher`, `worker`, `provision`, `up`): their log, the line that
 * reports that they are ready, and checks of their options. */
#include "cli/daemon.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "objects/object.h"
#include "cli/print.h"
#include "net/address.h"
#include "session/report.h"

const char *const cli_log_formats[] = {"text", "json", NULL};

bool cli_log_is_json(const struct cli_log *log)
{
    return log->format && strcmp(log->format, "json") == 0;
}

static void log_line(const struct cli_log *log, const char *level, const char *message)
{
    struct timespec now;
    struct tm utc;
    char time[64];
    bool plain = strcmp(level, "info") == 0;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t n = strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(time + n, sizeof(time) - n, ".%03ldZ", now.tv_nsec / 1000000);
    json_auto_t *o = cli_log_is_json(log)
                         ? json_pack("{s:s, s:s, s:s, s:i, s:o}", "time", time, "level", level, "role",
                                     log->role, "pid", (int)getpid(), "message", cw_report_text(message))
                         : NULL;
    if (o && log->name)
        json_object_set_new(o, "name", cw_report_text(log->name));
    _cleanup_free_ char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    if (text)
        fprintf(stderr, "%s\n", text);
    else
        fprintf(stderr, "%s cachew %s%s%s: %s%s%s\n", time, log->role, log->name ? " " : "",
                log->name ? log->name : "", plain ? "" : level, plain ? "" : ": ", message);
}

void cli_log(const struct cli_log *log, bool warning, const char *format, ...)
{
    char message[1600];
    CW_FORMAT(message, format);
    log_line(log, warning ? "warning" : "info", cw_text_clean(message, sizeof(message)));
}

int cli_log_end(const struct cli_log *log, const struct cw_error *err)
{
    if (!cli_log_is_json(log))
        return cli_fail(err, false, NULL);
    log_line(log, "error", err->message);
    return cw_status_exit(err->status);
}

void cli_print_ready(json_t *ready)
{
    (void)cli_print(json_pack("{s:o}", "ready", ready)); /* main.c checks stdout at the end */
    fflush(stdout);
}

int cli_check_roots(const struct cli_texts *roots, struct cw_error *err)
{
    for (size_t i = 0; i < roots->n; i++) {
        struct stat st;
        if (cw_object_is_address(roots->items[i]))
            continue;
        int e = stat(roots->items[i], &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        if (e == 0)
            continue;
        return cw_error_value(err, CW_E_OPTION, "data-root", roots->items[i], "an existing directory",
                              "--data-root %.300s: %s: expected an existing directory", roots->items[i],
                              strerror(e));
    }
    return 0;
}

void cli_raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* on failure the old limit stays */
}

/* Returns 1 if the address can be reached from other machines, 0 if not or if it is NULL, or an error. */
static int address_leaves_machine(const char *option, const char *address, struct cw_error *err)
{
    struct cw_address a;
    bool local;
    int r = address ? cw_address_parse(address, &a, err) : 0;
    if (r < 0 || !address)
        return r;
    r = cw_address_is_loopback(&a, &local, err);
    if (r >= 0 && !local)
        cw_error_attribute(err, option, address, "a loopback address, or --insecure");
    return r < 0 ? r : !local;
}

static int listen_check(const char *address, bool tls, bool token, struct cw_error *err)
{
    if (tls && token)
        return 0;
    int r = address_leaves_machine("listen", address, err);
    const char *missing = !tls && !token ? "--tls-cert, --tls-key and --token-file are"
                          : !tls         ? "--tls-cert and --tls-key are"
                                         : "--token-file is";
    return r <= 0 ? r
                  : cw_error_set(err, CW_E_OPTION,
                                 "--listen %s is no loopback address, and %s missing: any host that reaches "
                                 "this address could read the data and run pipelines; expected a loopback "
                                 "address, or TLS and a token (cachew keys init makes them), or --insecure",
                                 address, missing);
}

static int http_check(const char *address, struct cw_error *err)
{
    int r = address_leaves_machine("http", address, err);
    return r <= 0 ? r
                  : cw_error_set(err, CW_E_OPTION,
                                 "--http %s is no loopback address: the pages are not encrypted and need no "
                                 "token, so any host that reaches this address could read them; expected a "
                                 "loopback address, or --insecure",
                                 address);
}

int cli_listen_open(const struct cli_credentials *c, const char *listen, const char *http, bool insecure,
                    char **ret_token, struct cw_tls **ret_tls, struct cw_error *err)
{
    int r = cli_credentials_token(c, ret_token, err);
    if (r >= 0)
        r = cli_credentials_listen(c, ret_tls, err);
    if (r >= 0 && !insecure)
        r = listen_check(listen, *ret_tls != NULL, *ret_token != NULL, err);
    return r >= 0 && !insecure ? http_check(http, err) : r;
}
