/* What shard.c and the files of its formats (shard_example.c, shard_tar.c) share. */
#pragma once
#include <string.h>

#include "formats/shard.h"

/* Returns room for `size` bytes more at the end of `to`; the caller adds what it uses to to->size. NULL: out
 * of memory, err is set. */
uint8_t *cw_shard_room(struct cw_shard_bytes *to, size_t size, struct cw_error *err);
/* Stores a reason in why. Returns false. */
bool cw_shard_wrong(char why[CW_SHARD_WHY], const char *fmt, ...) _printf_(2, 3);
/* Sets v->ndim, v->dims and v->size from dims that the record states. False: they don't fit the type, or the
 * values would be larger than memory; why says so. */
bool cw_shard_set_dims(const struct cw_shard_component *c, const int64_t *dims, int64_t ndim,
                       struct cw_shard_value *v, char why[CW_SHARD_WHY]) _must_check_;

/* One format: see cw_shard_schema_check, cw_shard_write, cw_shard_write_end and cw_shard_read. */
struct cw_shard_ops {
    int (*check)(const struct cw_shard_schema *s, struct cw_error *err); /* NULL: it holds everything */
    int (*write)(const struct cw_shard_schema *s, uint64_t number, const struct cw_tensor *values,
                 struct cw_shard_bytes *to, struct cw_error *err);
    size_t end_zeros; /* zero bytes after the last element */
    bool (*read)(const struct cw_shard_schema *s, const uint8_t *data, size_t size,
                 struct cw_shard_value *values, char why[CW_SHARD_WHY]);
};

extern const struct cw_shard_ops cw_shard_example, cw_shard_tar;

static inline void cw_shard_store64(uint8_t *to, uint64_t v)
{
    memcpy(to, &v, sizeof(v)); /* little-endian, as base/hash.h */
}
