/* What the parts of a worker share: its options, names and loop, and whether it drains or stops. The worker
 * (worker.c) owns it; every part has a pointer to it. */
#include "service/worker/common.h"

#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "net/conn.h"

#define MEMORY_MIN ((size_t)16 << 20)

void cw_common_log(const struct cw_worker_common *c, const char *format, ...)
{
    char message[1000];
    CW_FORMAT(message, format);
    cw_log_tail_add(c->log_tail, message);
    if (c->options.log)
        c->options.log(c->options.log_arg, message);
}

void cw_common_changed(struct cw_worker_common *c)
{
    cw_loop_post(c->loop, &c->changed);
}

static int options_check(const struct cw_worker_options *o, struct cw_error *err)
{
    char value[32];
    snprintf(value, sizeof(value), "%zu", o->memory);
    if (!o->dispatcher)
        return cw_error_set(err, CW_E_OPTION, "a worker needs the address of its dispatcher");
    if (o->memory < MEMORY_MIN)
        return cw_error_value(err, CW_E_OPTION, "memory", value, "at least 16 MiB",
                              "--memory %zu: expected at least %zu bytes, 16 MiB", o->memory, MEMORY_MIN);
    return 0;
}

int cw_common_init(struct cw_worker_common *c, const struct cw_worker_options *o, struct cw_error *err)
{
    int r = options_check(o, err);
    if (r < 0)
        return r;
    if (getrandom(c->incarnation, sizeof(c->incarnation), 0) != sizeof(c->incarnation))
        return cw_error_set(err, CW_E_IO, "the operating system gives no random bytes");
    cw_host_identity(c->host);
    c->started_ns = cw_now_ns();
    c->log_tail = cw_log_tail_new();
    cw_process_name(c->name);
    c->options = *o;
    c->options.threads = o->threads ? o->threads : cw_rank_share().cpus;
    c->options.name = o->name ? o->name : c->name;
    return cw_loop_new(&c->loop, err);
}
