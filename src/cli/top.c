/* cachew top: shows the jobs and workers of a service repeatedly. Rates are differences between two answers
 * of the dispatcher. Only WAIT%, the share of time that ranks waited, is computed by the dispatcher, because
 * it depends on when each rank reported last. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/admin.h"
#include "cli/print.h"
#include "cli/row.h"
#include "cli/verb.h"

#define MIN_INTERVAL_S 0.1 /* shortest --interval in seconds; limits the load on the dispatcher */

/* ---- the service's state ---- */

struct sample {
    uint64_t at_ns;
    json_t *all; /* {"status", "jobs", "workers"}; owned */
};

static int sample_take(const struct cli_admin *a, struct sample *ret, struct cw_error *err)
{
    static const char *const parts[] = {"status", "jobs", "workers"};
    json_auto_t *all = json_object();
    json_t *part;
    int r = 0;
    for (size_t i = 0; i < CW_COUNT_OF(parts) && r >= 0; i++)
        if ((r = cli_admin_query(a, parts[i], &part, err)) >= 0)
            json_object_set_new(all, parts[i], part);
    *ret = (struct sample){.at_ns = cw_now_ns(), .all = r < 0 ? NULL : json_incref(all)};
    return r;
}

/* The row among `rows` with the same value of `key` as `row`; NULL: none. */
static const json_t *sample_row(const json_t *rows, const json_t *row, const char *key)
{
    size_t i;
    const json_t *other;
    json_array_foreach(
        rows, i, other) if (json_equal(json_object_get(other, key), json_object_get(row, key))) return other;
    return NULL;
}

/* ---- numbers as text ---- */

typedef char cell[24];

/* Writes the rate per second from *before to now; "-" if before is NULL, or the count began again. */
static const char *cell_rate(double now, const double *before, double seconds, const char *format, cell ret)
{
    double r = before && seconds > 0 ? (now - *before) / seconds : -1;
    snprintf(ret, sizeof(cell), "-");
    if (r >= 0)
        snprintf(ret, sizeof(cell), format, r);
    return ret;
}

static double job_sum_ranks(const json_t *job, const char *key)
{
    size_t i;
    const json_t *rank;
    double sum = 0;
    json_array_foreach(json_object_get(job, "ranks"), i, rank) sum += cli_row_real(rank, key);
    return sum;
}

/* Writes the share of the last two seconds that the job's ranks waited, in percent; "-" if it is unknown. */
static const char *cell_waited(const json_t *job, cell ret)
{
    const json_t *part = json_object_get(json_object_get(job, "now"), "waited");
    snprintf(ret, sizeof(cell), "-");
    if (json_is_number(part))
        snprintf(ret, sizeof(cell), "%.0f", 100 * json_number_value(part));
    return ret;
}

static unsigned job_attached(const json_t *job)
{
    size_t i;
    const json_t *rank;
    unsigned n = 0;
    json_array_foreach(json_object_get(job, "ranks"), i, rank)
        n += json_is_true(json_object_get(rank, "attached"));
    return n;
}

/* ---- the tables ---- */

static void top_add_status(struct cw_text *t, const char *service, const struct sample *s)
{
    char journal[CLI_TEXT_SIZE];
    const json_t *o = json_object_get(s->all, "status");
    int64_t up = (int64_t)cli_row_real(o, "uptime_s");
    cw_text_add(t,
                "%s  up %" PRIi64 ":%02d:%02d  workers %" PRIi64 "  jobs %" PRIi64 "  streams %" PRIi64
                "  ranges %" PRIi64 " (late %" PRIi64 ", moved %" PRIi64 ")  journal %s\n\n",
                service, up / 3600, (int)(up / 60 % 60), (int)(up % 60), cli_row_number(o, "workers"),
                cli_row_number(o, "jobs"), cli_row_number(o, "streams"), cli_row_number(o, "completed"),
                cli_row_number(o, "late"), cli_row_number(o, "moved"), cli_row_text(o, "journal", journal));
}

