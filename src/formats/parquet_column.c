/*
 * Decodes a column chunk: its pages one after the other, into arrays of one value for each row (or for each
 * element of a list). Strings stay where the decompressed pages have them, and slices point at them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <zlib.h>

#include "base/macro.h"
#include "formats/parquet.h"
#include "formats/parquet_encoding.h"
#include "formats/parquet_page.h"

/* Indexes and levels that are decoded at a time: they stay in the first-level cache. */
#define BATCH 1024
#define HUGE_PAGE ((size_t)2 << 20)

struct cw_parquet_blob {
    struct cw_parquet_blob *next;
    uint8_t *memory; /* NULL: the bytes follow this struct */
    uint8_t bytes[];
};

struct decoder {
    const struct cw_parquet_column *c;
    const struct cw_parquet_chunk *k;
    struct cw_parquet_values *v;
    uint8_t **data;            /* of the chunk */
    bool keeps;                /* a slice points into the chunk's data */
    size_t raw;                /* bytes of a number as stored */
    const uint8_t *dictionary; /* numbers of v->item bytes */
    struct cw_slice *words;    /* the dictionary of a column of bytes */
    size_t n_dictionary;
    uint64_t at, rows; /* elements and rows so far */
    char *why;
};

#define damaged(d, ...) (snprintf((d)->why, CW_PARQUET_WHY, __VA_ARGS__), CW_E_DATA)

static uint8_t *decode_blob(struct decoder *d, size_t size)
{
    struct cw_parquet_blob *b = malloc(sizeof(*b) + size + CW_PARQUET_SLACK);
    if (!b)
        return NULL;
    b->next = d->v->blobs;
    b->memory = NULL;
    d->v->blobs = b;
    d->v->bytes += sizeof(*b) + size + CW_PARQUET_SLACK;
    memset(b->bytes + size, 0, CW_PARQUET_SLACK);
    return b->bytes;
}

static void decode_drop_blob(struct decoder *d, size_t size)
{
    struct cw_parquet_blob *b = d->v->blobs;
    d->v->blobs = b->next;
    d->v->bytes -= sizeof(*b) + size + CW_PARQUET_SLACK;
    free(b);
}

/* Allocates large arrays on huge pages, because each is written once and freed soon: most of the time would
 * else go to page faults. */
static void *decode_alloc(size_t size)
{
    if (size < HUGE_PAGE)
        return malloc(size);
    void *p = aligned_alloc(HUGE_PAGE, CW_ALIGN_UP(size, HUGE_PAGE));
    if (p)
        (void)madvise(p, CW_ALIGN_UP(size, HUGE_PAGE), MADV_HUGEPAGE); /* a hint */
    return p;
}

/* ---- pages ---- */

/* Sets *ret to the bytes of a page, decompressed; the first `plain` bytes are never compressed. *blob: they
 * are in a new blob. */
static int page_bytes(struct decoder *d, const struct cw_parquet_page *p, const uint8_t *data, size_t plain,
                      const uint8_t **ret, bool *blob)
{
    size_t packed = (size_t)p->packed, unpacked = (size_t)p->unpacked;
    *blob = false;
    *ret = data;
    if (p->has_crc && (uint32_t)crc32(0, data, (uInt)packed) != p->crc)
        return damaged(d, "the checksum of a page is wrong");
    if (plain > packed || plain > unpacked)
        return damaged(d, "a page is damaged");
    if (d->k->codec == CW_PARQUET_CODEC_NONE || !p->is_packed)
        return packed == unpacked ? 0 : damaged(d, "a page has another size than its header says");
    uint8_t *out = decode_blob(d, unpacked);
    if (!out)
        return CW_E_MEMORY;
    *blob = true;
    *ret = out;
    memcpy(out, data, plain);
    return unpacked == plain ? 0
                             : cw_parquet_page_unpack(d->k->codec, data + plain, packed - plain, out + plain,
                                                      unpacked - plain, d->why);
}

/* ---- values ---- */

