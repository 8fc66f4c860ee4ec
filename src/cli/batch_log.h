/* --log of `run`: a JSON line per batch, each by one write(2) if the system takes all of it. */
#pragma once
#include "session/local.h"

struct cli_batch_log {
    int fd; /* 0 or less: not open */
};

int cli_batch_log_open(struct cli_batch_log *l, const char *path, struct cw_error *err) _must_check_;
/* Appends the line of a batch; removes what was written of a line that can't be written whole. */
int cli_batch_log_add(const struct cli_batch_log *l, const struct cw_compiled *c, const struct cw_batch *b,
                      unsigned rank, struct cw_hash128 hash, struct cw_error *err) _must_check_;
void cli_batch_log_close(struct cli_batch_log *l);
