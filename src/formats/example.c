/* Parses the wire format of tf.train.Example. Pure functions; any thread. */
#include "formats/example.h"

#include <stdbool.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 }; /* wire types */

const char *cw_feature_kind_name(enum cw_feature_kind kind)
{
    static const char *const names[] = {"nothing", "bytes", "float32", "int64"};
    return names[kind];
}

struct field {
    uint32_t number, wire;
    const uint8_t *data, *end; /* the content of a LENGTH field, else the bytes of the value */
};

/* Reads the varint at p. Returns the address after it, or NULL if it is cut off or longer than 10 bytes. Bits
 * beyond 64 are dropped, as protobuf does. */
static inline const uint8_t *example_read_varint(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    if (CW_LIKELY(p < end && *p < 0x80)) {
        *ret = *p;
        return p + 1;
    }
    uint64_t v = 0;
    for (unsigned shift = 0; p < end && shift < 70; shift += 7) {
        uint8_t byte = *p++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = v;
            return p;
        }
    }
    return NULL;
}

/* As example_read_varint, without a branch that depends on whether the varint has one byte or two: in lists
 * of pixels that can't be predicted. */
static inline const uint8_t *example_read_short(const uint8_t *p, const uint8_t *end, uint64_t *ret)
{
    if (end - p < 2)
        return example_read_varint(p, end, ret);
    uint64_t more = p[0] >> 7;
    if (more & p[1] >> 7)
        return example_read_varint(p, end, ret);
    *ret = (p[0] & 0x7f) | (p[1] & (0 - more)) << 7;
    return p + 1 + more;
}

/* Reads the field at p. Returns the address after it, or NULL and sets *why. */
static const uint8_t *example_read_field(const uint8_t *p, const uint8_t *end, struct field *ret,
                                         const char **why)
{
    uint64_t tag, length = 0;
    p = example_read_varint(p, end, &tag);
    if (!p || tag > UINT32_MAX || tag >> 3 == 0) {
        *why = "no valid field tag";
        return NULL;
    }
    ret->number = (uint32_t)(tag >> 3);
    ret->wire = (uint32_t)(tag & 7);
    ret->data = p;
    switch (ret->wire) {
    case VARINT:
        p = example_read_varint(p, end, &length);
        if (!p)
            *why = "a number is cut off";
        ret->end = p;
        return p;
    case FIXED64:
        length = 8;
        break;
    case FIXED32:
        length = 4;
        break;
    case LENGTH:
        p = example_read_varint(p, end, &length);
        if (!p) {
            *why = "a length is cut off";
            return NULL;
        }
        ret->data = p;
        break;
    default:
        *why = "no valid wire type";
        return NULL;
    }
    if (length > (uint64_t)(end - p)) {
        *why = "a field runs past the end";
        return NULL;
    }
    ret->end = p + length;
    return ret->end;
}

/* Reads the next field with this number and wire type LENGTH, and moves the cursor past it. Returns 1; 0 at
 * the end; -1 and sets *why: then the cursor points to the malformed field. */
static int example_next_field(struct cw_example_cursor *c, uint32_t number, struct field *ret,
                              const char **why)
{
    while (c->at < c->end) {
        const uint8_t *next = example_read_field(c->at, c->end, ret, why);
        if (!next)
            return -1;
        c->at = next;
        if (ret->wire == LENGTH && ret->number == number)
            return 1;
    }
    return 0;
}

/* Like example_next_field, for fields inside those fields of the outer message that have the number `outer`.
 */
static int example_next_inner(struct cw_example_nested *n, uint32_t outer, uint32_t number, struct field *ret,
                              const char **why)
{
    int r;
    while ((r = example_next_field(&n->inner, number, ret, why)) == 0 &&
           (r = example_next_field(&n->outer, outer, ret, why)) == 1)
        n->inner = (struct cw_example_cursor){ret->data, ret->end};
    return r;
}

/* Adds the lists of one Feature message, which is a field of a map entry; `after` is the rest of the entry.
 * Returns NULL and sets *why if the message is malformed, else any other value. */
static const uint8_t *example_read_feature(const struct field *feature, struct cw_example_cursor after,
                                           struct cw_feature *f, const char **why)
{
    struct field field;
    const uint8_t *p = feature->data, *next;
    for (; p < feature->end; p = next) {
        next = example_read_field(p, feature->end, &field, why);
        if (!next)
            return NULL;
        if (field.wire != LENGTH || field.number > CW_FEATURE_INT64)
            continue;
        if (f->kind != (enum cw_feature_kind)field.number)
            f->n_lists = 0;
        f->kind = (enum cw_feature_kind)field.number;
        if (f->n_lists++ == 0)
            f->lists = (struct cw_example_nested){.outer = after, .inner = {p, feature->end}};
    }
    return p;
}

