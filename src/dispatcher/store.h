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

/* ---- the store ---- */

struct cw_loop;
struct cw_store;

/* dir: where it lies, made if it is not there (those above it are not). NULL: nothing is written, and everything is as durable as the process.
 * CW_E_SERVICE: another process has it. CW_E_DATA: what is there is not ours, or damaged. */
int cw_store_open(const char *dir, struct cw_loop *l, struct cw_store **ret, struct cw_error *err) _must_check_;
/* Everything that is there, in the order of keys; before the first commit. row < 0: ends it with that result. */
int cw_store_read(struct cw_store *s, int (*row)(void *user, const void *key, size_t key_size, const void *value, size_t value_size, struct cw_error *err),
                  void *user, struct cw_error *err) _must_check_;

/* The caller's, from cw_store_commit until done was called; so is the batch. */
struct cw_store_commit {
    struct cw_store_commit *next;
    const struct cw_store_batch *batch;
    void (*done)(void *arg, const struct cw_error *why); /* on the loop's thread; why: NULL, or it did not happen */
    void *arg;
    struct cw_error error;
};
/* From the loop's thread. Where one fails, those committed after it before its done was called fail too: so nothing is missing before what is there. */
void cw_store_commit(struct cw_store *s, struct cw_store_commit *c);
/* What was committed is still written; done is not called any more. */
struct cw_store *cw_store_close(struct cw_store *s);

/* store_sqlite.c: one file, used by one thread at a time. */
struct cw_store_file;
int cw_store_file_open(const char *dir, struct cw_store_file **ret, struct cw_error *err) _must_check_;
int cw_store_file_read(struct cw_store_file *f, int (*row)(void *user, const void *key, size_t key_size, const void *value, size_t value_size, struct cw_error *err),
                       void *user, struct cw_error *err) _must_check_;
/* All of a list in one transaction, durable when this returns; or nothing of it. */
int cw_store_file_apply(struct cw_store_file *f, const struct cw_store_commit *list, struct cw_error *err) _must_check_;
struct cw_store_file *cw_store_file_close(struct cw_store_file *f);
