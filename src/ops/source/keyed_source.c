/* Record ids of sources without files: one file key for the source, and the row. */
#include "ops/source/keyed_source.h"

#include "base/hash.h"

void cw_keyed_source_init(struct cw_keyed_source *s, const struct cw_source_ops *ops, uint64_t file_key,
                          uint64_t n_records, uint64_t source_bytes)
{
    struct cw_key snapshot = {0};
    cw_key_u64(&snapshot, file_key);
    cw_key_u64(&snapshot, n_records);
    s->file_key = file_key;
    s->base = (struct cw_source){
        .ops = ops,
        .n_records = n_records,
        .source_bytes = source_bytes,
        .random_access = true,
        .n_chunks = (n_records + CW_KEYED_SOURCE_CHUNK - 1) / CW_KEYED_SOURCE_CHUNK,
        .chunk_records = CW_KEYED_SOURCE_CHUNK,
        .snapshot = cw_key_hash(&snapshot),
    };
}

void cw_keyed_source_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i].file_key = ((const struct cw_keyed_source *)s)->file_key;
        out[i].row = rows[i];
    }
}

void cw_keyed_source_free(struct cw_source *s)
{
    free(s);
}
