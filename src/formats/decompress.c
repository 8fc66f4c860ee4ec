/* Reads compressed files as a stream, through the table of their codec. Owns struct cw_decompress; the caller
 * owns the file. The builder and the readers of index segments call it. One thread at a time per stream. */
#include "formats/decompress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/codec.h"
#include "storage/file.h"

const char *const cw_codec_names[] = {"auto", "none", "gzip", "zlib", "zstd", "bzip2", "xz", NULL};

static const struct cw_codec_ops *const codecs[CW_CODECS] = {
    [CW_CODEC_GZIP] = &cw_codec_deflate, [CW_CODEC_ZLIB] = &cw_codec_deflate,
    [CW_CODEC_ZSTD] = &cw_codec_zstd,    [CW_CODEC_BZIP2] = &cw_codec_bzip2,
    [CW_CODEC_XZ] = &cw_codec_xz,
};

/* The first bytes of compressed files. codec CW_CODEC_AUTO: there is no codec that reads them. */
static const struct {
    enum cw_codec codec;
    const char *name;
    size_t size;
    uint8_t magic[CW_CODEC_HEAD]; /* 0xff: a digit of 1 to 9 */
} magics[] = {
    {CW_CODEC_GZIP, "gzip", 3, {0x1f, 0x8b, 8}},
    {CW_CODEC_ZSTD, "zstd", 4, {0x28, 0xb5, 0x2f, 0xfd}},
    {CW_CODEC_BZIP2, "bzip2", 10, {'B', 'Z', 'h', 0xff, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59}},
    {CW_CODEC_BZIP2, "bzip2", 10, {'B', 'Z', 'h', 0xff, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90}}, /* no data */
    {CW_CODEC_XZ, "xz", 6, {0xfd, '7', 'z', 'X', 'Z', 0}},
    {CW_CODEC_AUTO, "lz4", 4, {0x04, 0x22, 0x4d, 0x18}},
    {CW_CODEC_AUTO, "zip", 4, {'P', 'K', 3, 4}},
    {CW_CODEC_AUTO, "7-Zip", 6, {'7', 'z', 0xbc, 0xaf, 0x27, 0x1c}},
};

int cw_codec_parse(const char *name)
{
    for (int i = 0; i < CW_CODECS; i++)
        if (strcmp(name, cw_codec_names[i]) == 0)
            return i;
    return -1;
}

const char *cw_codec_name(enum cw_codec codec)
{
    return cw_codec_names[codec];
}

/* Returns the number of the magic that the bytes begin with; CW_COUNT_OF(magics): none. */
static size_t codec_find_magic(const uint8_t *head, size_t size)
{
    for (size_t i = 0; i < CW_COUNT_OF(magics); i++) {
        const uint8_t *magic = magics[i].magic;
        size_t n = magics[i].size, same = 0;
        while (same < CW_MIN(n, size) &&
               (magic[same] == 0xff ? head[same] >= '1' && head[same] <= '9' : head[same] == magic[same]))
            same++;
        if (same == n)
            return i;
    }
    return CW_COUNT_OF(magics);
}

/* zstd has 16 magic numbers for frames without data; pzstd begins a file with one. */
static bool codec_is_zstd_skippable(const uint8_t *head, size_t size)
{
    return size >= 4 && (head[0] & 0xf0) == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18;
}

enum cw_codec cw_codec_detect(const uint8_t *head, size_t size)
{
    size_t i = codec_find_magic(head, size);
    if (i < CW_COUNT_OF(magics) && magics[i].codec != CW_CODEC_AUTO)
        return magics[i].codec;
    if (codec_is_zstd_skippable(head, size))
        return CW_CODEC_ZSTD;
    if (size >= 2 && head[0] == 0x78 && (head[0] << 8 | head[1]) % 31 == 0 && !(head[1] & 0x20))
        return CW_CODEC_ZLIB;
    return CW_CODEC_PLAIN;
}

const char *cw_codec_unreadable(const uint8_t *head, size_t size)
{
    size_t i = codec_find_magic(head, size);
    return i < CW_COUNT_OF(magics) && magics[i].codec == CW_CODEC_AUTO ? magics[i].name : NULL;
}

/* ---- for the codecs ---- */

int cw_codec_peek(struct cw_decompress *z, void *to, size_t size, size_t *ret_n, struct cw_error *err)
{
    uint64_t at = cw_codec_offset(z), left = cw_file_size(z->file) - at;
    *ret_n = (size_t)CW_MIN(left, (uint64_t)size);
    if (*ret_n <= z->n_in) {
        memcpy(to, z->in, *ret_n);
        return 0;
    }
    return cw_ahead_read(&z->ahead, at, to, *ret_n, err);
}

void cw_codec_skip(struct cw_decompress *z, size_t n)
{
    size_t buffered = CW_MIN(n, z->n_in);
    cw_codec_used(z, buffered);
    z->next += n - buffered;
}

int cw_codec_need(struct cw_decompress *z, uint64_t bytes, struct cw_error *err)
{
    z->memory = CW_MAX(z->memory, (size_t)bytes);
    if (z->most == 0 || bytes <= z->most)
        return 0;
    char value[32], expected[64];
    const char *path = cw_file_path(z->file);
    snprintf(value, sizeof(value), "%zu", z->most);
    snprintf(expected, sizeof(expected), "at least %" PRIu64 " bytes", bytes);
    cw_error_file(err, path);
    return cw_error_value(err, CW_E_BUDGET, "memory", value, expected,
                          "memory budget %zu is too small: decompressing the %s data of %s (at byte %" PRIu64
                          ") takes %" PRIu64 " bytes; expected at least %" PRIu64,
                          z->most, cw_codec_names[z->codec], path, cw_codec_offset(z), bytes, bytes);
}

