/* A source without files, for range, synthetic, arrays, iterable and zip. The id of a record is the source's
 * file key and the record's row. */
#pragma once
#include "pipeline/source.h"

#define CW_KEYED_SOURCE_CHUNK 1024 /* records, docs/semantics.md section 1 */

struct cw_keyed_source {
    struct cw_source base;
    uint64_t file_key;
};

/* Fills in *s: a source of n_records, each of which can be read by itself. source_bytes: size of all records.
 */
void cw_keyed_source_init(struct cw_keyed_source *s, const struct cw_source_ops *ops, uint64_t file_key,
                          uint64_t n_records, uint64_t source_bytes);
/* For struct cw_source_ops: `ids`, and `free` for a source that owns nothing. */
void cw_keyed_source_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out);
void cw_keyed_source_free(struct cw_source *s);
