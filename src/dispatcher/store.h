/*
 * What the dispatcher writes down so that it is there after kill -9: values under keys that are ordered by their bytes. Batches become durable as
 * a whole, in the order in which they were committed. One thread of the store's own writes: all that came while the last transaction was being synced goes
 * into the next (group commit). The database is the business of store_sqlite.c alone.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define CW_STORE_KEY_MAX 1024 /* bytes of a key */

/* ---- batches ---- */

enum cw_store_kind { CW_STORE_PUT, CW_STORE_DELETE, CW_STORE_DELETE_RANGE };
struct cw_store_op {
    enum cw_store_kind kind;
    const uint8_t *key, *value; /* DELETE_RANGE: from key up to, without, value */
    size_t key_size, value_size;
};

/* What is to be done, in this order. Zeros: empty. */
struct cw_store_batch {
    uint8_t *data;
    size_t size, capacity, n;
};
/* CW_E_MEMORY, and the batch is as it was. */
int cw_store_batch_add(struct cw_store_batch *b, const struct cw_store_op *op, struct cw_error *err) _must_check_;
/* The operation at *at (0: the first), and *at goes on. False: there are no more. */
bool cw_store_batch_next(const struct cw_store_batch *b, size_t *at, struct cw_store_op *ret);
/* Empty again; its memory stays. */
void cw_store_batch_clear(struct cw_store_batch *b);
void cw_store_batch_deinit(struct cw_store_batch *b);
