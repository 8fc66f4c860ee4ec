#include "cli/pool_watch.h"

#include <string.h>

#include "base/clock.h"
#include "base/macro.h"
#include "base/patience.h"

#define ANSWER_NS UINT64_C(1000000000) /* nobody else is looked after meanwhile */

int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool,
                        const char *token_file, const struct cli_tls *tls, struct cw_error *err)
{
    *w = (struct cli_pool_watch){.pool = pool,
                                 .asked = {.service = service, .token_file = token_file, .tls = *tls}};
    int r = cli_token(token_file, &w->asked.token, err);
    w->asked.o = (struct cw_admin_client_options){
        .service = service, .token = w->asked.token, .timeout_ns = ANSWER_NS};
    cli_pool_watch_again(w);
    return r < 0 ? r : cli_tls_connecting(tls, &w->asked.o.tls, err);
}

void cli_pool_watch_again(struct cli_pool_watch *w)
{
    w->missed = 0;
    w->next_ns = cw_now_ns() + CLI_POOL_LOOK_NS;
}

static bool is_there(const json_t *pools, const char *name)
{
    size_t i;
    const json_t *p;
    json_array_foreach(pools, i, p)
    {
        const char *own = json_string_value(json_object_get(p, "name"));
        if (own && strcmp(own, name) == 0)
            return true;
    }
    return false;
}

uint64_t cli_pool_watch_missing_s(void)
{
    return CW_MAX((uint64_t)CLI_POOL_MISSING_S, cw_patience_start_ns() / 1000000000);
}

bool cli_pool_watch_missing(struct cli_pool_watch *w)
{
    struct cw_error err = {0};
    json_t *pools;
    uint64_t now = cw_now_ns();
    if (now < w->next_ns)
        return false;
    w->next_ns = now + CLI_POOL_LOOK_NS;
    if (cli_ask(&w->asked, "pools", &pools, &err) < 0)
        return false;
    w->missed = is_there(pools, w->pool) ? 0 : w->missed + 1;
    json_decref(pools);
    return w->missed > cli_pool_watch_missing_s() * UINT64_C(1000000000) / CLI_POOL_LOOK_NS;
}

void cli_pool_watch_deinit(struct cli_pool_watch *w)
{
    cli_asked_deinit(&w->asked);
}