static int example_read_entry(const uint8_t *p, const uint8_t *end, struct cw_feature *f,
                              const uint8_t **ret_at, const char **why)
{
    struct field field;
    *f = (struct cw_feature){.key = ""};
    while (p < end) {
        *ret_at = p;
        p = example_read_field(p, end, &field, why);
        if (!p)
            return -1;
        if (field.wire == LENGTH && field.number == 1) {
            f->key = (const char *)field.data;
            f->key_size = (size_t)(field.end - field.data);
        } else if (field.wire == LENGTH && field.number == 2 &&
                   !example_read_feature(&field, (struct cw_example_cursor){p, end}, f, why)) {
            return -1;
        }
    }
    return 1;
}

void cw_example_walk_init(struct cw_example_walk *w, const void *data, size_t size)
{
    static const uint8_t nothing[1];
    const uint8_t *p = size ? data : nothing;
    *w = (struct cw_example_walk){.start = p, .features.outer = {p, p + size}};
}

int cw_example_next(struct cw_example_walk *w, struct cw_feature *ret)
{
    struct field field;
    const uint8_t *at;
    int r = example_next_inner(&w->features, 1, 1, &field, &w->why);
    at = w->features.inner.at < w->features.inner.end ? w->features.inner.at : w->features.outer.at;
    if (r == 1)
        r = example_read_entry(field.data, field.end, ret, &at, &w->why);
    w->where = (size_t)(at - w->start);
    return r;
}

/* ---- values ---- */

/* An iteration over the value fields of a feature. Its lists were read once before, so only the values
 * themselves can be malformed. At a malformed value the iteration ends and sets `bad`. */
struct values {
    const struct cw_feature *f;
    struct cw_example_nested lists; /* the lists that were not begun yet */
    struct cw_example_cursor list;  /* the unread rest of the current list */
    unsigned given;
    bool bad;
};

static struct values example_values(const struct cw_feature *f)
{
    return (struct values){.f = f, .lists = f->lists};
}

static bool example_next_value(struct values *v, struct field *ret)
{
    const char *why;
    do {
        while (v->list.at == v->list.end) {
            if (v->given++ == v->f->n_lists ||
                example_next_inner(&v->lists, 2, (uint32_t)v->f->kind, ret, &why) <= 0)
                return false;
            v->list = (struct cw_example_cursor){ret->data, ret->end};
        }
        v->list.at = example_read_field(v->list.at, v->list.end, ret, &why);
        v->bad = !v->list.at;
    } while (!v->bad && ret->number != 1);
    return !v->bad;
}

/* Returns the number of values in a packed field; -1: it is malformed. */
static int64_t example_packed_count(enum cw_feature_kind kind, const uint8_t *p, const uint8_t *end)
{
    if (kind == CW_FEATURE_FLOAT)
        return (end - p) % 4 ? -1 : (end - p) / 4;
    int64_t n = 0;
    uint64_t v;
    for (; p < end; n++)
        if (!(p = example_read_short(p, end, &v)))
            return -1;
    return n;
}

int64_t cw_feature_count(const struct cw_feature *f)
{
    struct values values = example_values(f);
    struct field field;
    int64_t n = 0;
    while (example_next_value(&values, &field)) {
        if (f->kind == CW_FEATURE_BYTES) {
            n += field.wire == LENGTH;
        } else if (field.wire == LENGTH) {
            int64_t more = example_packed_count(f->kind, field.data, field.end);
            if (more < 0)
                return -1;
            n += more;
        } else {
            n += field.wire == (f->kind == CW_FEATURE_FLOAT ? FIXED32 : VARINT);
        }
    }
    return values.bad ? -1 : n;
}

void cw_feature_bytes(const struct cw_feature *f, struct cw_bytes_view *out)
{
    struct values values = example_values(f);
    struct field field;
    while (example_next_value(&values, &field))
        if (field.wire == LENGTH)
            *out++ = (struct cw_bytes_view){.data = field.data, .size = (size_t)(field.end - field.data)};
}

static float example_load_float(const uint8_t *p)
{
    uint32_t bits = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

void cw_feature_floats(const struct cw_feature *f, float *out)
{
    struct values values = example_values(f);
    struct field field;
    while (example_next_value(&values, &field))
        if (field.wire == LENGTH || field.wire == FIXED32)
            for (const uint8_t *v = field.data; v < field.end; v += 4)
                *out++ = example_load_float(v);
}

/* Stores the values in out, each as its lowest `size` bytes. Inlined for each size. */
static inline __attribute__((always_inline)) void example_integers(const struct cw_feature *f, size_t size,
                                                                   uint8_t *out)
{
    struct values values = example_values(f);
    struct field field;
    while (example_next_value(&values, &field))
        if (field.wire == LENGTH || field.wire == VARINT)
            for (const uint8_t *v = field.data; v < field.end; out += size) {
                uint64_t bits = 0;
                v = example_read_short(v, field.end, &bits);
                memcpy(out, &bits, size); /* little-endian, as base/hash.h */
            }
}

void cw_feature_integers(const struct cw_feature *f, size_t size, void *out)
{
    switch (size) {
    case 1:
        example_integers(f, 1, out);
        break;
    case 2:
        example_integers(f, 2, out);
        break;
    case 4:
        example_integers(f, 4, out);
        break;
    default:
        example_integers(f, 8, out);
    }
}
