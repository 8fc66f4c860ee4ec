/* Writes the file of one shard after the other: elements as records, a checksum, a digest. materialize.c and
 * shard_source.c own one each. One thread at a time uses a writer. */
#pragma once
#include <jansson.h>

#include "base/hash.h"
#include "formats/shard.h"
#include "pipeline/program.h"

struct cw_shard_writer {
    const struct cw_shard_schema *schema; /* borrowed */
    struct cw_shard_bytes buffer;         /* of the open shard: not written yet */
    XXH3_state_t *hash;                   /* of the file */
    int fd;                               /* -1: no shard is open */
    char *path;                           /* of the temporary file */
    uint64_t elements, bytes;             /* of the open shard, or of the last one */
    struct cw_hash128 set_sum;            /* of its elements */
};

/* Sets the schema to the components of a compiled pipeline, and checks that the format can hold them. The
 * caller frees it, also after an error. */
int cw_shard_schema_read(const struct cw_compiled *c, enum cw_shard_format format,
                         struct cw_shard_schema *ret, struct cw_error *err) _must_check_;

/* The caller calls _deinit, also after an error. */
int cw_shard_writer_init(struct cw_shard_writer *w, const struct cw_shard_schema *schema,
                         struct cw_error *err) _must_check_;
/* Begins the shard whose temporary file has this path, which must not exist. Takes over `path`; NULL: out of
 * memory. */
int cw_shard_writer_begin(struct cw_shard_writer *w, char *path, struct cw_error *err) _must_check_;
/* Appends an element to the open shard. values: of a row of the batch. number: of the element in the data
 * set. */
int cw_shard_writer_add(struct cw_shard_writer *w, const struct cw_batch *b, const struct cw_tensor *values,
                        uint64_t number, struct cw_error *err) _must_check_;
/* Ends the shard and syncs its file. Sets *ret to its entry in the manifest with this name, new. */
int cw_shard_writer_end(struct cw_shard_writer *w, const char *name, json_t **ret,
                        struct cw_error *err) _must_check_;
/* Removes the open shard, if there is one: its room is needed, and the next run writes it again. */
void cw_shard_writer_discard(struct cw_shard_writer *w);
void cw_shard_writer_deinit(struct cw_shard_writer *w); /* discards the open shard */