/* Converts n numbers as stored to those of the column's dtype: narrow integers, timestamps of 96 bits. */
static void decode_convert(const struct decoder *d, const uint8_t *from, uint8_t *to, size_t n)
{
    if (d->c->physical == CW_PARQUET_INT96) { /* nanoseconds of the day, then the Julian day */
        for (size_t i = 0; i < n; i++) {
            uint64_t ns;
            uint32_t day;
            memcpy(&ns, from + i * 12, 8);
            memcpy(&day, from + i * 12 + 8, 4);
            ns += ((uint64_t)day - 2440588) * UINT64_C(86400000000000);
            memcpy(to + i * 8, &ns, 8);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) /* the low bytes come first */
        memcpy(to + i * d->v->item, from + i * d->raw, d->v->item);
}

static bool decode_plain_bools(const uint8_t *p, const uint8_t *end, uint8_t *out, size_t n)
{
    if ((uint64_t)(end - p) * 8 < n)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = p[i >> 3] >> (i & 7) & 1;
    return true;
}

static bool decode_rle_bools(const uint8_t *p, const uint8_t *end, uint8_t *out, size_t n)
{
    uint32_t size, values[BATCH];
    if (end - p < 4)
        return false;
    memcpy(&size, p, 4);
    if (size > (uint64_t)(end - p) - 4)
        return false;
    struct cw_parquet_rle r = {.p = p + 4, .end = p + 4 + size, .width = 1};
    for (size_t at = 0, m; at < n; at += m) {
        m = CW_MIN(n - at, (size_t)BATCH);
        if (!cw_parquet_rle_read(&r, values, m))
            return false;
        for (size_t i = 0; i < m; i++)
            out[at + i] = (uint8_t)values[i];
    }
    return true;
}

#define GATHER(type) \
    for (size_t i = 0; i < m; i++) \
    memcpy(out + i * sizeof(type), dictionary + (size_t)index[i] * sizeof(type), sizeof(type))

static void decode_gather(const uint8_t *dictionary, const uint32_t *index, size_t m, size_t item,
                          uint8_t *out)
{
    if (item == 8)
        GATHER(uint64_t);
    else if (item == 4)
        GATHER(uint32_t);
    else if (item == 2)
        GATHER(uint16_t);
    else
        GATHER(uint8_t);
}

static bool decode_dictionary(struct decoder *d, const uint8_t *p, const uint8_t *end, size_t n)
{
    uint32_t index[BATCH];
    if (n == 0)
        return true;
    if (p == end || *p > 32)
        return false;
    struct cw_parquet_rle r = {.p = p + 1, .end = end, .width = *p};
    for (size_t at = 0, m; at < n; at += m) {
        m = CW_MIN(n - at, (size_t)BATCH);
        if (!cw_parquet_rle_read(&r, index, m))
            return false;
        if (cw_parquet_most(index, m) >= d->n_dictionary)
            return false;
        if (d->words)
            for (size_t i = 0; i < m; i++)
                d->v->slices[d->at + at + i] = d->words[index[i]];
        else
            decode_gather(d->dictionary, index, m, d->v->item, d->v->numbers + (d->at + at) * d->v->item);
    }
    return true;
}

static bool decode_plain_strings(const struct cw_parquet_column *c, const uint8_t *p, const uint8_t *end,
                                 struct cw_slice *out, size_t n)
{
    uint32_t size = c->width;
    for (size_t i = 0; i < n; i++) {
        if (c->physical == CW_PARQUET_BYTE_ARRAY) {
            if (end - p < 4)
                return false;
            memcpy(&size, p, 4);
            p += 4;
        }
        if (size > (uint64_t)(end - p))
            return false;
        out[i] = (struct cw_slice){p, size};
        p += size;
    }
    return true;
}

static int decode_delta_lengths(struct decoder *d, const uint8_t **p, const uint8_t *end, size_t n,
                                int64_t **ret)
{
    size_t found = 0;
    if (!(*ret = malloc((n + 1) * sizeof(**ret))))
        return CW_E_MEMORY;
    if (!cw_parquet_delta(p, end, *ret, n, &found) || found != n)
        return damaged(d, "the lengths of its strings are damaged");
    for (size_t i = 0; i < n; i++)
        if ((*ret)[i] < 0 || (*ret)[i] > INT32_MAX)
            return damaged(d, "a string has a wrong length");
    return 0;
}

/* DELTA_LENGTH_BYTE_ARRAY, and DELTA_BYTE_ARRAY, in which a string begins with bytes of the one before it. */
static int decode_delta_strings(struct decoder *d, const uint8_t *p, const uint8_t *end, size_t n,
                                bool prefixes)
{
    _cleanup_free_ int64_t *prefix = NULL, *length = NULL;
    struct cw_slice *out = d->v->slices + d->at;
    int r = prefixes ? decode_delta_lengths(d, &p, end, n, &prefix) : 0;
    if (r == 0)
        r = decode_delta_lengths(d, &p, end, n, &length);
    if (r < 0)
        return r;
    uint64_t total = 0, before = 0;
    const uint8_t *at = p;
    for (size_t i = 0; i < n; i++) {
        if (length[i] > end - at || (prefix && (uint64_t)prefix[i] > before))
            return damaged(d, "a string has a wrong length");
        before = (uint64_t)length[i] + (prefix ? (uint64_t)prefix[i] : 0);
        out[i] = (struct cw_slice){at, (size_t)before};
        at += length[i];
        total += before;
    }
    if (!prefix)
        return 0;
    if (total > d->k->unpacked * 64 + (1 << 20)) /* prefixes that multiply the data so often are an attack */
        return damaged(d, "its strings are %" PRIu64 " bytes, many times its size", total);
    uint8_t *to = decode_blob(d, (size_t)total);
    if (!to)
        return CW_E_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (prefix[i])
            memcpy(to, out[i - 1].data, (size_t)prefix[i]);
        memcpy(to + prefix[i], p, (size_t)length[i]);
        p += length[i];
        out[i].data = to;
        to += out[i].size;
    }
    return 0;
}

