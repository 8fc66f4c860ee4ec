/* Finds a provisioner that hangs: its process lives, but the dispatcher has heard nothing of its pool for a
 * while. Owned by `up`. */
#pragma once
#include "cli/admin.h"

#define CLI_POOL_PROBE_NS UINT64_C(5000000000)
#define CLI_POOL_MISSING_S 15

struct cli_pool_watch {
    struct cli_admin admin;
    const char *pool;
    uint64_t next_probe_ns;
    unsigned missed; /* probes in a row that the dispatcher answered without this pool */
};

/* service, pool and the texts of `credentials` stay the caller's, and must outlive w. The caller deinits
 * w->admin, also after an error. */
int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool,
                        const struct cli_credentials *credentials, struct cw_error *err) _must_check_;
/* Starts counting again: the provisioner was restarted. */
void cli_pool_watch_restart(struct cli_pool_watch *w);
/* CLI_POOL_MISSING_S, or as long as a daemon may take to start (base/patience.h), if that is longer. */
uint64_t cli_pool_watch_missing_s(void);
/* Queries the dispatcher, at most once in CLI_POOL_PROBE_NS. True: the dispatcher has had no such pool for
 * cli_pool_watch_missing_s. Probes are counted, not seconds, since a machine may stand still between two of
 * them. A probe without an answer does not count. */
bool cli_pool_watch_missing(struct cli_pool_watch *w);
