/* Reads the messages of Arrow files and streams, and finds and reads the buffers of columns. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/array.h"
#include "base/hash.h"
#include "formats/arrow_schema.h"
#include "formats/lz4.h"
#include "storage/file.h"
#include "storage/mapped.h"

/* Of a file's metadata: a message, and a footer. More is taken for damage. */
#define MAX_META ((uint32_t)1 << 30)
#define CONTINUATION UINT32_C(0xffffffff)
#define MAGIC_BYTES 6
/* Of either end of a file, which go into the hash of its content (docs/semantics.md, section 1). */
#define EDGE_BYTES ((size_t)64 << 10)

enum { HEADER_SCHEMA = 1, HEADER_DICTIONARY = 2, HEADER_BATCH = 3 };

/* While a file is opened. */
struct reading {
    struct cw_file *file;
    struct cw_arrow_file *f;
    uint64_t meta; /* bytes of metadata that are kept */
    struct cw_error *err;
};

static _printf_(2, 3) int reading_damaged(struct reading *r, const char *fmt, ...)
{
    char what[240];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return cw_error_at_file(r->err, CW_E_DATA, cw_file_path(r->file), 0, "%s: %s", cw_file_path(r->file),
                            what);
}

/* Reads `size` bytes to new memory. */
static int reading_bytes(struct reading *r, uint64_t offset, size_t size, uint8_t **ret)
{
    uint8_t *data = malloc(size + 1);
    int status = data ? cw_file_read(r->file, offset, data, size, false, r->err)
                      : cw_error_nomem(r->err, size, "the metadata of a file");
    if (status < 0) {
        free(data);
        return status;
    }
    *ret = data;
    return 0;
}

static int reading_schema(struct reading *r, struct cw_flatbuffer *b, struct cw_flat_table schema,
                          int64_t version)
{
    struct cw_error why = {0};
    int status = cw_arrow_schema(b, schema, version, &r->f->columns, &r->f->n_columns, &why);
    if (status == CW_E_DATA)
        return reading_damaged(r, "%s", why.message);
    return status < 0 ? cw_error_copy(r->err, &why) : 0;
}

/* Reads the header of a record batch, or of the batch of a dictionary. */
static int reading_batch(struct reading *r, struct cw_arrow_batch *batch, struct cw_flat_table t)
{
    struct cw_flatbuffer *b = &batch->meta;
    struct cw_flat_table compression = cw_flat_child(b, t, 3);
    int64_t rows = cw_flat_int(b, t, 0, 8, 0);
    batch->nodes = cw_flat_list(b, t, 1, 16);
    batch->buffers = cw_flat_list(b, t, 2, 16);
    batch->views = cw_flat_list(b, t, 4, 8);
    batch->codec = compression.at ? (int)cw_flat_int(b, compression, 0, 1, 0) : CW_ARROW_UNCOMPRESSED;
    batch->n_rows = (uint64_t)rows;
    if (b->bad || t.at == 0 || rows < 0 || rows > INT64_MAX / 4096)
        return reading_damaged(r, "the message at byte %" PRIu64 " is damaged", batch->message);
    if (batch->codec > CW_ARROW_ZSTD)
        return reading_damaged(r, "the batch at byte %" PRIu64 " has the unknown compression %d",
                               batch->message, batch->codec);
    return 0;
}

/* Keeps a batch, whose metadata it takes over. */
static int reading_keep(struct reading *r, struct cw_arrow_batch *batch, bool dictionary)
{
    struct cw_arrow_file *f = r->f;
    static const char what[] = "the batches of a file";
    int status = dictionary ? CW_ARRAY_ROOM(f->dictionaries, f->dictionaries_room, f->n_dictionaries + 1,
                                            what, r->err)
                            : CW_ARRAY_ROOM(f->batches, f->batches_room, f->n_batches + 1, what, r->err);
    if (status < 0)
        return status;
    batch->n_dictionaries = f->n_dictionaries;
    if (dictionary)
        f->dictionaries[f->n_dictionaries++] = *batch;
    else
        f->batches[f->n_batches++] = *batch;
    batch->meta.data = NULL;
    return 0;
}