static bool decode_delta_numbers(struct decoder *d, const uint8_t *p, const uint8_t *end, size_t n,
                                 uint8_t *out)
{
    _cleanup_free_ int64_t *values = malloc((n + 1) * sizeof(*values));
    size_t found = 0;
    if (!values || !cw_parquet_delta(&p, end, values, n, &found) || found != n)
        return false;
    for (size_t i = 0; i < n; i++)
        memcpy(out + i * d->raw, &values[i], d->raw);
    return true;
}

/* Decodes n numbers as stored. */
static bool decode_raw(struct decoder *d, int64_t encoding, const uint8_t *p, const uint8_t *end,
                       uint8_t *out, size_t n)
{
    if (d->c->physical == CW_PARQUET_BOOLEAN)
        return encoding == CW_PARQUET_PLAIN ? decode_plain_bools(p, end, out, n)
                                            : encoding == CW_PARQUET_RLE && decode_rle_bools(p, end, out, n);
    if (encoding == CW_PARQUET_DELTA_BINARY_PACKED)
        return (d->c->physical == CW_PARQUET_INT32 || d->c->physical == CW_PARQUET_INT64) &&
               decode_delta_numbers(d, p, end, n, out);
    if ((uint64_t)(end - p) / d->raw < n)
        return false;
    if (encoding == CW_PARQUET_PLAIN && n)
        memcpy(out, p, n * d->raw);
    for (size_t k = 0; encoding == CW_PARQUET_BYTE_STREAM_SPLIT && k < d->raw; k++)
        for (size_t i = 0; i < n; i++)
            out[i * d->raw + k] = p[k * n + i];
    return encoding == CW_PARQUET_PLAIN || encoding == CW_PARQUET_BYTE_STREAM_SPLIT;
}

static bool decode_numbers(struct decoder *d, int64_t encoding, const uint8_t *p, const uint8_t *end,
                           uint8_t *out, size_t n)
{
    if (d->raw == d->v->item)
        return decode_raw(d, encoding, p, end, out, n);
    _cleanup_free_ uint8_t *scratch = malloc(n * d->raw + 1);
    bool good = scratch && decode_raw(d, encoding, p, end, scratch, n);
    if (good)
        decode_convert(d, scratch, out, n);
    return good;
}

/* Decodes n values, without the nulls, to d->at and after it. */
static int decode_values(struct decoder *d, int64_t encoding, const uint8_t *p, const uint8_t *end, size_t n)
{
    bool bytes = d->c->type.dtype == CW_BYTES, good;
    if (encoding == CW_PARQUET_RLE_DICTIONARY || encoding == CW_PARQUET_PLAIN_DICTIONARY)
        good = decode_dictionary(d, p, end, n);
    else if (bytes &&
             (encoding == CW_PARQUET_DELTA_LENGTH_BYTE_ARRAY || encoding == CW_PARQUET_DELTA_BYTE_ARRAY))
        return decode_delta_strings(d, p, end, n, encoding == CW_PARQUET_DELTA_BYTE_ARRAY);
    else if (bytes)
        good = encoding == CW_PARQUET_PLAIN && decode_plain_strings(d->c, p, end, d->v->slices + d->at, n);
    else
        good = decode_numbers(d, encoding, p, end, d->v->numbers + d->at * d->v->item, n);
    return good ? 0
                : damaged(d, "the values of a page (encoding %" PRId64 ") are damaged, or not supported",
                          encoding);
}

