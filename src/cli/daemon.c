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
#include "session/report.h"
#include "net/address.h"

void cli_block_signals(sigset_t *ret)
{
    sigemptyset(ret);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGTERM);
    sigprocmask(SIG_BLOCK, ret, NULL);
}

int cli_wait_signal(const sigset_t *signals)
{
    int s = 0;
    while (sigwait(signals, &s) != 0)
        ;
    return s;
}

const char *const cli_log_formats[] = {"text", "json", NULL};

static void print_line(const struct cli_log *log, const char *time, const char *level, const char *message)
{
    json_auto_t *o = log->format && strcmp(log->format, "json") == 0
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
                log->name ? log->name : "", strcmp(level, "info") == 0 ? "" : level,
                strcmp(level, "info") == 0 ? "" : ": ", message);
}

static void log_line(const struct cli_log *log, const char *level, const char *message)
{
    struct timespec now;
    struct tm utc;
    char seconds[32], time[64];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(time, sizeof(time), "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
    print_line(log, time, level, message);
}

void cli_log(const struct cli_log *log, bool warning, const char *format, ...)
{
    char message[1600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    log_line(log, warning ? "warning" : "info", cw_text_clean(message, sizeof(message)));
}

int cli_log_end(const struct cli_log *log, const struct cw_error *err)
{
    if (!log->format || strcmp(log->format, "json") != 0)
        return cli_fail(err, false, NULL);
    log_line(log, "error", err->message);
    return cw_status_exit(err->status);
}

int cli_check_roots(const struct cli_texts *roots, struct cw_error *err)
{
    for (size_t i = 0; i < roots->n; i++) {
        struct stat st;
        int e = stat(roots->items[i], &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        if (e == 0)
            continue;
        return cw_error_value(err, CW_E_OPTION, "data-root", roots->items[i], "a directory that is there",
                              "--data-root %.300s: %s: expected a directory that pipelines may read",
                              roots->items[i], strerror(e));
    }
    return 0;
}

void cli_raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* else with what there was */
}

/* Whether the address is beyond this machine. */
static int leaves_machine(const char *option, const char *address, struct cw_error *err)
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

int cli_check_listen(const char *address, bool tls, bool token, bool insecure, struct cw_error *err)
{
    if (insecure || (tls && token))
        return 0;
    int r = leaves_machine("listen", address, err);
    const char *missing = !tls && !token ? "--tls-cert, --tls-key and --token-file are"
                          : !tls         ? "--tls-cert and --tls-key are"
                                         : "--token-file is";
    return r <= 0 ? r
                  : cw_error_set(err, CW_E_OPTION,
                                 "--listen %s is no loopback address, and %s missing: whoever reaches it "
                                 "could read the data and run pipelines; expected a loopback address, TLS "
                                 "and a token (cachew keys init makes them), or --insecure",
                                 address, missing);
}

int cli_check_http(const char *address, bool insecure, struct cw_error *err)
{
    int r = insecure ? 0 : leaves_machine("http", address, err);
    return r <= 0 ? r
                  : cw_error_set(err, CW_E_OPTION,
                                 "--http %s is no loopback address: the pages are not encrypted, and nobody "
                                 "is asked for a token; expected a loopback address, or --insecure",
                                 address);
}