/* Reads the message whose metadata are data[0..size), which it takes over. body: where its body begins.
 * *ret_end: where it ends. */
static int reading_message(struct reading *r, uint64_t at, uint8_t *data, size_t size, uint64_t body,
                           uint64_t *ret_end)
{
    struct cw_arrow_batch batch = {.message = at, .body = body, .meta = {.data = data, .size = size}};
    struct cw_flatbuffer *b = &batch.meta;
    struct cw_flat_table message = cw_flat_root(b), header = cw_flat_child(b, message, 2);
    int64_t version = cw_flat_int(b, message, 0, 2, 0), bytes = cw_flat_int(b, message, 3, 8, 0);
    int kind = (int)cw_flat_int(b, message, 1, 1, 0), status = 0;
    uint64_t file = cw_file_size(r->file);
    r->meta += size;
    if (b->bad)
        status = reading_damaged(r, "the message at byte %" PRIu64 " is damaged", at);
    else if (bytes < 0 || body > file || (uint64_t)bytes > file - body)
        status = reading_damaged(r,
                                 "the message at byte %" PRIu64 " has a body of %" PRId64
                                 " bytes from byte %" PRIu64 " on, but the file ends at byte %" PRIu64,
                                 at, bytes, body, file);
    else if (version < 3)
        status = reading_damaged(r, "its version of Arrow's metadata is %" PRId64 ": expected 4 or 5",
                                 version + 1);
    batch.body_bytes = (uint64_t)bytes;
    *ret_end = body + (uint64_t)bytes;
    if (status == 0 && kind == HEADER_SCHEMA && r->f->columns)
        status = reading_damaged(r, "it has a second schema at byte %" PRIu64, at);
    else if (status == 0 && kind == HEADER_SCHEMA)
        status = reading_schema(r, b, header, version);
    else if (status == 0 && (kind == HEADER_DICTIONARY || kind == HEADER_BATCH)) {
        bool dictionary = kind == HEADER_DICTIONARY;
        batch.is_dictionary = dictionary;
        batch.dictionary = dictionary ? cw_flat_int(b, header, 0, 8, 0) : 0;
        batch.is_delta = dictionary && cw_flat_int(b, header, 2, 1, 0) != 0;
        status = reading_batch(r, &batch, dictionary ? cw_flat_child(b, header, 1) : header);
        if (status == 0)
            status = reading_keep(r, &batch, dictionary);
    } else if (status == 0) {
        status = reading_damaged(r, "the message at byte %" PRIu64 " is of the unknown kind %d", at, kind);
    }
    free((void *)(uintptr_t)batch.meta.data);
    return status;
}

/* Reads the length in front of a message. *ret_at: where its metadata begin. *ret_size: 0 at the end. */
static int reading_prefix(struct reading *r, uint64_t at, uint64_t *ret_at, uint32_t *ret_size)
{
    uint32_t head[2] = {0};
    uint64_t left = cw_file_size(r->file) - at;
    *ret_size = 0;
    if (left == 0) /* a stream need not have an end mark */
        return 0;
    if (left < 4)
        return reading_damaged(r, "it ends at byte %" PRIu64 ", in the length of a message", at + left);
    int status = cw_file_read(r->file, at, head, (size_t)CW_MIN(left, sizeof(head)), false, r->err);
    if (status < 0)
        return status;
    bool marked = head[0] == CONTINUATION; /* before version 0.15 of Arrow there was no such mark */
    if (marked && left < 8)
        return reading_damaged(r, "it ends at byte %" PRIu64 ", in the length of a message", at + left);
    *ret_at = at + (marked ? 8 : 4);
    *ret_size = head[marked];
    if (*ret_size > MAX_META || *ret_size > cw_file_size(r->file) - *ret_at)
        return reading_damaged(r,
                               "the message at byte %" PRIu64 " has metadata of %" PRIu32
                               " bytes, but the file ends at byte %" PRIu64
                               ": it is no Arrow file, or truncated",
                               at, *ret_size, cw_file_size(r->file));
    return 0;
}

