/* The store of the journal, which survives kill -9: a sorted table of keys and values (both bytes). A batch
 * of operations becomes durable as a whole; one batch is written at a time, by the store's own thread. Only
 * store_sqlite.c depends on the database. server.c calls the store; journal.c fills its batches. */
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
    const uint8_t *key, *value; /* DELETE_RANGE: deletes key <= k < value */
    size_t key_size, value_size;
};

/* Operations, in the order in which they are applied. All zeros: empty. */
struct cw_store_batch {
    uint8_t *data;
    size_t size, capacity, n;
};

/* Adds a copy of the operation. CW_E_MEMORY: the batch is unchanged. */
int cw_store_batch_add(struct cw_store_batch *b, const struct cw_store_op *op,
                       struct cw_error *err) _must_check_;
/* Sets *ret to the operation at offset *at (0: the first one), and moves *at to the next operation. False:
 * there are no more. */
bool cw_store_batch_next(const struct cw_store_batch *b, size_t *at, struct cw_store_op *ret);
/* Empties the batch and keeps its memory. */
void cw_store_batch_clear(struct cw_store_batch *b);
void cw_store_batch_deinit(struct cw_store_batch *b);

/* ---- the store ---- */

struct cw_loop;
struct cw_store;

/* Opens the store in directory dir, which is made if it does not exist (its parents are not). dir NULL:
 * nothing is written. CW_E_SERVICE: another process uses the store. CW_E_DATA: the file belongs to another
 * program, or is damaged. */
int cw_store_open(const char *dir, struct cw_loop *l, struct cw_store **ret,
                  struct cw_error *err) _must_check_;
/* Calls row for each entry in the order of keys; a result < 0 ends the loop and is returned. Call before the
 * first commit. */
int cw_store_read(struct cw_store *s,
                  int (*row)(void *user, const void *key, size_t key_size, const void *value,
                             size_t value_size, struct cw_error *err),
                  void *user, struct cw_error *err) _must_check_;

/* Returns the path of the file, for messages. "": nothing is written. */
const char *cw_store_path(const struct cw_store *s);

/* Makes a batch durable, as a whole or not at all, then calls done(arg, why) on the loop's thread. why: NULL,
 * or the error. Call from the loop's thread, and not again before done is called. The batch must not change
 * until then. */
void cw_store_commit(struct cw_store *s, const struct cw_store_batch *b,
                     void (*done)(void *arg, const struct cw_error *why), void *arg);
/* Waits until the committed batch is written, and frees the store. done is not called any more. Returns NULL.
 */
struct cw_store *cw_store_close(struct cw_store *s);

/* store_sqlite.c: one file, used by one thread at a time. */
struct cw_store_file;
int cw_store_file_open(const char *dir, struct cw_store_file **ret, struct cw_error *err) _must_check_;
int cw_store_file_read(struct cw_store_file *f,
                       int (*row)(void *user, const void *key, size_t key_size, const void *value,
                                  size_t value_size, struct cw_error *err),
                       void *user, struct cw_error *err) _must_check_;
const char *cw_store_file_path(const struct cw_store_file *f);
/* Applies the batch in one durable transaction, as a whole or not at all. */
int cw_store_file_apply(struct cw_store_file *f, const struct cw_store_batch *b,
                        struct cw_error *err) _must_check_;
struct cw_store_file *cw_store_file_close(struct cw_store_file *f);
