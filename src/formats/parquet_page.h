/* The pages of a column chunk: their headers, and their decompression. */
#pragma once
#include "formats/parquet.h"
#include "formats/thrift.h"

enum cw_parquet_codec {
    CW_PARQUET_CODEC_NONE,
    CW_PARQUET_CODEC_SNAPPY,
    CW_PARQUET_CODEC_GZIP,
    CW_PARQUET_CODEC_LZO,
    CW_PARQUET_CODEC_BROTLI,
    CW_PARQUET_CODEC_LZ4,
    CW_PARQUET_CODEC_ZSTD,
    CW_PARQUET_CODEC_LZ4_RAW
};

enum { CW_PARQUET_PAGE_DATA, CW_PARQUET_PAGE_INDEX, CW_PARQUET_PAGE_DICTIONARY, CW_PARQUET_PAGE_DATA_V2 };

struct cw_parquet_page {
    int64_t type, encoding, n_values;
    int64_t packed, unpacked;     /* bytes as stored, and decompressed */
    int64_t def_bytes, rep_bytes; /* second version: bytes of the levels, which are never compressed */
    bool is_packed;               /* it is compressed, if the chunk is */
    bool has_crc;
    uint32_t crc;
};

/* Reads the header of a page. False: it is damaged, or the page does not fit into the bytes that are left. */
bool cw_parquet_page_read(struct cw_thrift *t, struct cw_parquet_page *p);
/* Decompresses a page to out. CW_E_DATA: `why` says why it can't be. */
int cw_parquet_page_unpack(int codec, const uint8_t *data, size_t size, uint8_t *out, size_t out_size,
                           char why[CW_PARQUET_WHY]) _must_check_;