static int reading_stream(struct reading *r, uint64_t at)
{
    for (;;) {
        uint64_t start = 0;
        uint32_t size;
        uint8_t *data;
        int status = reading_prefix(r, at, &start, &size);
        if (status < 0 || size == 0)
            return status;
        status = reading_bytes(r, start, size, &data);
        if (status == 0)
            status = reading_message(r, at, data, size, start + size, &at);
        if (status < 0)
            return status;
        if (!r->f->columns)
            return reading_damaged(r, "its first message is no schema");
    }
}

/* Reads the messages of a list of blocks of a footer. */
static int reading_blocks(struct reading *r, struct cw_flatbuffer *footer, struct cw_flat_vector blocks)
{
    for (size_t i = 0; i < blocks.n; i++) {
        int64_t offset = cw_flat_long(footer, blocks, i, 24, 0),
                meta = cw_flat_long(footer, blocks, i, 24, 8) & UINT32_MAX;
        uint64_t start = 0, end, file = cw_file_size(r->file);
        uint32_t size = 0;
        uint8_t *data;
        if (offset < 0 || (uint64_t)offset > file)
            return reading_damaged(r,
                                   "batch %zu begins at byte %" PRId64 ", but the file ends at byte %" PRIu64,
                                   i, offset, file);
        int status = reading_prefix(r, (uint64_t)offset, &start, &size);
        if (status < 0)
            return status;
        if (size == 0 || r->meta + size > file) /* metadata that lie over each other are an attack */
            return reading_damaged(r, "the message at byte %" PRId64 " is damaged", offset);
        status = reading_bytes(r, start, size, &data);
        if (status == 0)
            status = reading_message(r, (uint64_t)offset, data, size,
                                     CW_MAX((uint64_t)offset + (uint64_t)meta, start + size), &end);
        if (status < 0)
            return status;
    }
    return 0;
}

static int reading_footer(struct reading *r)
{
    uint64_t file = cw_file_size(r->file);
    uint8_t tail[4 + MAGIC_BYTES], *data;
    uint32_t size;
    int status = cw_file_read(r->file, file - sizeof(tail), tail, sizeof(tail), false, r->err);
    if (status < 0)
        return status;
    memcpy(&size, tail, sizeof(size));
    if (memcmp(tail + 4, "ARROW1", MAGIC_BYTES) != 0)
        return reading_damaged(r, "it does not end with ARROW1: it is truncated");
    if (size > MAX_META || size > file - 2 * sizeof(tail))
        return reading_damaged(r, "it has a footer of %" PRIu32 " bytes, more than fit into it", size);
    status = reading_bytes(r, file - sizeof(tail) - size, size, &data);
    if (status < 0)
        return status;
    struct cw_flatbuffer b = {.data = data, .size = size};
    struct cw_flat_table footer = cw_flat_root(&b);
    status = reading_schema(r, &b, cw_flat_child(&b, footer, 1), cw_flat_int(&b, footer, 0, 2, 0));
    struct cw_flat_vector dictionaries = cw_flat_list(&b, footer, 2, 24),
                          batches = cw_flat_list(&b, footer, 3, 24);
    if (status == 0 && b.bad)
        status = reading_damaged(r, "its footer is damaged");
    if (status == 0)
        status = reading_blocks(r, &b, dictionaries);
    if (status == 0)
        status = reading_blocks(r, &b, batches);
    free(data);
    if (status == 0 && (r->f->n_dictionaries != dictionaries.n || r->f->n_batches != batches.n))
        status = reading_damaged(r, "its footer takes dictionaries for record batches, or the reverse");
    return status;
}

