/* What `cachew run` writes beside its result. */
#pragma once
#include <stdio.h>

#include "session/local.h"

/* The directory of an option, made if it is not there (those above it are not). */
int cw_output_dir(const char *option, const char *dir, struct cw_error *err) _must_check_;

/* --log: a JSON line per batch, each by one write(2) if the system takes all of it. A line that can't be
 * written is taken back. */
struct cw_log {
    int fd; /* 0: not open */
};

int cw_log_open(struct cw_log *l, const char *path, struct cw_error *err) _must_check_;
int cw_log_batch(struct cw_log *l, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank,
                 struct cw_hash128 hash, struct cw_error *err) _must_check_;
void cw_log_close(struct cw_log *l);

/* --dump: GGGGGGGG.npz (E<epoch>-GGGGGGGG.npz after the first epoch) in a directory that is there;
 * docs/cli.md tells the arrays. */
int cw_dump_batch(const char *dir, const struct cw_compiled *c, const struct cw_batch *b,
                  struct cw_error *err) _must_check_;

/* --save: the images of the first batches as contact sheets, in a directory that is there. CW_E_OPTION if
 * there are none to show. */
int cw_save_batch(const char *dir, const struct cw_batch *b, uint64_t nth, struct cw_error *err) _must_check_;

/* --quarantine: a JSON line per record that was skipped or replaced. The file is emptied, unless what is
 * written goes on from a state. */
int cw_quarantine_open(const char *path, bool append, FILE **ret, struct cw_error *err) _must_check_;
/* Closes f in any case. */
int cw_quarantine_write(FILE *f, const char *path, const struct cw_compiled *c,
                        const struct cw_quarantined *list, struct cw_error *err) _must_check_;
