/* Pure functions. Numbers are little-endian, as those of the machine (base/hash.h). */
#include "formats/flatbuffer.h"

#include <string.h>

static bool flat_within(struct cw_flatbuffer *b, size_t at, size_t n)
{
    if (at <= b->size && n <= b->size - at)
        return true;
    b->bad = true;
    return false;
}

static uint32_t flat_u32(struct cw_flatbuffer *b, size_t at)
{
    uint32_t v = 0;
    if (flat_within(b, at, sizeof(v)))
        memcpy(&v, b->data + at, sizeof(v));
    return v;
}

static uint16_t flat_u16(struct cw_flatbuffer *b, size_t at)
{
    uint16_t v = 0;
    if (flat_within(b, at, sizeof(v)))
        memcpy(&v, b->data + at, sizeof(v));
    return v;
}

/* The table at this place: it begins with the distance back to its vtable, whose first two numbers are its
 * size and that of the table. */
static struct cw_flat_table flat_table(struct cw_flatbuffer *b, size_t at)
{
    int64_t fields = (int64_t)at - (int32_t)flat_u32(b, at);
    if (b->bad || fields < 0 || !flat_within(b, (size_t)fields, 4)) {
        b->bad = true;
        return (struct cw_flat_table){0};
    }
    size_t size = flat_u16(b, (size_t)fields);
    if (size < 4 || !flat_within(b, (size_t)fields, size)) {
        b->bad = true;
        return (struct cw_flat_table){0};
    }
    return (struct cw_flat_table){.at = at, .fields = (size_t)fields + 4, .n_fields = (size - 4) / 2};
}

/* Returns where field k lies; 0: it is absent. */
static size_t flat_field(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k)
{
    size_t offset = k < t.n_fields ? flat_u16(b, t.fields + 2 * k) : 0;
    return offset ? t.at + offset : 0;
}

/* Follows the reference at this place. */
static size_t flat_follow(struct cw_flatbuffer *b, size_t at)
{
    return at + flat_u32(b, at);
}

struct cw_flat_table cw_flat_root(struct cw_flatbuffer *b)
{
    return flat_table(b, flat_follow(b, 0));
}

int64_t cw_flat_int(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k, size_t bytes, int64_t absent)
{
    size_t at = flat_field(b, t, k);
    uint64_t v = 0;
    if (at == 0 || !flat_within(b, at, bytes))
        return absent;
    memcpy(&v, b->data + at, bytes);
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return (int64_t)(v << unused) >> unused;
}

struct cw_flat_table cw_flat_child(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k)
{
    size_t at = flat_field(b, t, k);
    return at ? flat_table(b, flat_follow(b, at)) : (struct cw_flat_table){0};
}

struct cw_flat_vector cw_flat_list(struct cw_flatbuffer *b, struct cw_flat_table t, size_t k, size_t bytes)
{
    size_t at = flat_field(b, t, k);
    if (at == 0)
        return (struct cw_flat_vector){0};
    at = flat_follow(b, at);
    size_t n = flat_u32(b, at);
    if (b->bad || !flat_within(b, at + 4, n * bytes))
        return (struct cw_flat_vector){0};
    return (struct cw_flat_vector){.at = at + 4, .n = n};
}

struct cw_flat_table cw_flat_item(struct cw_flatbuffer *b, struct cw_flat_vector v, size_t i)
{
    return i < v.n ? flat_table(b, flat_follow(b, v.at + 4 * i)) : (struct cw_flat_table){0};
}

int64_t cw_flat_long(const struct cw_flatbuffer *b, struct cw_flat_vector v, size_t i, size_t bytes,
                     size_t offset)
{
    int64_t value = 0;
    if (i < v.n)
        memcpy(&value, b->data + v.at + i * bytes + offset, sizeof(value));
    return value;
}