/* Hashes the ends of the file; of an object of a server, its version stands for the content. */
static int reading_content(struct reading *r)
{
    uint64_t size = cw_file_size(r->file), version = cw_file_stamp(r->file);
    size_t n = (size_t)CW_MIN(size, (uint64_t)(2 * EDGE_BYTES)), first = n < 2 * EDGE_BYTES ? n : EDGE_BYTES;
    if (cw_file_is_remote(r->file)) {
        r->f->content = cw_hash64(&version, sizeof(version));
        return 0;
    }
    _cleanup_free_ uint8_t *data = malloc(n + 1);
    if (!data)
        return cw_error_nomem(r->err, n, "a read buffer");
    int status = cw_file_read(r->file, 0, data, first, false, r->err);
    if (status == 0 && n > first)
        status = cw_file_read(r->file, size - EDGE_BYTES, data + first, n - first, false, r->err);
    r->f->content = cw_hash64(data, n);
    return status;
}

/* Maps the file if it is a local one. */
static void reading_map(struct reading *r)
{
    int fd;
    bool own;
    if (cw_file_is_remote(r->file) || cw_file_acquire(r->file, false, &fd, &own, NULL) != 0)
        return;
    r->f->map = cw_mapped_new(fd, cw_file_size(r->file));
    r->f->mapped = r->f->map ? cw_mapped_bytes(r->f->map) : NULL;
    cw_file_release(r->file, fd, own);
}

int cw_arrow_open(struct cw_file *file, struct cw_arrow_file *ret, struct cw_error *err)
{
    struct cw_arrow_file f = {.file = file};
    struct reading r = {.file = file, .f = &f, .err = err};
    uint8_t magic[MAGIC_BYTES + 2];
    if (cw_file_size(file) < 2 * (4 + MAGIC_BYTES))
        return reading_damaged(&r, "it is no Arrow file: it has less than 20 bytes");
    int status = cw_file_read(file, 0, magic, sizeof(magic), false, err);
    if (status < 0)
        return status;
    if (memcmp(magic, "FEA1", 4) == 0)
        return reading_damaged(&r, "it is a Feather file of version 1: expected version 2");
    bool is_file = memcmp(magic, "ARROW1", MAGIC_BYTES) == 0;
    status = is_file ? reading_footer(&r) : reading_stream(&r, 0);
    if (status == 0 && !f.columns)
        status = reading_damaged(&r, "it is no Arrow file: it has no schema");
    if (status == 0)
        status = reading_content(&r);
    if (status == 0)
        reading_map(&r);
    if (status < 0) {
        cw_arrow_close(&f);
        return status;
    }
    *ret = f;
    return 0;
}

void cw_arrow_close(struct cw_arrow_file *f)
{
    cw_arrow_columns_free(f->columns, f->n_columns);
    for (size_t i = 0; i < f->n_batches; i++)
        free((void *)(uintptr_t)f->batches[i].meta.data);
    for (size_t i = 0; i < f->n_dictionaries; i++)
        free((void *)(uintptr_t)f->dictionaries[i].meta.data);
    free(f->batches);
    free(f->dictionaries);
    cw_mapped_free(f->map);
    *f = (struct cw_arrow_file){0};
}

/* ---- buffers ---- */

int cw_arrow_damaged(const struct cw_arrow_file *f, const struct cw_arrow_batch *batch, const char *column,
                     struct cw_error *err, const char *fmt, ...)
{
    char what[240];
    const char *path = cw_file_path(f->file);
    bool dictionary = batch->is_dictionary;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return cw_error_at_file(err, CW_E_DATA, path, 0, "%s: %s at byte %" PRIu64 ", column \"%.80s\": %s", path,
                            dictionary ? "the dictionary" : "the record batch", batch->message, column, what);
}

