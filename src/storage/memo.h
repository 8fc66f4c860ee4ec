/*
 * A memo: a file of small values, each found by the hash of what it was computed from. Losing a value
 * costs time, never a result: values may be evicted, and a value that was damaged is not found. The file
 * is bounded, and processes share it without locks. Any thread may use a memo.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"

struct cw_memo;

#define CW_MEMO_VALUE_MOST ((size_t)4000) /* bytes of a value, at most */

/* Makes a memo in the file DIR/NAME-UID, where UID is the number of the user, of at most max_bytes. The
 * file is opened at the first use, and made if need be. */
int cw_memo_new(const char *dir, const char *name, uint64_t max_bytes, struct cw_memo **ret,
                struct cw_error *err) _must_check_;
/* Closes the file. Accepts NULL, and returns NULL. */
struct cw_memo *cw_memo_free(struct cw_memo *m);

enum cw_memo_found {
    CW_MEMO_ABSENT,
    CW_MEMO_FOUND,
    CW_MEMO_UNKNOWN, /* the file can't be used, or this part of it is not in memory, and is now being read */
};

/* Copies the value of a key to `to`, which has CW_MEMO_VALUE_MOST bytes, and its size to *ret_size. Does
 * not wait for storage where the file system supports that. */
enum cw_memo_found cw_memo_get(struct cw_memo *m, struct cw_hash128 key, void *to, size_t *ret_size);
/* Stores a value of 1 to CW_MEMO_VALUE_MOST bytes; it replaces an older value of the key, and can evict
 * values of other keys. Does nothing if that fails, as on a full disk. */
void cw_memo_put(struct cw_memo *m, struct cw_hash128 key, const void *value, size_t size);