static int decode_dictionary_page(struct decoder *d, const struct cw_parquet_page *p, const uint8_t *data)
{
    const uint8_t *bytes;
    bool blob;
    size_t n = (size_t)p->n_values;
    int r = page_bytes(d, p, data, 0, &bytes, &blob);
    if (r < 0)
        return r;
    d->keeps |= !blob && d->c->type.dtype == CW_BYTES;
    const uint8_t *end = bytes + p->unpacked;
    d->n_dictionary = n;
    if (n > (size_t)p->unpacked && d->c->physical != CW_PARQUET_BOOLEAN)
        return damaged(d, "its dictionary is damaged");
    size_t item = d->c->type.dtype == CW_BYTES ? sizeof(*d->words) : d->v->item;
    uint8_t *values = decode_blob(d, (n + 1) * item);
    if (!values)
        return CW_E_MEMORY;
    if (d->c->type.dtype == CW_BYTES) {
        d->words = (struct cw_slice *)(void *)values;
        return decode_plain_strings(d->c, bytes, end, d->words, n) ? 0
                                                                   : damaged(d, "its dictionary is damaged");
    }
    d->dictionary = values;
    return decode_numbers(d, CW_PARQUET_PLAIN, bytes, end, values, n)
               ? 0
               : damaged(d, "its dictionary is damaged");
}

/* ---- levels ---- */

/* Reads n levels, at most `most`, into out. */
static bool decode_levels(struct cw_parquet_rle *r, uint8_t most, uint8_t *out, size_t n)
{
    uint32_t values[BATCH];
    for (size_t at = 0, m; at < n; at += m) {
        m = CW_MIN(n - at, (size_t)BATCH);
        if (!cw_parquet_rle_read(r, values, m))
            return false;
        for (size_t i = 0; i < m; i++) {
            if (values[i] > most)
                return false;
            out[at + i] = (uint8_t)values[i];
        }
    }
    return true;
}

static unsigned decode_width(uint8_t most)
{
    unsigned width = 0;
    while (most >> width)
        width++;
    return width;
}

/* Moves the n values at d->at so that value i comes where the i-th of the `total` marks in valid is set. */
static void decode_spread(struct decoder *d, const uint8_t *valid, size_t total, size_t n)
{
    struct cw_parquet_values *v = d->v;
    size_t item = v->item;
    for (size_t to = total, from = n; to > 0; to--) {
        size_t place = d->at + to - 1;
        bool there = valid[to - 1];
        from -= there;
        if (!v->numbers)
            v->slices[place] = there ? v->slices[d->at + from] : (struct cw_slice){0};
        else if (!there)
            memset(v->numbers + place * item, 0, item);
        else if (from != to - 1)
            memcpy(v->numbers + place * item, v->numbers + (d->at + from) * item, item);
    }
}

static uint8_t *decode_mask(struct decoder *d, uint8_t **mask, uint64_t n)
{
    if (!*mask && (*mask = malloc(n + 1))) {
        memset(*mask, 1, n);
        d->v->bytes += n;
    }
    return *mask;
}

/* The levels of a page of a list column: sets the rows' slices (their data are set at the end) and validity.
 * Elements get their places from d->at on; valid[i]: element i is there. Returns the number of elements, or a
 * status. */
static int64_t decode_list_levels(struct decoder *d, const uint8_t *def, const uint8_t *rep, size_t n,
                                  uint8_t *valid)
{
    struct cw_parquet_values *v = d->v;
    size_t elements = 0;
    for (size_t i = 0; i < n; i++) {
        if (rep[i] == 0) {
            if (d->rows == v->n_rows)
                return damaged(d, "it has more rows than its row group");
            v->slices[d->rows++] = (struct cw_slice){0};
            if (def[i] + 1 < d->c->list_def) {
                if (!decode_mask(d, &v->valid, v->n_rows))
                    return CW_E_MEMORY;
                v->valid[d->rows - 1] = 0;
            }
        } else if (d->rows == 0 || def[i] < d->c->list_def) {
            return damaged(d, "the levels of a page are damaged");
        }
        if (def[i] >= d->c->list_def) {
            valid[elements++] = def[i] == d->c->max_def;
            v->slices[d->rows - 1].size += v->item;
        }
    }
    return (int64_t)elements;
}

struct levels {
    struct cw_parquet_rle def, rep;
};