static int arrow_buffer(const struct cw_arrow_file *f, const char *name, const struct cw_arrow_batch *b,
                        size_t number, struct cw_arrow_buffer *ret, struct cw_error *err)
{
    uint64_t offset = (uint64_t)cw_flat_long(&b->meta, b->buffers, number, 16, 0),
             size = (uint64_t)cw_flat_long(&b->meta, b->buffers, number, 16, 8);
    if (number >= b->buffers.n)
        return cw_arrow_damaged(f, b, name, err, "it has %zu buffers: expected more than %zu", b->buffers.n,
                                number);
    if (offset > b->body_bytes || size > b->body_bytes - offset)
        return cw_arrow_damaged(f, b, name, err,
                                "buffer %zu has %" PRIu64 " bytes from byte %" PRIu64
                                " of the body, which has %" PRIu64 " bytes",
                                number, size, offset, b->body_bytes);
    *ret = (struct cw_arrow_buffer){.offset = b->body + offset, .size = size};
    return 0;
}

/* Returns the number of buffers of views before a column, and in *ret_own those of its own. SIZE_MAX: the
 * batch's numbers are damaged. */
static size_t arrow_views(const struct cw_arrow_column *c, const struct cw_arrow_batch *b, size_t *ret_own)
{
    size_t before = 0;
    *ret_own = 0;
    for (uint32_t k = 0; k < c->views_before + (c->kind == CW_ARROW_VIEWS); k++) {
        int64_t n = cw_flat_long(&b->meta, b->views, k, 8, 0);
        if (k >= b->views.n || n < 0 || (uint64_t)n > b->buffers.n)
            return SIZE_MAX;
        if (k < c->views_before)
            before += (size_t)n;
        else
            *ret_own = (size_t)n;
    }
    return before;
}

uint64_t cw_arrow_stored(const struct cw_arrow_column *c, const struct cw_arrow_batch *b)
{
    size_t views, before = arrow_views(c, b, &views);
    uint64_t sum = 0;
    for (size_t k = 0; before != SIZE_MAX && k < c->n_slots + views; k++) {
        size_t number = k < c->n_slots ? c->buffers[k] : c->buffers[c->n_slots - 1] + 1 + k - c->n_slots;
        sum += (uint64_t)cw_flat_long(&b->meta, b->buffers, number + before, 16, 8) & INT64_MAX;
    }
    return CW_MIN(sum, b->body_bytes);
}

/* Finds the slots of a column, and those of its views. */
static int arrow_slots(const struct cw_arrow_file *f, const struct cw_arrow_column *c, const char *name,
                       const struct cw_arrow_batch *b, struct cw_arena *arena, struct cw_arrow_array *ret,
                       struct cw_error *err)
{
    size_t views, before = arrow_views(c, b, &views);
    uint32_t own = c->n_above; /* the slot of its own validity */
    if (before == SIZE_MAX)
        return cw_arrow_damaged(f, b, name, err, "the numbers of its buffers are damaged");
    ret->c = c;
    ret->n_rows = b->n_rows;
    ret->n_slots = c->n_slots + views;
    ret->slots = cw_arena_alloc(arena, (ret->n_slots + 1) * sizeof(*ret->slots), err);
    if (!ret->slots)
        return err ? err->status : CW_E_MEMORY;
    int r = 0;
    for (size_t k = 0; r == 0 && k < ret->n_slots; k++) {
        size_t number = k < c->n_slots ? c->buffers[k] : c->buffers[c->n_slots - 1] + 1 + k - c->n_slots;
        r = arrow_buffer(f, name, b, number + before, &ret->slots[k], err);
    }
    for (uint32_t k = 0; r == 0 && k < c->n_slots; k++) {
        uint32_t node = c->nodes[k];
        bool validity = k <= own ||
                        (k > own + (c->list_width > 0) && k <= own + (c->list_width > 0) + c->n_inner);
        if (node >= b->nodes.n ||
            (k <= own && cw_flat_long(&b->meta, b->nodes, node, 16, 0) != (int64_t)b->n_rows))
            r = cw_arrow_damaged(f, b, name, err, "its number of values differs from that of the rows");
        else if (validity && cw_flat_long(&b->meta, b->nodes, node, 16, 8) == 0)
            ret->slots[k].size = 0; /* no value is null */
    }
    return r;
}

