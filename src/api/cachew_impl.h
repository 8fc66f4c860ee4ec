/* What the files of the C interface share: the types behind the public handles. */
#pragma once
#include <cachew/cachew.h>
#include <jansson.h>
#include <stdatomic.h>

#include "session/local.h"

/* cachew_error.c: makes *err (may be NULL) from an error of the library. Returns the status. */
int cw_api_fail(int status, const struct cw_error *from, struct cachew_error **err);

struct cachew_pipeline {
    json_t *root; /* as in a pipeline file */
    char *base_dir;
};

/* cachew_pipeline.c: parses and compiles into l, which the caller deinits in any case. */
int cw_api_compile(const struct cachew_pipeline *p, struct cw_local *l, struct cw_error *err) _must_check_;

/* cachew.c: copies the caller's options (may be NULL) to *o, and checks them. *o has the defaults, which stay
 * for fields that an older caller does not have. */
int cw_api_read_options(const struct cachew_options *given, struct cachew_options *o,
                        struct cw_error *err) _must_check_;
/* Compiles the pipeline and opens its sources. *ret_threads: the number of compute threads. The caller
 * deinits l in any case. */
int cw_api_open(const struct cachew_pipeline *p, const struct cachew_options *o, struct cw_local *l,
                unsigned *ret_threads, struct cw_error *err) _must_check_;

/* A session. It lives as long as the iterator or one of its batches. */
struct cw_api_engine {
    struct cw_local local;
    atomic_size_t refs; /* the iterator, and each of its batches */
};

void cw_api_engine_unref(struct cw_api_engine *e);

struct cachew_iterator {
    struct cw_api_engine *engine;
    struct cw_error failed; /* an error that ended the run: each later call returns it */
};

struct cachew_batch {
    struct cw_api_engine *engine;
    struct cw_batch *b;
    struct cachew_component components[];
};

/* cachew_batch.c: makes a batch for the caller. Takes b over, also on failure. */
int cw_api_batch_new(struct cw_api_engine *e, struct cw_batch *b, struct cachew_batch **ret,
                     struct cw_error *err) _must_check_;
