/* Whether the dispatcher hears of a provisioner: one that hangs lives, and starts and ends nobody. */
#pragma once
#include "cli/asked.h"

struct cli_pool_watch {
    struct cli_asked asked;
    const char *pool;
    uint64_t next_ns;
    unsigned missed; /* in a row */
};
/* service, token_file and those of tls stay the caller's. */
int cli_pool_watch_init(struct cli_pool_watch *w, const char *service, const char *pool, const char *token_file, const struct cli_tls *tls, struct cw_error *err) _must_check_;
#define CLI_POOL_LOOK_NS UINT64_C(5000000000)
#define CLI_POOL_MISSING_S 15
/* Asks the dispatcher, once in CLI_POOL_LOOK_NS. Whether it has had no such pool for CLI_POOL_MISSING_S: three looks after the first, so that a machine that stood still is none. A dispatcher
 * that does not answer says nothing about others. */
bool cli_pool_watch_missing(struct cli_pool_watch *w);
/* The provisioner was started anew. */
void cli_pool_watch_again(struct cli_pool_watch *w);
void cli_pool_watch_deinit(struct cli_pool_watch *w);
