/* Batches: all operations in one array of bytes. Each has a head (kind and sizes), then key and value. */
#include <string.h>

#include "service/dispatcher/store.h"

#include "base/array.h"

struct head {
    uint32_t kind, key_size;
    uint64_t value_size;
};

int cw_store_batch_add(struct cw_store_batch *b, const struct cw_store_op *op, struct cw_error *err)
{
    struct head h = {
        .kind = (uint32_t)op->kind, .key_size = (uint32_t)op->key_size, .value_size = op->value_size};
    if (op->key_size > CW_STORE_KEY_MAX ||
        (op->kind == CW_STORE_DELETE_RANGE && op->value_size > CW_STORE_KEY_MAX))
        return cw_error_set(err, CW_E_BUG,
                            "a key in the dispatcher's journal has %zu bytes: expected at most %d",
                            CW_MAX(op->key_size, op->value_size), CW_STORE_KEY_MAX);
    size_t size = b->size + sizeof(h) + op->key_size + op->value_size;
    if (CW_ARRAY_ROOM(b->data, b->capacity, size, "a batch for the journal", err) < 0)
        return CW_E_MEMORY;
    uint8_t *at = b->data + b->size;
    memcpy(at, &h, sizeof(h));
    if (op->key_size > 0)
        memcpy(at + sizeof(h), op->key, op->key_size);
    if (op->value_size > 0)
        memcpy(at + sizeof(h) + op->key_size, op->value, op->value_size);
    b->size = size;
    b->n++;
    return 0;
}

bool cw_store_batch_next(const struct cw_store_batch *b, size_t *at, struct cw_store_op *ret)
{
    struct head h;
    if (*at >= b->size)
        return false;
    memcpy(&h, b->data + *at, sizeof(h));
    const uint8_t *key = b->data + *at + sizeof(h);
    *ret = (struct cw_store_op){.kind = (enum cw_store_kind)h.kind,
                                .key = key,
                                .key_size = h.key_size,
                                .value = key + h.key_size,
                                .value_size = h.value_size};
    *at += sizeof(h) + h.key_size + h.value_size;
    return true;
}

void cw_store_batch_clear(struct cw_store_batch *b)
{
    b->size = b->n = 0;
}

void cw_store_batch_deinit(struct cw_store_batch *b)
{
    free(b->data);
    *b = (struct cw_store_batch){0};
}