int cw_codec_damaged(const struct cw_decompress *z, const char *why, struct cw_error *err)
{
    const char *path = cw_file_path(z->file);
    return cw_error_at_file(err, CW_E_DATA, path, 0,
                            "%s: damaged %s data near byte %" PRIu64 " of the file (byte %" PRIu64
                            " of the decompressed data): %s",
                            path, cw_codec_names[z->codec], cw_codec_offset(z), z->out, why);
}

int cw_codec_truncated(const struct cw_decompress *z, struct cw_error *err)
{
    const char *path = cw_file_path(z->file);
    return cw_error_at_file(err, CW_E_DATA, path, 0,
                            "%s: the file ends at byte %" PRIu64 " inside its %s data (byte %" PRIu64
                            " of the decompressed data): the file is truncated",
                            path, cw_file_size(z->file), cw_codec_names[z->codec], z->out);
}

/* ---- streams ---- */

int cw_decompress_open(struct cw_file *file, enum cw_codec codec, size_t most, const struct cw_restart *from,
                       const uint8_t *window, struct cw_decompress **ret, struct cw_error *err)
{
    const struct cw_codec_ops *ops = codecs[codec];
    struct cw_decompress *z = calloc(1, ops->size);
    if (!z)
        return cw_error_nomem(err, ops->size, "decompression");
    z->ops = ops;
    z->file = file;
    cw_ahead_init(&z->ahead, file);
    z->codec = codec;
    z->most = most;
    z->between = z->first = true;
    int r = ops->init(z, err);
    if (r == 0 && from) {
        z->next = from->in;
        z->out = from->out;
        z->first = false;
        z->between = !ops->enter;
        r = ops->enter ? ops->enter(z, from, window, err) : 0;
    }
    if (r < 0) {
        cw_decompress_free(z);
        return r;
    }
    *ret = z;
    return 0;
}

struct cw_decompress *cw_decompress_free(struct cw_decompress *z)
{
    if (z) {
        z->ops->deinit(z);
        cw_ahead_deinit(&z->ahead);
        free(z);
    }
    return NULL;
}

uint64_t cw_decompress_position(const struct cw_decompress *z)
{
    return z->out;
}

bool cw_decompress_ended(const struct cw_decompress *z)
{
    return z->ended;
}

size_t cw_decompress_memory(const struct cw_decompress *z)
{
    return z->memory;
}

/* Fills the empty input buffer; at the file's end it stays empty. */
static int decompress_fill(struct cw_decompress *z, struct cw_error *err)
{
    uint64_t left = cw_file_size(z->file) - z->next;
    size_t n = (size_t)CW_MIN(left, (uint64_t)CW_CODEC_INPUT);
    int r = n ? cw_ahead_read(&z->ahead, z->next, z->input, n, err) : 0;
    if (r < 0)
        return r;
    z->next += n;
    z->in = z->input;
    z->n_in = n;
    return 0;
}

/* Begins the next member, with input in the buffer. After a member there may be zero bytes up to the end of
 * the file (as tapes have them). */
static int decompress_next_member(struct cw_decompress *z, struct cw_error *err)
{
    while (!z->first && z->n_in && *z->in == 0) {
        z->padded = true;
        cw_codec_used(z, 1);
    }
    if (!z->n_in)
        return 0;
    const char *path = cw_file_path(z->file);
    if (z->padded && !z->ops->member_may_wait)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s: other data after the %s data, at byte %" PRIu64,
                                path, cw_codec_names[z->codec], cw_codec_offset(z));
    z->padded = z->between = z->first = false;
    return z->ops->begin(z, err);
}

/* Decompresses more, and adds the bytes to *ret_n. Returns what it reached (enum cw_codec_step). */
static int decompress_step(struct cw_decompress *z, uint8_t *at, size_t size, size_t *ret_n,
                           struct cw_error *err)
{
    size_t n = 0;
    bool starved = z->n_in == 0;
    int step = z->ops->step(z, at, size, &n, err);
    if (step < 0)
        return step;
    z->out += n;
    *ret_n += n;
    z->between = step == CW_STEP_END;
    return starved && n == 0 && step == CW_STEP_MORE ? cw_codec_truncated(z, err) : step;
}

int cw_decompress_read(struct cw_decompress *z, void *buffer, size_t size, bool at_restarts, size_t *ret_n,
                       struct cw_error *err)
{
    size_t n = 0;
    int step = CW_STEP_MORE;
    while (n < size && !z->ended && !(at_restarts && step != CW_STEP_MORE)) {
        int r = z->n_in == 0 ? decompress_fill(z, err) : 0;
        if (r == 0 && z->between) {
            z->ended = z->n_in == 0;
            r = z->ended ? 0 : decompress_next_member(z, err);
        } else if (r == 0) {
            r = step = decompress_step(z, (uint8_t *)buffer + n, size - n, &n, err);
        }
        if (r < 0)
            return r;
    }
    *ret_n = n;
    return 0;
}

bool cw_decompress_restart(struct cw_decompress *z, struct cw_restart *ret, uint8_t *window)
{
    struct cw_restart r = {.out = z->out, .in = cw_codec_offset(z)};
    if (z->ended || !(z->ops->restart ? z->ops->restart(z, &r, window) : z->between))
        return false;
    *ret = r;
    return true;
}
