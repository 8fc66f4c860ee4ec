/* Reads gzip and zlib files as a stream with zlib, from the begin or from a restart point: a recorded place
 * between two deflate blocks. Owns struct cw_inflate; the caller owns the file. The builder and the readers
 * of index segments call it. One thread at a time per stream. */
#include "formats/inflate.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "storage/file.h"

#define INPUT_BYTES ((size_t)64 << 10)

struct cw_inflate {
    z_stream z;
    struct cw_file *file; /* borrowed */
    enum cw_codec codec;
    /* opened at a restart point, and still in its member: zlib sees no header, and does not read the trailer
     */
    bool raw;
    bool ended;
    uint64_t next; /* offset in the file of the first byte after the input buffer's content */
    uint64_t out;  /* bytes decompressed so far, counted from the begin of the stream */
    uint8_t input[INPUT_BYTES];
};

static const char *const codec_names[] = {"auto", "none", "gzip", "zlib"};

int cw_codec_parse(const char *name)
{
    for (int i = 0; i < (int)CW_COUNT_OF(codec_names); i++)
        if (strcmp(name, codec_names[i]) == 0)
            return i;
    return -1;
}

const char *cw_codec_name(enum cw_codec codec)
{
    return codec_names[codec];
}

enum cw_codec cw_codec_detect(const uint8_t *head, size_t size)
{
    if (size >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8)
        return CW_CODEC_GZIP;
    if (size >= 2 && head[0] == 0x78 && (head[0] << 8 | head[1]) % 31 == 0 && !(head[1] & 0x20))
        return CW_CODEC_ZLIB;
    return CW_CODEC_PLAIN;
}

const char *cw_codec_unreadable(const uint8_t *head, size_t size)
{
    static const struct {
        const char *name;
        size_t size;
        uint8_t magic[10];
    } codecs[] = {
        {"zstd", 4, {0x28, 0xb5, 0x2f, 0xfd}},
        {"bzip2", 10, {'B', 'Z', 'h', 0, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59}}, /* [3]: a digit */
        {"xz", 6, {0xfd, '7', 'z', 'X', 'Z', 0}},
        {"lz4", 4, {0x04, 0x22, 0x4d, 0x18}},
        {"zip", 4, {'P', 'K', 3, 4}},
        {"7-Zip", 6, {'7', 'z', 0xbc, 0xaf, 0x27, 0x1c}},
    };

    for (size_t i = 0; i < CW_COUNT_OF(codecs); i++) {
        size_t same = 0;
        while (same < CW_MIN(size, codecs[i].size) &&
               (head[same] == codecs[i].magic[same] ||
                (codecs[i].magic[same] == 0 && head[same] >= '1' && head[same] <= '9')))
            same++;
        if (same == codecs[i].size)
            return codecs[i].name;
    }
    return NULL;
}

static int inflate_window_bits(enum cw_codec codec)
{
    return codec == CW_CODEC_GZIP ? 15 + 16 : 15;
}

static int inflate_zlib_error(const struct cw_inflate *z, int code, struct cw_error *err)
{
    if (code == Z_MEM_ERROR)
        return cw_error_nomem(err, CW_INFLATE_WINDOW, "decompression");
    const char *path = cw_file_path(z->file);
    return cw_error_at_file(err, CW_E_DATA, path, 0,
                            "%s: damaged %s data near byte %" PRIu64 " of the file (byte %" PRIu64
                            " of the decompressed data): %s",
                            path, codec_names[z->codec], z->next - z->z.avail_in, z->out,
                            code == Z_NEED_DICT ? "the data need a preset dictionary, which is not supported"
                            : z->z.msg          ? z->z.msg
                                                : "no valid deflate data");
}

int cw_inflate_open(struct cw_file *file, enum cw_codec codec, const struct cw_restart *from,
                    const uint8_t *window, struct cw_inflate **ret, struct cw_error *err)
{
    struct cw_inflate *z = malloc(sizeof(*z));
    if (!z)
        return cw_error_nomem(err, sizeof(*z), "decompression");
    memset(z, 0, offsetof(struct cw_inflate, input));
    z->file = file;
    z->codec = codec;
    z->raw = from != NULL;
    int code = inflateInit2(&z->z, z->raw ? -15 : inflate_window_bits(codec)), r = 0;
    if (code != Z_OK) {
        r = inflate_zlib_error(z, code, err);
        free(z);
        return r;
    }
    if (from) {
        uint8_t byte = 0;
        z->next = from->in;
        z->out = from->out;
        if (from->bits)
            r = from->in ? cw_file_read(file, from->in - 1, &byte, 1, false, err)
                         : cw_error_set(err, CW_E_DATA,
                                        "%s: the index of this file is wrong (an impossible restart point): "
                                        "rebuild it (cachew index --rebuild)",
                                        cw_file_path(file));
        if (r == 0 && from->bits)
            code = inflatePrime(&z->z, (int)from->bits, byte >> (8 - from->bits));
        if (r == 0 && code == Z_OK && from->window_size)
            code = inflateSetDictionary(&z->z, window, from->window_size);
        if (r == 0 && code != Z_OK)
            r = inflate_zlib_error(z, code, err);
    }
    if (r < 0) {
        cw_inflate_free(z);
        return r;
    }
    *ret = z;
    return 0;
}

