/*
 * Writes requests to host processes, and reads their answers: columns of rows in shared memory, in the layout
 * of docs/hosts.md. An answer was written by a process that runs the user's code, so it is checked before it
 * is used.
 */
#pragma once
#include "data/batch.h"
#include "data/block.h"

struct cw_exchange_column {
    const struct cw_type *type;
    unsigned value; /* index of the column in the block */
};

struct cw_exchange_request {
    const struct cw_block *block;
    const struct cw_exchange_column *columns;
    unsigned n_columns;
    const uint32_t *rows; /* indices of n rows of the block */
    size_t n;
    const uint64_t
        *keys; /* two words per row, which seed its random generator; NULL: the function draws nothing */
    const uint8_t *check; /* per row: 1 to compute it twice and compare; NULL: no row */
};

/* Writes a request at `to`, and returns its bytes. to NULL: only returns the bytes. */
size_t cw_exchange_write(const struct cw_exchange_request *q, uint8_t *to);

/* Writes a request of map_batches: all components of a batch as whole arrays. Returns its bytes; to NULL:
 * only returns them. */
size_t cw_exchange_whole_write(const struct cw_batch *batch, const uint64_t keys[2], bool check, uint8_t *to);

/* A request for up to n elements of an iterable, beginning with element `from`. If the iterable is slow, the
 * host may answer with `least` or more. The host keeps the elements from `keep` on for later requests. */
struct cw_exchange_pull {
    uint64_t from, n, least, keep;
};

#define CW_EXCHANGE_PULL_BYTES 128 /* of such a request */
void cw_exchange_pull_write(const struct cw_exchange_pull *q, uint8_t *to);

enum cw_exchange_status { CW_EXCHANGE_OK, CW_EXCHANGE_DROPPED, CW_EXCHANGE_FAILED, CW_EXCHANGE_DIFFERS };

struct cw_exchange_answer {
    const uint8_t *data; /* in shared memory, as all that the other pointers point to */
    size_t size;
    /* per row of the request: enum cw_exchange_status. The host may change it: copy it before checking it */
    const uint8_t *status;
    const uint32_t *counts; /* per row of the request: number of elements that it gave; NULL: one each */
    const char *errors;     /* JSON: [[row, message], ...]; not terminated */
    size_t errors_size;
    size_t n; /* rows */
    const uint64_t *columns;
};

/* Checks an answer to a request of n_requested rows for a function with n_columns outputs. counted: the
 * answer has counts. False: the answer is malformed, and *why says why. */
bool cw_exchange_read(const uint8_t *data, size_t size, size_t n_requested, unsigned n_columns, bool counted,
                      struct cw_exchange_answer *ret, const char **why);
/* Sets *ret to row `row` of column k. False: the row does not lie in the answer, or does not have the type.
 */
bool cw_exchange_row(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type, size_t row,
                     struct cw_tensor *ret);
/* Sets *ret to the whole of column k: its bytes and the dims of an element; of a bytes column, its strings,
 * and in *ret_offsets their n + 1 offsets. False: as cw_exchange_row. */
bool cw_exchange_column_whole(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type,
                              struct cw_tensor *ret, const uint64_t **ret_offsets);
