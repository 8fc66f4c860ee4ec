/* Materialises a pipeline: writes the elements of epoch 0, in their order, to the shards of a directory, with
 * a manifest (docs/materialize.md). A run that was killed goes on after its last finished shard. cli/ and
 * api/ call it. */
#pragma once
#include "formats/shard.h"
#include "session/local.h"

#define CW_SHARD_BYTES \
    (UINT64_C(256) << 20) /* default size of a shard: large reads, and thousands fit a directory */

struct cw_materialize_options {
    const char *dir;
    enum cw_shard_format format;
    const char *index_dir;              /* as in cw_local_open */
    uint64_t shard_bytes;               /* a shard ends with the element with which it has so many bytes */
    struct cw_iterator_options iterate; /* seed and runner are used; epochs is 1 */
    uint64_t wait_ns; /* deadline for an element; with a service, for a range of elements; 0: none */
    /* Opens l's iterator over a service, whose workers reach `dir` under the same path; run: name of the run;
     * state: where to continue, or NULL. NULL: this process computes and writes. */
    int (*connect)(void *arg, struct cw_local *l, const char *run, const json_t *state, struct cw_error *err);
    void *connect_arg;
    /* Called before each batch is requested, with the elements and bytes that are written so far, those of
     * earlier runs included; l has its iterator. Non-zero: end with CW_E_INTERRUPTED. */
    int (*step)(void *arg, struct cw_local *l, uint64_t elements, uint64_t bytes);
    void *step_arg;
};

/* Materialises the compiled pipeline l, whose sources it opens unless a service computes. *ret: {shards,
 * elements, bytes, set_digest}, new. If the directory holds the complete data of the same run, nothing is
 * computed. After an error, the same call goes on. */
int cw_materialize(struct cw_local *l, const struct cw_materialize_options *o, json_t **ret,
                   struct cw_error *err) _must_check_;
/* Returns the name of the job of a service's run, new; NULL: out of memory. name: its first part, or NULL. */
char *cw_materialize_job(const char *name, const char *run);
/* Checks a materialised directory: that it holds the shards of its manifest and no other file, with their
 * checksums, and that the elements that are read back have the manifest's set_digest. *ret is as that of
 * cw_materialize. Of the options dir, format and shard_bytes are not used; l must be zeroed. */
int cw_materialize_verify(const char *dir, struct cw_local *l, const struct cw_materialize_options *o,
                          json_t **ret, struct cw_error *err) _must_check_;
