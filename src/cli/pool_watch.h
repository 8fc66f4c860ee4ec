/* Detects a provisioner that hangs: its process lives, but the dispatcher no longer lists the pool of its
 * workers. Owned by `up`. */
#pragma once
#include "cli/admin.h"

#define CLI_POOL_PROBE_NS UINT64_C(5000000000)
#define CLI_POOL_MISSING_S 15

struct cli_pool_watch {
    struct cli_admin admin;
    const char *pool;
    uint64_t next_probe_ns;
    unsigned missed; /* consecutive answers of the dispatcher that did not list this pool */
};

/* service, pool and the texts in `credentials` are borrowed and must outlive w. The caller calls
 * cli_admin_deinit on w->admin, also after an error. */
int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool,
                        const struct cli_credentials *credentials, struct cw_error *err) _must_check_;
/* Starts counting from 0 again; to be called when the provisioner is restarted. */
void cli_pool_watch_restart(struct cli_pool_watch *w);
/* Seconds after which a pool counts as missing: CLI_POOL_MISSING_S, or the time that a daemon may take to
 * start (base/patience.h) if that is longer. */
uint64_t cli_pool_watch_missing_s(void);
/* Queries the dispatcher, at most once in CLI_POOL_PROBE_NS; returns false between queries. Returns true if
 * the dispatcher has not listed the pool for cli_pool_watch_missing_s. That time is counted in answered
 * queries, so that time during which the whole machine was suspended does not count. */
bool cli_pool_watch_missing(struct cli_pool_watch *w);
