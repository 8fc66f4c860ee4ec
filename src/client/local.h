/* A pipeline from its text to its batches, in this process. */
#pragma once
#include "engine/iterator.h"

struct cw_local {
    struct cw_pipeline *pipeline;
    struct cw_compiled *compiled;
    struct cw_sequence *sequence;
    struct cw_iterator *iterator;
    const volatile int *interrupt; /* set by another thread: opening sources ends with CW_E_INTERRUPTED; may be NULL */
};
/* Reads and compiles a pipeline file; settings are "PATH=VALUE" (`2.size=64`), VALUE JSON or else a string. Touches no data. */
int cw_local_load(struct cw_local *l, const char *file, const char *const *settings, size_t n_settings, struct cw_error *err) _must_check_;
/* The same from text; relative paths are below base_dir. */
int cw_local_parse(struct cw_local *l, const char *text, size_t size, const char *base_dir, struct cw_error *err) _must_check_;
/* Opens the sources (and makes their indexes). index_dir NULL: the default, see cw_index_dir. */
int cw_local_open(struct cw_local *l, const char *index_dir, unsigned threads, struct cw_error *err) _must_check_;
void cw_local_deinit(struct cw_local *l);

/* Where indexes are kept: $CACHEW_INDEX_DIR, else $XDG_CACHE_HOME/cachew/index, else ~/.cache/cachew/index. Caller frees; NULL: nowhere. */
char *cw_index_dir(void);
/* A whole file; caller frees. */
int cw_read_file(const char *path, size_t limit, char **ret, size_t *ret_size, struct cw_error *err) _must_check_;
