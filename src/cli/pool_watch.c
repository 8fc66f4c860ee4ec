/* Detects a provisioner that hangs: its process lives, but the dispatcher no longer lists the pool of its
 * workers. Owned by `up`. */
#include "cli/pool_watch.h"

#include <string.h>

#include "base/clock.h"
#include "base/macro.h"
#include "base/patience.h"

#define ANSWER_S 1 /* seconds to wait for an answer; short, because `up` does nothing else meanwhile */

int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool,
                        const struct cli_credentials *credentials, struct cw_error *err)
{
    *w = (struct cli_pool_watch){
        .pool = pool, .admin = {.service = service, .credentials = *credentials, .wait_s = ANSWER_S}};
    cli_pool_watch_restart(w);
    return cli_admin_open(&w->admin, err);
}

void cli_pool_watch_restart(struct cli_pool_watch *w)
{
    w->missed = 0;
    w->next_probe_ns = cw_now_ns() + CLI_POOL_PROBE_NS;
}

uint64_t cli_pool_watch_missing_s(void)
{
    return CW_MAX((uint64_t)CLI_POOL_MISSING_S, cw_patience_start_ns() / 1000000000);
}

bool cli_pool_watch_missing(struct cli_pool_watch *w)
{
    json_t *pools;
    uint64_t now = cw_now_ns();
    if (now < w->next_probe_ns)
        return false;
    w->next_probe_ns = now + CLI_POOL_PROBE_NS;
    if (cli_admin_query(&w->admin, "pools", &pools, &(struct cw_error){0}) < 0)
        return false;
    w->missed = cli_admin_named(pools, w->pool) ? 0 : w->missed + 1;
    json_decref(pools);
    return w->missed > cli_pool_watch_missing_s() * UINT64_C(1000000000) / CLI_POOL_PROBE_NS;
}
