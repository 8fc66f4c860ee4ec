/* The headers of Parquet's pages, and their decompression. Pure functions. */
#include "formats/parquet_page.h"

#include <stdio.h>
#include <zlib.h>
#include <zstd.h>

#include "formats/lz4.h"
#include "formats/snappy.h"

#define damaged(why, ...) (snprintf(why, CW_PARQUET_WHY, __VA_ARGS__), CW_E_DATA)

static void page_read_inner(struct cw_thrift *t, int kind, struct cw_parquet_page *p)
{
    struct cw_thrift_field f = {0};
    p->is_packed = true;
    while (cw_thrift_field(t, &f)) {
        int encoding = kind == 8 ? 4 : 2;
        int64_t *into = f.id == 1                ? &p->n_values
                        : f.id == encoding       ? &p->encoding
                        : kind == 8 && f.id == 5 ? &p->def_bytes
                        : kind == 8 && f.id == 6 ? &p->rep_bytes
                                                 : NULL;
        if (kind == 8 && f.id == 7)
            p->is_packed = f.type == CW_THRIFT_TRUE;
        if (into && f.type == CW_THRIFT_I32)
            *into = cw_thrift_int(t);
        else
            cw_thrift_skip(t, f.type);
    }
}

bool cw_parquet_page_read(struct cw_thrift *t, struct cw_parquet_page *p)
{
    struct cw_thrift_field f = {0};
    *p = (struct cw_parquet_page){.type = -1};
    while (cw_thrift_field(t, &f)) {
        int64_t *into = f.id == 1 ? &p->type : f.id == 2 ? &p->unpacked : f.id == 3 ? &p->packed : NULL;
        if (into && f.type == CW_THRIFT_I32) {
            *into = cw_thrift_int(t);
        } else if (f.id == 4 && f.type == CW_THRIFT_I32) {
            p->crc = (uint32_t)cw_thrift_int(t);
            p->has_crc = true;
        } else if ((f.id == 5 || f.id == 7 || f.id == 8) && f.type == CW_THRIFT_STRUCT) {
            page_read_inner(t, f.id, p);
        } else {
            cw_thrift_skip(t, f.type);
        }
    }
    return !t->bad && p->packed >= 0 && p->unpacked >= 0 && p->n_values >= 0 && p->def_bytes >= 0 &&
           p->rep_bytes >= 0 && p->packed <= t->end - t->p;
}

static bool page_gunzip(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    z_stream z = {.next_in = (void *)(uintptr_t)data,
                  .avail_in = (uInt)size,
                  .next_out = out,
                  .avail_out = (uInt)out_size};
    if (inflateInit2(&z, 15 + 32) != Z_OK)
        return false;
    int r = inflate(&z, Z_FINISH);
    bool good = r == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    return good;
}

static uint32_t page_big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Blocks as Hadoop writes them: the size of the block when it is decompressed, that of its data, and the
 * data. */
static bool page_unlz4(const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    while (size >= 8) {
        uint32_t unpacked = page_big_endian(data), packed = page_big_endian(data + 4);
        data += 8;
        size -= 8;
        if (packed > size || unpacked > out_size || !cw_lz4_block(data, packed, out, unpacked))
            return false;
        data += packed;
        size -= packed;
        out += unpacked;
        out_size -= unpacked;
    }
    return size == 0 && out_size == 0;
}

int cw_parquet_page_unpack(int codec, const uint8_t *data, size_t size, uint8_t *out, size_t out_size,
                           char why[CW_PARQUET_WHY])
{
    static const char *const names[] = {"none",   "snappy", "gzip", "LZO",
                                        "brotli", "LZ4",    "zstd", "LZ4 (raw)"};
    bool good;
    switch (codec) {
    case CW_PARQUET_CODEC_SNAPPY:
        good = cw_snappy_decompress(data, size, out, out_size) == 0;
        break;
    case CW_PARQUET_CODEC_GZIP:
        good = page_gunzip(data, size, out, out_size);
        break;
    case CW_PARQUET_CODEC_ZSTD:
        good = ZSTD_decompress(out, out_size, data, size) == out_size;
        break;
    case CW_PARQUET_CODEC_LZ4:
    case CW_PARQUET_CODEC_LZ4_RAW:
        if (cw_lz4_lacks)
            return damaged(why, "it is compressed with LZ4, and this build has no %s", cw_lz4_lacks);
        good = (codec == CW_PARQUET_CODEC_LZ4 && page_unlz4(data, size, out, out_size)) ||
               cw_lz4_block(data, size, out, out_size);
        break;
    default:
        return damaged(
            why,
            "it is compressed with %s, which can't be read: write the file with snappy, zstd, LZ4, gzip or "
            "without compression",
            codec >= 0 && codec <= CW_PARQUET_CODEC_LZ4_RAW ? names[codec] : "an unknown codec");
    }
    return good ? 0 : damaged(why, "the %s data of a page are damaged", names[codec]);
}
