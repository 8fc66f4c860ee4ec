/*
 * Rows on their way to a host process and back: columns in shared memory, as docs/hosts.md lays them out. An
 * answer was written by a process that runs the user's code, so it is checked before it is used.
 */
#pragma once
#include "data/batch.h"
#include "data/block.h"

struct cw_exchange_column {
    const struct cw_type *type;
    unsigned value; /* of the block */
};

struct cw_exchange_request {
    const struct cw_block *block;
    const struct cw_exchange_column *columns;
    unsigned n_columns;
    const uint32_t *rows; /* of the block, n of them */
    size_t n;
    const uint64_t *keys; /* 2 a row, for generators; NULL: none are wanted */
    const uint8_t *check; /* by row: compute it twice; NULL: none */
};

/* Writes a request, and returns the bytes that it takes. to NULL: writes nothing. */
size_t cw_exchange_write(const struct cw_exchange_request *q, uint8_t *to);

/* Likewise, for all components of a batch as whole arrays. */
size_t cw_exchange_whole_write(const struct cw_batch *batch, const uint64_t keys[2], bool check, uint8_t *to);

/* A request for up to n elements of an iterable, beginning with element `from`. If the iterable is slow, the
 * host may answer with `least` or more. The host keeps the elements from `keep` on for later requests. */
struct cw_exchange_pull {
    uint64_t from, n, least, keep;
};

#define CW_EXCHANGE_PULL_BYTES 128 /* that such a request takes */
void cw_exchange_pull_write(const struct cw_exchange_pull *q, uint8_t *to);

enum cw_exchange_status { CW_EXCHANGE_OK, CW_EXCHANGE_DROPPED, CW_EXCHANGE_FAILED, CW_EXCHANGE_DIFFERS };

struct cw_exchange_answer {
    const uint8_t *data; /* in shared memory, like what follows */
    size_t size;
    /* by row of the request: enum cw_exchange_status, to be copied before it is trusted */
    const uint8_t *status;
    const uint32_t *counts; /* by row of the request: elements that it gave; NULL: one each */
    const char *errors;     /* JSON: [[row, message], ...]; not terminated */
    size_t errors_size;
    size_t n; /* rows */
    const uint64_t *columns;
};

/* Checks an answer for n_requested rows and n_columns. False: it is not well-formed; *why says why. */
bool cw_exchange_read(const uint8_t *data, size_t size, size_t n_requested, unsigned n_columns, bool counted,
                      struct cw_exchange_answer *ret, const char **why);
/* Returns row `row` of column k. False: it does not lie in the answer, or is not of the type. */
bool cw_exchange_row(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type, size_t row,
                     struct cw_tensor *ret);
/* Returns column k as a whole: its bytes and the dims of an element, or its strings and their n + 1 offsets.
 * False: as above. */
bool cw_exchange_column_whole(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type,
                              struct cw_tensor *ret, const uint64_t **ret_offsets);