/* Finds the levels in front of the values of a page at *p. */
static bool decode_find_levels(const struct decoder *d, const struct cw_parquet_page *page, const uint8_t **p,
                               const uint8_t *end, struct levels *ret)
{
    *ret = (struct levels){.def.width = decode_width(d->c->max_def),
                           .rep.width = decode_width(d->c->max_rep)};
    struct cw_parquet_rle *order[] = {&ret->rep, &ret->def};
    uint64_t sizes[] = {(uint64_t)page->rep_bytes, (uint64_t)page->def_bytes};
    bool there[] = {d->c->max_rep > 0, d->c->max_def > 0};
    for (int k = 0; k < 2; k++) {
        uint32_t size = 0;
        if (page->type == CW_PARQUET_PAGE_DATA && there[k]) {
            if (end - *p < 4)
                return false;
            memcpy(&size, *p, 4);
            *p += 4;
            sizes[k] = size;
        }
        if (sizes[k] > (uint64_t)(end - *p))
            return false;
        order[k]->p = *p;
        order[k]->end = *p += sizes[k];
    }
    return true;
}

/* Decodes a page of a column without lists. */
static int decode_flat(struct decoder *d, const struct cw_parquet_page *page, struct levels *l,
                       const uint8_t *p, const uint8_t *end)
{
    size_t n = (size_t)page->n_values, there = n;
    uint8_t *valid = NULL;
    if (d->c->max_def > 0 && n > 0) {
        if (!cw_parquet_rle_run(&l->def))
            return damaged(d, "the levels of a page are damaged");
        if (l->def.packed || l->def.left < n || l->def.value != d->c->max_def) {
            if (!decode_mask(d, &d->v->valid, d->v->n_rows))
                return CW_E_MEMORY;
            valid = d->v->valid + d->at;
            if (!decode_levels(&l->def, d->c->max_def, valid, n))
                return damaged(d, "the levels of a page are damaged");
            there = 0;
            for (size_t i = 0; i < n; i++)
                there += valid[i] = valid[i] == d->c->max_def;
        }
    }
    int r = decode_values(d, page->encoding, p, end, there);
    if (r == 0 && there < n)
        decode_spread(d, valid, n, there);
    d->rows += n;
    d->at += n;
    return r;
}

/* Decodes a page of a list column. */
static int decode_list(struct decoder *d, const struct cw_parquet_page *page, struct levels *l,
                       const uint8_t *p, const uint8_t *end)
{
    size_t n = (size_t)page->n_values, there = 0;
    _cleanup_free_ uint8_t *scratch = malloc(3 * n + 1);
    if (!scratch)
        return CW_E_MEMORY;
    uint8_t *def = scratch, *rep = scratch + n, *valid = scratch + 2 * n;
    if (!decode_levels(&l->rep, d->c->max_rep, rep, n) || !decode_levels(&l->def, d->c->max_def, def, n))
        return damaged(d, "the levels of a page are damaged");
    int64_t elements = decode_list_levels(d, def, rep, n, valid);
    if (elements < 0)
        return (int)elements;
    for (int64_t i = 0; i < elements; i++)
        there += valid[i];
    int r = decode_values(d, page->encoding, p, end, there);
    if (r == 0 && there < (size_t)elements) {
        if (!decode_mask(d, &d->v->element_valid, d->v->n_elements))
            return CW_E_MEMORY;
        memcpy(d->v->element_valid + d->at, valid, (size_t)elements);
        decode_spread(d, valid, (size_t)elements, there);
    }
    d->at += (uint64_t)elements;
    return r;
}

static int decode_data_page(struct decoder *d, const struct cw_parquet_page *page, const uint8_t *data)
{
    const uint8_t *p, *end;
    struct levels l;
    bool blob;
    size_t plain = page->type == CW_PARQUET_PAGE_DATA_V2 ? (size_t)(page->def_bytes + page->rep_bytes) : 0;
    if ((uint64_t)page->n_values > d->v->n_elements - d->at)
        return damaged(d, "it has more values than its row group says");
    int r = page_bytes(d, page, data, plain, &p, &blob);
    if (r < 0)
        return r;
    end = p + page->unpacked;
    if (!decode_find_levels(d, page, &p, end, &l))
        return damaged(d, "the levels of a page are damaged");
    r = d->c->max_rep ? decode_list(d, page, &l, p, end) : decode_flat(d, page, &l, p, end);
    bool strings = d->c->type.dtype == CW_BYTES,
         words = page->encoding == CW_PARQUET_RLE_DICTIONARY || page->encoding == CW_PARQUET_PLAIN_DICTIONARY;
    if (blob && (!strings || words) && r == 0)
        decode_drop_blob(d, (size_t)page->unpacked);
    d->keeps |= !blob && strings && !words;
    return r;
}

