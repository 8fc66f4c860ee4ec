/* The encodings of values in Parquet's pages. Readers go forward through bytes in memory, behind which
 * CW_PARQUET_SLACK bytes may be read. Every function returns false if the bytes are damaged. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cw_parquet_encoding {
    CW_PARQUET_PLAIN = 0,
    CW_PARQUET_PLAIN_DICTIONARY = 2,
    CW_PARQUET_RLE = 3,
    CW_PARQUET_DELTA_BINARY_PACKED = 5,
    CW_PARQUET_DELTA_LENGTH_BYTE_ARRAY = 6,
    CW_PARQUET_DELTA_BYTE_ARRAY = 7,
    CW_PARQUET_RLE_DICTIONARY = 8,
    CW_PARQUET_BYTE_STREAM_SPLIT = 9
};

/* Runs of one value, and bit-packed values, in turn. */
struct cw_parquet_rle {
    const uint8_t *p, *end;
    unsigned width; /* bits of a value, at most 32 */
    uint64_t left;  /* values of the present run that are left */
    bool packed;    /* the run is of bit-packed values */
    uint32_t value; /* of a run of one value */
    uint64_t bit;   /* of a packed run: the next bit, counted from `run` */
    const uint8_t *run;
};

/* Begins the next run, unless values of the present one are left. */
bool cw_parquet_rle_run(struct cw_parquet_rle *r);
bool cw_parquet_rle_read(struct cw_parquet_rle *r, uint32_t *out, size_t n);
/* Returns the largest of n values; 0 if there are none. */
uint32_t cw_parquet_most(const uint32_t *values, size_t n);

/* Decodes DELTA_BINARY_PACKED: *ret_n values, of which at most `room` are stored. *p is set behind them. */
bool cw_parquet_delta(const uint8_t **p, const uint8_t *end, int64_t *out, size_t room, size_t *ret_n);
