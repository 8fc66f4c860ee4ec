/* Whether the dispatcher hears of a provisioner: one that hangs lives, and starts and ends nobody. */
#pragma once
#include "cli/asked.h"

struct cli_pool_watch {
    struct cli_asked asked;
    const char *pool;
    uint64_t next_ns;
    unsigned missed; /* looks in a row at which the dispatcher answered, and had no such pool */
};

/* service, token_file and those of tls stay the caller's. */
int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool,
                        const char *token_file, const struct cli_tls *tls, struct cw_error *err) _must_check_;
#define CLI_POOL_LOOK_NS UINT64_C(5000000000)
#define CLI_POOL_MISSING_S 15
/* CLI_POOL_MISSING_S; as long as a daemon may take to start (base/patience.h), if that is longer. */
uint64_t cli_pool_watch_missing_s(void);
/* Asks the dispatcher, once in CLI_POOL_LOOK_NS. Returns whether the dispatcher has had no such pool for
 * cli_pool_watch_missing_s: a machine that stood still in between is one look, not several. A look that the
 * dispatcher does not answer does not count. */
bool cli_pool_watch_missing(struct cli_pool_watch *w);
/* The provisioner was started anew. */
void cli_pool_watch_again(struct cli_pool_watch *w);
void cli_pool_watch_deinit(struct cli_pool_watch *w);
