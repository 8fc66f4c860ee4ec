/* --log of `run`: a JSON line per batch, each by one write(2) if the system takes all of it. */
#pragma once
#include "session/local.h"

/* Opens the log for cli_batch_log_add; the caller closes *ret_fd. */
int cli_batch_log_open(const char *path, int *ret_fd, struct cw_error *err) _must_check_;
/* Appends the line of a batch; removes what was written of a line that can't be written whole. */
int cli_batch_log_add(int fd, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank,
                      struct cw_hash128 hash, struct cw_error *err) _must_check_;
