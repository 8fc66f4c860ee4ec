/* What the sources of materialised data share: `materialized` reads complete data, `materialized_stream` also
 * data that are still being written. */
#pragma once
#include "dataset/manifest.h"
#include "ops/source/record_streams.h"

struct cw_materialized { /* op->state; output port i is component i */
    char *dir;
    struct cw_manifest manifest;
};

/* Reads the manifest of the attribute `path`, and declares its components. begun: a run that has not finished
 * is enough. */
int cw_materialized_bind(struct cw_bind *b, struct cw_op *op, bool begun, struct cw_error *err) _must_check_;
void cw_materialized_free(void *state);
/* Opens the shards of the manifest from number `from` on as one source. */
int cw_materialized_open_shards(const struct cw_op *op, const char *dir, const struct cw_manifest *m,
                                size_t from, const struct cw_source_env *env, struct cw_source **ret,
                                struct cw_error *err) _must_check_;
/* Makes the output columns that are live from the block's raw bytes, whose checksums were checked. */
int cw_materialized_decode(const struct cw_shard_schema *schema, const struct cw_op *op, struct cw_block *b,
                           struct cw_error *err) _must_check_;