static int decode_pages(struct decoder *d)
{
    struct cw_thrift t = {.p = *d->data, .end = *d->data + d->k->size};
    int r = 0;
    uint64_t seen = 0;
    while (r == 0 && seen < d->k->n_values) {
        struct cw_parquet_page p;
        if (!cw_parquet_page_read(&t, &p))
            return damaged(d, "the header of a page is damaged");
        if (p.type == CW_PARQUET_PAGE_DICTIONARY && !d->n_dictionary) {
            r = decode_dictionary_page(d, &p, t.p);
        } else if (p.type == CW_PARQUET_PAGE_DATA || p.type == CW_PARQUET_PAGE_DATA_V2) {
            r = decode_data_page(d, &p, t.p);
            seen += (uint64_t)p.n_values;
        }
        t.p += p.packed;
    }
    if (r == 0 && d->rows != d->v->n_rows)
        return damaged(d, "it has %" PRIu64 " rows, and its row group %" PRIu64, d->rows, d->v->n_rows);
    return r;
}

size_t cw_parquet_decode_bytes(const struct cw_parquet_column *c, const struct cw_parquet_chunk *k,
                               uint64_t n_rows)
{
    bool slices = c->type.dtype == CW_BYTES || c->max_rep;
    size_t item = c->type.dtype == CW_BYTES ? 0 : cw_dtype_size(c->type.dtype);
    /* values, a mask, pages (of strings: all; else one at a time, with scratch), slices of rows */
    double bytes = (double)k->n_values * (double)(item + 3) + (double)k->unpacked * 1.25 +
                   (slices ? (double)n_rows * sizeof(struct cw_slice) : 0) + 65536;
    return bytes > (double)(SIZE_MAX / 4) ? SIZE_MAX / 4 : (size_t)bytes;
}

int cw_parquet_decode(const struct cw_parquet_column *c, const struct cw_parquet_chunk *k, uint64_t n_rows,
                      uint8_t **data, struct cw_parquet_values *ret, char why[CW_PARQUET_WHY])
{
    static const size_t raw[] = {1, 4, 8, 12, 4, 8, 0, 0};
    bool bytes = c->type.dtype == CW_BYTES, slices = bytes || c->max_rep > 0;
    struct cw_parquet_values v = {.n_rows = n_rows, .n_elements = k->n_values};
    struct decoder d = {.c = c, .k = k, .v = &v, .data = data, .why = why, .raw = raw[c->physical]};
    int r = 0;
    if (c->physical == CW_PARQUET_FIXED && !bytes)
        d.raw = c->width;
    if (n_rows > SIZE_MAX / 64 || k->n_values > SIZE_MAX / 64)
        return damaged(&d, "it has %" PRIu64 " values", k->n_values);
    if (!bytes) {
        v.item = cw_dtype_size(c->type.dtype);
        v.numbers = decode_alloc(k->n_values * v.item + 1);
        v.bytes += k->n_values * v.item;
    }
    if (slices) {
        v.slices = decode_alloc((n_rows + 1) * sizeof(*v.slices));
        v.bytes += n_rows * sizeof(*v.slices);
    }
    if ((!bytes && !v.numbers) || (slices && !v.slices))
        r = CW_E_MEMORY;
    if (r == 0)
        r = decode_pages(&d);
    if (r == 0 && d.keeps) {
        struct cw_parquet_blob *b = malloc(sizeof(*b));
        if (b) {
            *b = (struct cw_parquet_blob){.next = v.blobs, .memory = CW_STEAL(*data)};
            v.blobs = b;
            v.bytes += k->size;
        }
        r = b ? 0 : CW_E_MEMORY;
    }
    const uint8_t *at = v.numbers;
    for (uint64_t i = 0; r == 0 && c->max_rep > 0 && i < n_rows; i++) {
        v.slices[i].data = at;
        at += v.slices[i].size;
    }
    if (r < 0) {
        cw_parquet_values_deinit(&v);
        return r;
    }
    *ret = v;
    return 0;
}

void cw_parquet_values_deinit(struct cw_parquet_values *v)
{
    for (struct cw_parquet_blob *b = v->blobs, *next; b; b = next) {
        next = b->next;
        free(b->memory);
        free(b);
    }
    free(v->numbers);
    free(v->slices);
    free(v->valid);
    free(v->element_valid);
    *v = (struct cw_parquet_values){0};
}