struct cw_inflate *cw_inflate_free(struct cw_inflate *z)
{
    if (z) {
        inflateEnd(&z->z);
        free(z);
    }
    return NULL;
}

uint64_t cw_inflate_position(const struct cw_inflate *z)
{
    return z->out;
}

bool cw_inflate_ended(const struct cw_inflate *z)
{
    return z->ended;
}

/* Fills the empty input buffer. 1: the file has ended. */
static int inflate_fill(struct cw_inflate *z, struct cw_error *err)
{
    uint64_t left = cw_file_size(z->file) - z->next;
    size_t n = (size_t)CW_MIN(left, (uint64_t)INPUT_BYTES);
    if (n == 0)
        return 1;
    int r = cw_file_read(z->file, z->next, z->input, n, false, err);
    if (r < 0)
        return r;
    z->next += n;
    z->z.next_in = z->input;
    z->z.avail_in = (uInt)n;
    return 0;
}

static int inflate_truncated(const struct cw_inflate *z, struct cw_error *err)
{
    const char *path = cw_file_path(z->file);
    return cw_error_at_file(err, CW_E_DATA, path, 0,
                            "%s: the file ends at byte %" PRIu64 " inside its %s data (byte %" PRIu64
                            " of the decompressed data): the file is truncated",
                            path, z->next, codec_names[z->codec], z->out);
}

/* Continues after the end of a member. After its trailer, which zlib has left if `raw`, there may be another
 * member, or zero bytes up to the end of the file (as tapes have them), or the end. */
static int inflate_next_member(struct cw_inflate *z, struct cw_error *err)
{
    bool padding = false;
    for (unsigned skip = !z->raw ? 0 : z->codec == CW_CODEC_GZIP ? 8 : 4;;) {
        if (z->z.avail_in == 0) {
            int r = inflate_fill(z, err);
            if (r < 0)
                return r;
            if (r > 0) {
                z->ended = true;
                return skip ? inflate_truncated(z, err) : 0;
            }
        }
        if (!skip && *z->z.next_in != 0)
            break;
        padding |= skip == 0;
        skip -= skip > 0;
        z->z.next_in++;
        z->z.avail_in--;
    }
    const char *path = cw_file_path(z->file);
    if (padding)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s: other data after the %s data, at byte %" PRIu64,
                                path, codec_names[z->codec], z->next - z->z.avail_in);
    z->raw = false;
    int code = inflateReset2(&z->z, inflate_window_bits(z->codec));
    return code == Z_OK ? 0 : inflate_zlib_error(z, code, err);
}

int cw_inflate_read(struct cw_inflate *z, void *buffer, size_t size, bool at_blocks, size_t *ret_n,
                    struct cw_error *err)
{
    uint8_t *at = buffer;
    size_t left = size;
    while (left && !z->ended) {
        if (z->z.avail_in == 0) {
            int r = inflate_fill(z, err);
            if (r < 0)
                return r;
            if (r > 0) { /* an empty file is an empty stream */
                if (z->next != 0)
                    return inflate_truncated(z, err);
                z->ended = true;
                break;
            }
        }
        uInt room = (uInt)CW_MIN(left, (size_t)1 << 30);
        z->z.next_out = at;
        z->z.avail_out = room;
        int code = inflate(&z->z, at_blocks ? Z_BLOCK : Z_NO_FLUSH);
        size_t n = room - z->z.avail_out;
        at += n;
        left -= n;
        z->out += n;
        if (code == Z_STREAM_END) {
            int r = inflate_next_member(z, err);
            if (r < 0)
                return r;
        } else if (code != Z_OK && code != Z_BUF_ERROR) {
            return inflate_zlib_error(z, code, err);
        } else if (at_blocks && (z->z.data_type & 128)) {
            break;
        }
    }
    *ret_n = size - left;
    return 0;
}

bool cw_inflate_restart(struct cw_inflate *z, struct cw_restart *ret, uint8_t *window)
{
    uInt n = CW_INFLATE_WINDOW;
    if (z->ended || (z->z.data_type & (128 | 64)) != 128 || inflateGetDictionary(&z->z, window, &n) != Z_OK)
        return false;
    *ret = (struct cw_restart){
        .out = z->out,
        .in = z->next - z->z.avail_in,
        .bits = (uint32_t)z->z.data_type & 7,
        .window_size = n,
    };
    return true;
}
