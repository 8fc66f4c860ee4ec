/* Temporary files and TFRecord bytes for tests. Include after cmocka.h. */
#pragma once
#include <bzlib.h>
#include <lzma.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "formats/crc32c.h"
#include "storage/file.h"

struct bytes {
    uint8_t *data;
    size_t size, capacity;
};

static inline void bytes_add(struct bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->capacity) {
        b->capacity = (b->size + size) * 2;
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void bytes_free(struct bytes *b)
{
    free(b->data);
    *b = (struct bytes){0};
}

static inline void bytes_add_u32(struct bytes *b, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        bytes_add(b, &(uint8_t){(uint8_t)(v >> (8 * i))}, 1);
}

static inline void bytes_add_u64(struct bytes *b, uint64_t v)
{
    bytes_add_u32(b, (uint32_t)v);
    bytes_add_u32(b, (uint32_t)(v >> 32));
}

static inline void bytes_add_header(struct bytes *b, uint64_t length)
{
    size_t at = b->size;
    bytes_add_u64(b, length);
    bytes_add_u32(b, cw_crc32c_mask(cw_crc32c_portable(0, b->data + at, 8)));
}

static inline void bytes_add_record(struct bytes *b, const void *data, size_t size)
{
    bytes_add_header(b, size);
    bytes_add(b, data, size);
    bytes_add_u32(b, cw_crc32c_mask(cw_crc32c_portable(0, data, size)));
}

/* A record of size bytes that differ by number; half of them repeat, so that it compresses. */
static inline void bytes_add_numbered(struct bytes *b, uint32_t number, size_t size)
{
    uint8_t *data = malloc(size + 1);
    uint32_t x = number * 2654435761u + 1;
    for (size_t i = 0; i < size; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = i % 8 < 4 ? (uint8_t)(x >> 24) : (uint8_t)number;
    }
    bytes_add_record(b, data, size);
    free(data);
}

/* One zlib stream (window_bits 15) or gzip member (31). */
static inline void bytes_add_deflated(struct bytes *b, const uint8_t *data, size_t size, int window_bits)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, size) + 64;
    uint8_t *out = malloc(room);
    z.next_in = (uint8_t *)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    bytes_add(b, out, room - z.avail_out);
    deflateEnd(&z);
    free(out);
}

/* One frame of zstd, with a checksum. */
static inline void bytes_add_zstd(struct bytes *b, const uint8_t *data, size_t size)
{
    size_t room = ZSTD_compressBound(size);
    uint8_t *out = malloc(room);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    assert_true(out && z);
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1)));
    size_t n = ZSTD_compress2(z, out, room, data, size);
    assert_false(ZSTD_isError(n));
    bytes_add(b, out, n);
    ZSTD_freeCCtx(z);
    free(out);
}

/* One stream of bzip2. */
static inline void bytes_add_bzip2(struct bytes *b, const uint8_t *data, size_t size)
{
    unsigned room = (unsigned)(size + size / 100 + 600); /* as bzlib.h says */
    char *out = malloc(room);
    assert_non_null(out);
    assert_int_equal(BZ2_bzBuffToBuffCompress(out, &room, (char *)(uintptr_t)data, (unsigned)size, 1, 0, 0),
                     BZ_OK);
    bytes_add(b, out, room);
    free(out);
}

/* One stream of xz, with a block for every block_size bytes. */
static inline void bytes_add_xz(struct bytes *b, const uint8_t *data, size_t size, size_t block_size)
{
    lzma_stream z = LZMA_STREAM_INIT;
    size_t room = lzma_stream_buffer_bound(size) + 1024 * (size / block_size + 1);
    uint8_t *out = malloc(room);
    assert_non_null(out);
    assert_int_equal(lzma_easy_encoder(&z, 0, LZMA_CHECK_CRC64), LZMA_OK);
    z.next_out = out;
    z.avail_out = room;
    for (size_t at = 0; at < size; at += block_size) {
        z.next_in = data + at;
        z.avail_in = at + block_size < size ? block_size : size - at;
        assert_int_equal(lzma_code(&z, LZMA_FULL_FLUSH), LZMA_STREAM_END);
    }
    assert_int_equal(lzma_code(&z, LZMA_FINISH), LZMA_STREAM_END);
    bytes_add(b, out, room - z.avail_out);
    lzma_end(&z);
    free(out);
}

/* ---- a directory per test; removed by temp_remove ---- */

static char temp_dir[64];

/* Path of a name in it; good until temp_remove. */
static char *temp_paths[1024];

static inline const char *temp_path(const char *name)
{
    size_t i = 0, skip = strlen(temp_dir) + 1;
    while (temp_paths[i] && strcmp(temp_paths[i] + skip, name) != 0)
        i++;
    assert_true(i + 1 < sizeof(temp_paths) / sizeof(temp_paths[0]));
    if (!temp_paths[i])
        assert_true(asprintf(&temp_paths[i], "%s/%s", temp_dir, name) > 0);
    return temp_paths[i];
}

static inline const char *temp_file(const char *name, const void *data, size_t size)
{
    const char *path = temp_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    /* no data: may be NULL, which fwrite must not get */
    assert_true(!size || fwrite(data, 1, size, f) == size);
    fclose(f);
    return path;
}

static inline int temp_make(void **state)
{
    (void)state;
    strcpy(temp_dir, "/tmp/cachew-test-XXXXXX");
    return mkdtemp(temp_dir) ? 0 : -1;
}

static inline int temp_remove(void **state)
{
    char command[96];
    (void)state;
    for (size_t i = 0; temp_paths[i]; i++)
        free(temp_paths[i]);
    snprintf(command, sizeof(command), "rm -rf '%s'", temp_dir);
    return system(command);
}

static inline struct cw_file *open_file(const char *path)
{
    struct cw_stat st;
    struct cw_file *f;
    assert_int_equal(cw_stat(path, &st, NULL), 0);
    assert_int_equal(cw_file_new(path, &st, &f, NULL), 0);
    return f;
}

#define assert_contains(text, part) \
    do { \
        if (!strstr((text), (part))) \
            fail_msg("\"%s\" does not contain \"%s\"", (text), (part)); \
    } while (0)