static void top_add_job(struct cw_text *t, const json_t *job, const json_t *before, double seconds)
{
    char name[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
    cell batches, wait, ranks;
    double n_before = job_sum_ranks(before, "batches");
    snprintf(ranks, sizeof(ranks), "%u/%" PRIi64, job_attached(job), cli_row_number(job, "world_size"));
    cw_text_add(t, "%s %-10.10s %6" PRIi64 " %7s %12.0f %10s %6s\n", cli_row_fit(job, "name", 24, true, name),
                cli_row_text(job, "state", state), cli_row_number(job, "epoch"), ranks,
                job_sum_ranks(job, "batches"),
                cell_rate(job_sum_ranks(job, "batches"), before ? &n_before : NULL, seconds, "%.1f", batches),
                cell_waited(job, wait));
}

/* Adds jobs that are not over before those that are, because the screen may be too short for all. */
static void top_add_jobs(struct cw_text *t, const struct sample *s, const struct sample *before,
                         double seconds)
{
    size_t i;
    const json_t *job;
    cw_text_add(t, "%-24s %-10s %6s %7s %12s %10s %6s\n", "JOB", "STATE", "EPOCH", "RANKS", "BATCHES",
                "BATCHES/S", "WAIT%");
    for (int over = 0; over <= 1; over++)
        json_array_foreach(json_object_get(s->all, "jobs"), i, job)
        {
            const char *state = json_string_value(json_object_get(job, "state"));
            bool is_over = state && strcmp(state, "waiting") != 0 && strcmp(state, "running") != 0 &&
                           strcmp(state, "unattended") != 0 && strcmp(state, "paused") != 0;
            if (is_over == (over == 1))
                top_add_job(t, job, sample_row(json_object_get(before->all, "jobs"), job, "name"), seconds);
        }
    cw_text_add(t, "\n");
}

static void top_add_workers(struct cw_text *t, const struct sample *s, const struct sample *before,
                            double seconds)
{
    size_t i;
    const json_t *w;
    cw_text_add(t, "%6s %-28s %-10s %7s %6s %6s %10s %10s %10s\n", "WORKER", "ADDRESS", "STATE", "LEASES",
                "CPUS", "USED", "MEMORY MB", "BATCHES/S", "MB/S");
    json_array_foreach(json_object_get(s->all, "workers"), i, w)
    {
        char address[CLI_TEXT_SIZE], state[CLI_TEXT_SIZE];
        cell cpu, batches, bytes;
        const json_t *b = sample_row(json_object_get(before->all, "workers"), w, "id");
        double cpu_before = cli_row_real(b, "cpu_s"), batches_before = cli_row_real(b, "batches"),
               bytes_before = cli_row_real(b, "bytes") / 1e6;
        cw_text_add(
            t, "%6" PRIi64 " %s %-10.10s %7" PRIi64 " %6" PRIi64 " %6s %10.1f %10s %10s\n",
            cli_row_number(w, "id"), cli_row_fit(w, "address", 28, true, address),
            cli_row_text(w, "state", state), cli_row_number(w, "leases"), cli_row_number(w, "cpu_budget"),
            cell_rate(cli_row_real(w, "cpu_s"), b ? &cpu_before : NULL, seconds, "%.2f", cpu),
            cli_row_real(w, "memory_in_use") / 1e6,
            cell_rate(cli_row_real(w, "batches"), b ? &batches_before : NULL, seconds, "%.1f", batches),
            cell_rate(cli_row_real(w, "bytes") / 1e6, b ? &bytes_before : NULL, seconds, "%.1f", bytes));
    }
}

/* ---- the terminal ---- */

static struct termios terminal_before;
static volatile sig_atomic_t terminal_changed;
static bool on_screen;

/* Restores the terminal. May be called from a signal handler. */
static void terminal_restore(void)
{
    static const char leave[] = "\033[?25h\033[?1049l";
    if (on_screen && write(STDOUT_FILENO, leave, sizeof(leave) - 1) < 0)
        return;
    if (terminal_changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

static void terminal_on_signal(int s)
{
    terminal_restore();
    _exit(s == SIGINT ? 0 : 128 + s); /* Ctrl-C is the usual way to end */
}

static void terminal_begin(void)
{
    struct sigaction end = {.sa_handler = terminal_on_signal};
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    on_screen = isatty(STDOUT_FILENO);
    if (on_screen && isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &terminal_before) == 0) {
        struct termios t = terminal_before;
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        t.c_cc[VSUSP] = _POSIX_VDISABLE;
        terminal_changed = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
    }
    if (on_screen)
        printf("\033[?1049h\033[?25l");
}

/* Overwrites the screen with those lines of text that fit. */
static void terminal_print(const char *text)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 2 || size.ws_col < 2)
        size = (struct winsize){.ws_row = 24, .ws_col = 80};
    printf("\033[H");
    for (unsigned row = 1; row < size.ws_row && *text; row++) {
        size_t line = strcspn(text, "\n"), shown = CW_MIN(line, (size_t)size.ws_col);
        /* do not cut within a UTF-8 character */
        while (shown < line && shown > 0 && ((unsigned char)text[shown] & 0xc0) == 0x80)
            shown--;
        printf("%.*s\033[K\n", (int)shown, text);
        text += line + (text[line] == '\n');
    }
    printf("\033[J");
}

