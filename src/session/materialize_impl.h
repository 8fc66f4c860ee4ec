/* What the files of materialize.h share: materialize.c (in this process), materialize_service.c (by the
 * workers of a service), materialize_verify.c. */
#pragma once
#include "session/materialize.h"
#include "session/shard_dir.h"
#include "session/shard_writer.h"

struct cw_materializer {
    const struct cw_materialize_options *options;
    struct cw_local *local;
    /* the pipeline as written, and its fingerprint; new */
    json_t *pipeline;
    struct cw_hash128 fingerprint;
    struct cw_shard_schema schema;
    struct cw_shard_dir dir;
    struct cw_shard_writer writer; /* of this process; a service's workers have their own */
    char name[CW_SHARD_NAME];      /* of the open shard */
    struct cw_hash128 set_sum;     /* of the finished shards */
    uint64_t elements, bytes;      /* of all shards, the open one included */
    json_t *before; /* state before the batch whose elements are written now; NULL: the beginning */
    /* elements of the next batch that finished shards hold; with a service: shards of the next range */
    uint64_t skip;
};

/* Returns the description of the run, new. data: hash of the input files; NULL: not known. run: the name of a
 * service's run; NULL: this process writes. */
json_t *cw_materializer_describe(const struct cw_materializer *m, const char *data, const char *run);
/* Adds a finished shard to elements, bytes and set_sum. */
void cw_materializer_count(struct cw_materializer *m, const json_t *shard);
/* Sets the counts and the position to those at which the directory's run was ended. */
void cw_materializer_resume(struct cw_materializer *m);
/* Returns the position after the batch that was received last, new. */
json_t *cw_materializer_position(const struct cw_materializer *m);
int cw_materializer_publish(struct cw_materializer *m, struct cw_error *err) _must_check_;
/* Lets the workers of a service write the shards, and publishes them. */
int cw_materializer_serve(struct cw_materializer *m, struct cw_error *err) _must_check_;

/* Returns the number of elements that are requested together, as a batch, from a pipeline without a batcher:
 * 1 unless all components have a fixed size, because others may differ in shape, or be large. */
size_t cw_materialize_together(const struct cw_compiled *c);
/* Returns the pipeline with a batcher of n elements at its end, new; NULL: out of memory. */
json_t *cw_materialize_batched(const json_t *root, size_t n);
/* Replaces the compiled pipeline of l, whose sources are not open, by this one. Takes over `root`; NULL: out
 * of memory. */
int cw_materialize_replace(struct cw_local *l, json_t *root, struct cw_error *err) _must_check_;
/* Opens the sources of a compiled pipeline, after adding a batcher to it if that makes it faster: it changes
 * neither the elements nor their order. */
int cw_materialize_open(struct cw_local *l, const struct cw_materialize_options *o,
                        struct cw_error *err) _must_check_;
/* Takes all batches: calls o->step, then `take` with each. l has its iterator. */
int cw_materialize_each(struct cw_local *l, const struct cw_materialize_options *o,
                        int (*take)(void *arg, const struct cw_batch *b, struct cw_error *err), void *arg,
                        const uint64_t *elements, const uint64_t *bytes, struct cw_error *err) _must_check_;
/* Returns the result of a complete data set, new; NULL: out of memory. */
json_t *cw_materialize_result(const json_t *manifest);