int cw_arrow_locate(const struct cw_arrow_file *f, const struct cw_arrow_column *c,
                    const struct cw_arrow_batch *batch, struct cw_arena *arena, struct cw_arrow_array *ret,
                    struct cw_error *err)
{
    *ret = (struct cw_arrow_array){0};
    int r = arrow_slots(f, c, c->name, batch, arena, ret, err);
    size_t first = 0;
    for (size_t i = 0; r == 0 && c->has_dictionary && i < batch->n_dictionaries; i++)
        if (f->dictionaries[i].dictionary == c->dictionary) {
            first = f->dictionaries[i].is_delta ? first : i;
            ret->n_parts = f->dictionaries[i].is_delta ? ret->n_parts + 1 : 1;
        }
    if (r < 0 || ret->n_parts == 0)
        return r;
    ret->dictionary = cw_arena_alloc(arena, ret->n_parts * sizeof(*ret->dictionary), err);
    if (!ret->dictionary)
        return err ? err->status : CW_E_MEMORY;
    size_t part = 0;
    for (size_t i = first; r == 0 && i < batch->n_dictionaries; i++)
        if (f->dictionaries[i].dictionary == c->dictionary) {
            struct cw_arrow_array *to = &ret->dictionary[part++];
            *to = (struct cw_arrow_array){0};
            r = arrow_slots(f, c->values, c->name, &f->dictionaries[i], arena, to, err);
        }
    return r;
}

static bool arrow_unpack(int codec, const uint8_t *data, size_t size, uint8_t *out, size_t out_size)
{
    return codec == CW_ARROW_ZSTD ? ZSTD_decompress(out, out_size, data, size) == out_size
                                  : cw_lz4_frame(data, size, out, out_size);
}

int cw_arrow_read(const struct cw_arrow_file *f, const struct cw_arrow_batch *batch,
                  const struct cw_arrow_buffer *buffer, struct cw_arena *arena, uint8_t **ret,
                  uint64_t *ret_size, struct cw_error *err)
{
    static const char what[] = "a record batch of an Arrow file";
    int64_t unpacked = -1;
    uint64_t offset = buffer->offset, size = buffer->size;
    *ret = NULL;
    *ret_size = 0;
    if (size == 0)
        return 0;
    if (batch->codec != CW_ARROW_UNCOMPRESSED && size < sizeof(unpacked))
        return cw_arrow_damaged(f, batch, "", err, "a buffer has %" PRIu64 " bytes: expected at least 8",
                                size);
    if (batch->codec == CW_ARROW_LZ4 && cw_lz4_lacks)
        return cw_arrow_damaged(f, batch, "", err, "it is compressed with LZ4, and this build has no %s",
                                cw_lz4_lacks);
    int r = cw_arena_reserve(arena, size, what, err);
    uint8_t *packed = r == 0 ? malloc(size) : NULL, *out = NULL;
    if (r == 0)
        r = packed ? cw_file_read(f->file, offset, packed, size, false, err)
                   : cw_error_nomem(err, size, what);
    if (r == 0 && batch->codec != CW_ARROW_UNCOMPRESSED) {
        memcpy(&unpacked, packed, sizeof(unpacked));
        size -= sizeof(unpacked);
    }
    if (r == 0 && unpacked < 0) { /* as it is */
        memmove(packed, packed + buffer->size - size, size);
        *ret = packed;
        *ret_size = size;
        return 0;
    }
    if (r == 0)
        r = cw_arena_reserve(arena, (uint64_t)unpacked, what, err);
    if (r == 0 && !(out = malloc((size_t)unpacked + 1)))
        r = cw_error_nomem(err, (size_t)unpacked, what);
    if (r == 0 && !arrow_unpack(batch->codec, packed + sizeof(unpacked), size, out, (size_t)unpacked))
        r = cw_arrow_damaged(f, batch, "", err, "its %s data are damaged",
                             batch->codec == CW_ARROW_ZSTD ? "zstd" : "LZ4");
    free(packed);
    if (r < 0) {
        free(out);
        return r;
    }
    *ret = out;
    *ret_size = (uint64_t)unpacked;
    return 0;
}