/* Waits this long. Returns false at once if q is pressed. */
static bool terminal_wait(double seconds)
{
    uint64_t until = cw_now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        struct pollfd p = {.fd = terminal_changed ? STDIN_FILENO : -1, .events = POLLIN};
        uint64_t now = cw_now_ns();
        char key;
        if (now >= until)
            return true;
        if (poll(&p, 1, (int)CW_MIN((until - now) / 1000000 + 1, (uint64_t)INT32_MAX)) > 0) {
            if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')
                return false;
        }
    }
}

/* ---- the loop ---- */

struct top {
    struct cli_admin admin;
    double interval;
    bool once;
};

static int top_print(const struct top *t, const struct sample *s, const struct sample *before,
                     struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text text = {0};
    double seconds = (double)(s->at_ns - before->at_ns) / 1e9;
    top_add_status(&text, t->admin.service, s);
    top_add_jobs(&text, s, before, seconds);
    top_add_workers(&text, s, before, seconds);
    if (text.failed)
        return cw_error_nomem(err, 0, "a table");
    if (on_screen)
        terminal_print(text.data);
    else
        printf("%s%s", text.data, t->once ? "" : "\n");
    return 0;
}

/* Prints an error instead of the tables. `top` then tries again, because a dispatcher that has answered once
 * is expected to come back. */
static void top_print_gone(const struct cw_error *err)
{
    char line[700];
    snprintf(line, sizeof(line), "%s\n", err->message);
    if (on_screen)
        terminal_print(line);
    else
        fprintf(stderr, "cachew: %s", line);
}

static int top_repeat(const struct top *t, struct cw_error *err)
{
    struct sample before = {0}, now;
    int r = sample_take(&t->admin, &before, err);
    if (r >= 0 && t->once && !t->admin.json && t->interval > 0)
        terminal_wait(t->interval); /* rates are differences of two answers */
    if (r >= 0 && !t->once)
        terminal_begin();
    for (bool more = r >= 0; more && r >= 0 && !ferror(stdout);
         more = !t->once && terminal_wait(CW_MAX(t->interval, MIN_INTERVAL_S))) {
        struct cw_error gone = {0};
        if (sample_take(&t->admin, &now, &gone) < 0) {
            if (t->once) {
                r = cw_error_copy(err, &gone);
                break;
            }
            top_print_gone(&gone);
            fflush(stdout);
            continue;
        }
        if (t->admin.json)
            cli_print(json_incref(now.all));
        else
            r = top_print(t, &now, &before, err);
        fflush(stdout);
        json_decref(before.all);
        before = now;
    }
    json_decref(before.all);
    terminal_restore();
    return r;
}

static int top_main(int argc, char **argv, struct cw_error *err)
{
    struct top t = {.interval = 2};
    const struct cli_option options[] = {
        {"interval", CLI_SECONDS, &t.interval, "S", "print a table every S seconds (default 2)"},
        {"once", CLI_FLAG, &t.once, NULL, "print one table, with the rates of one interval, and end"},
        CLI_ADMIN_OPTIONS(&t.admin),
        {0},
    };
    int r = cli_admin_parse(&t.admin, &cli_verb_top, options, argc, argv, err);
    if (r == 0)
        r = top_repeat(&t, err);
    cli_admin_deinit(&t.admin);
    return r;
}

const struct cli_verb cli_verb_top = {
    .name = "top",
    .arguments = "",
    .summary = "show the jobs and workers of a service with their rates, every few seconds",
    .details = "On a terminal the table is updated in place, and q or Ctrl-C ends the command. Otherwise the "
               "tables are printed one after the other.",
    .run = top_main,
};
