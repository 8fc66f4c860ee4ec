/* Writes a range of a pipeline's elements to shards. shard_source.c owns the ranges; any thread may write
 * one. */
#pragma once
#include <jansson.h>

#include "base/thread.h"
#include "dataset/sequence.h"
#include "formats/shard.h"

struct cw_shard_ranges {
    struct cw_sequence *sequence;
    const struct cw_shard_schema *schema;
    const char *dir;
    uint64_t seed, shard_bytes;
    uint64_t positions; /* of a range; 0: there is one range, the whole epoch */
    unsigned threads;
    size_t memory;

    struct cw_shard_turn { /* one range at a time is computed, by all threads */
        pthread_mutex_t mutex;
        pthread_cond_t over;
        bool taken; /* a range is computed; guarded by mutex */
    } turn;
};

/* Writes the shards of a range. *ret: the entries of these shards in the manifest, each with the name of its
 * file in `temporary`, new. *ret_lasts: every worker would meet the error, because it comes from a record or
 * the pipeline. cancelled (may be NULL): non-zero ends with CW_E_INTERRUPTED soon. After an error, no file is
 * left. */
int cw_shard_range_write(struct cw_shard_ranges *s, uint64_t range, int (*cancelled)(void *),
                         void *cancel_arg, json_t **ret, bool *ret_lasts, struct cw_error *err) _must_check_;
