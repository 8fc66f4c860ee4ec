/* Reads Thrift's compact protocol, in which Parquet's metadata is written. A reader goes forward through
 * bytes in memory. After damage `bad` is set, and every value is 0. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cw_thrift_type {
    CW_THRIFT_STOP = 0,
    CW_THRIFT_TRUE = 1,
    CW_THRIFT_FALSE = 2,
    CW_THRIFT_BYTE = 3,
    CW_THRIFT_I16 = 4,
    CW_THRIFT_I32 = 5,
    CW_THRIFT_I64 = 6,
    CW_THRIFT_DOUBLE = 7,
    CW_THRIFT_BINARY = 8,
    CW_THRIFT_LIST = 9,
    CW_THRIFT_SET = 10,
    CW_THRIFT_MAP = 11,
    CW_THRIFT_STRUCT = 12
};

struct cw_thrift {
    const uint8_t *p, *end;
    bool bad;
};

struct cw_thrift_field {
    int id, type; /* enum cw_thrift_type */
};

/* Reads the next field of a struct; *f begins as zeros. False: the struct has ended. */
bool cw_thrift_field(struct cw_thrift *t, struct cw_thrift_field *f);
/* The value of a field of an integer type. */
int64_t cw_thrift_int(struct cw_thrift *t);
/* The bytes of a binary, which stay in the reader's memory. */
const uint8_t *cw_thrift_binary(struct cw_thrift *t, size_t *ret_size);
/* Reads the head of a list or set. Returns the number of its values, of at least one byte each; *ret_type:
 * theirs. */
size_t cw_thrift_list(struct cw_thrift *t, int *ret_type);
/* Passes over a value of this type. */
void cw_thrift_skip(struct cw_thrift *t, int type);
