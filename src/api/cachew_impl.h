/* Shared by the files of the C interface: the structures behind the public handles, and helpers. */
#pragma once
#include <cachew/cachew.h>
#include <jansson.h>
#include <stdatomic.h>

#include "session/local.h"

/* cachew_error.c: makes *err (may be NULL) from an error of the library. Returns the status. */
int cw_api_fail(int status, const struct cw_error *from, struct cachew_error **err);

struct cachew_pipeline {
    json_t *root;   /* the JSON of a pipeline file */
    char *base_dir; /* relative paths in the pipeline are relative to it */
};

/* cachew_pipeline.c: parses and compiles the pipeline into l. The caller calls cw_local_deinit on l, also
 * after an error. */
int cw_api_compile(const struct cachew_pipeline *p, struct cw_local *l, struct cw_error *err) _must_check_;

/* cachew.c: copies the user's options (`given`, may be NULL) to *o, and checks them. The caller has set *o to
 * the defaults; fields that the user's older, shorter version of the structure does not have keep them. */
int cw_api_read_options(const struct cachew_options *given, struct cachew_options *o,
                        struct cw_error *err) _must_check_;
/* Compiles the pipeline and opens its sources. *ret_threads is the number of compute threads. The caller
 * calls cw_local_deinit on l, also after an error. */
int cw_api_open(const struct cachew_pipeline *p, const struct cachew_options *o, struct cw_local *l,
                unsigned *ret_threads, struct cw_error *err) _must_check_;
/* Makes l->iterator over the service of the options. */
int cw_api_open_service(const struct cachew_options *o, const struct cw_iterator_options *io,
                        const json_t *state, struct cw_local *l, struct cw_error *err) _must_check_;

/* A session (struct cw_local of session/local.h: it runs the pipeline in this process) with a count of
 * references. The iterator and each of its batches hold one, because batches lie in the session's memory. */
struct cw_api_engine {
    struct cw_local local;
    atomic_size_t refs; /* one of the iterator, and one of each batch */
};

/* Drops a reference; the last one frees the session. */
void cw_api_engine_unref(struct cw_api_engine *e);

struct cachew_iterator {
    struct cw_api_engine *engine;
    struct cw_error failed; /* the error that ended the run, which later calls return; status 0: none */
};

struct cachew_batch {
    struct cw_api_engine *engine;
    struct cw_batch *b;
    struct cachew_component components[];
};

/* cachew_batch.c: makes a batch for the caller, *ret, with a reference to the session. Takes b over, also on
 * failure. */
int cw_api_batch_new(struct cw_api_engine *e, struct cw_batch *b, struct cachew_batch **ret,
                     struct cw_error *err) _must_check_;
