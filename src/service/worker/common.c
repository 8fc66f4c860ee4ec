#include "service/worker/common.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/text.h"
#include "net/conn.h"

#define MEMORY_MIN ((size_t)16 << 20)
#define N_TEXTS 9

void cw_common_log(const struct cw_worker_common *c, const char *format, ...)
{
    char message[1000];
    if (!c->options.log)
        return;
    CW_FORMAT(message, format);
    c->options.log(c->options.log_arg, message);
}

void cw_common_changed(struct cw_worker_common *c)
{
    cw_loop_post(c->loop, &c->changed);
}

/* Lists the options that are texts, each NULL or not. */
static void options_texts(struct cw_worker_options *o, const char **ret[N_TEXTS])
{
    const char **all[N_TEXTS] = {&o->dispatcher, &o->listen,    &o->unix_path, &o->name, &o->pool,
                                 &o->http,       &o->index_dir, &o->cache_dir, &o->token};
    memcpy(ret, all, sizeof(all));
}

/* Replaces a list by a copy, and its texts by theirs. Returns whether there was memory for all. */
static bool options_copy_list(const char *const **list, size_t n)
{
    char **copy = calloc(n + 1, sizeof(*copy));
    bool all = copy;
    for (size_t i = 0; copy && i < n; i++)
        all &= (copy[i] = strdup((*list)[i])) != NULL;
    *list = (const char *const *)copy;
    return all;
}

static void options_free_list(const char *const *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++)
        free((void *)(uintptr_t)list[i]);
    free((void *)(uintptr_t)list);
}

static int options_check(const struct cw_worker_options *o, struct cw_error *err)
{
    char value[32];
    snprintf(value, sizeof(value), "%zu", o->memory);
    if (!o->dispatcher)
        return cw_error_set(err, CW_E_OPTION, "a worker needs the address of a dispatcher");
    if (o->memory < MEMORY_MIN)
        return cw_error_value(err, CW_E_OPTION, "memory", value, "at least 16 MiB",
                              "--memory %zu: expected at least %zu bytes, 16 MiB", o->memory, MEMORY_MIN);
    return 0;
}

int cw_common_init(struct cw_worker_common *c, const struct cw_worker_options *o, struct cw_error *err)
{
    char host[128] = "", name[160];
    const char **texts[N_TEXTS];
    int r = options_check(o, err);
    if (r < 0)
        return r;
    if (getrandom(c->incarnation, sizeof(c->incarnation), 0) != sizeof(c->incarnation))
        return cw_error_set(err, CW_E_IO, "the system gives no random bytes");
    cw_host_identity(c->host);
    c->started_ns = cw_now_ns();
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), "%s:%ld", host, (long)getpid());
    c->options = *o;
    c->options.threads = o->threads ? o->threads : cw_cpu_budget();
    c->options.name = o->name ? o->name : name;
    options_texts(&c->options, texts);
    bool all = options_copy_list(&c->options.advertise, o->n_advertise);
    all &= options_copy_list(&c->options.data_roots, o->n_data_roots);
    for (size_t i = 0; i < N_TEXTS; i++)
        if (*texts[i])
            all &= (*texts[i] = strdup(*texts[i])) != NULL;
    return all ? cw_loop_new(&c->loop, err) : cw_error_nomem(err, 0, "a worker");
}

void cw_common_deinit(struct cw_worker_common *c)
{
    const char **texts[N_TEXTS];
    options_texts(&c->options, texts);
    for (size_t i = 0; i < N_TEXTS; i++)
        free((void *)(uintptr_t)*texts[i]);
    options_free_list(c->options.advertise, c->options.n_advertise);
    options_free_list(c->options.data_roots, c->options.n_data_roots);
}
