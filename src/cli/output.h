/* What `cachew run` writes beside its result. */
#pragma once
#include "client/local.h"

/* --log: a JSON line per batch, each by one write(2). */
struct cw_log {
    int fd; /* 0: not open */
    struct cw_log_buffer *buffer;
};
int cw_log_open(struct cw_log *l, const char *path, struct cw_error *err) _must_check_;
int cw_log_batch(struct cw_log *l, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank, struct cw_hash128 hash, struct cw_error *err) _must_check_;
void cw_log_close(struct cw_log *l);

/* --dump: GGGGGGGG.npz (E<epoch>-GGGGGGGG.npz after the first epoch); docs/cli.md tells the arrays. */
int cw_dump_batch(const char *dir, const struct cw_compiled *c, const struct cw_batch *b, struct cw_error *err) _must_check_;

/* --save: the images of the first batches as contact sheets. */
int cw_save_batch(const char *dir, const struct cw_batch *b, uint64_t nth, struct cw_error *err) _must_check_;

/* --quarantine: a JSON line per record that was skipped or replaced. */
int cw_quarantine_write(const char *path, const struct cw_compiled *c, const struct cw_quarantined *list, struct cw_error *err) _must_check_;
