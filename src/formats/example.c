/* Wire parser of tf.train.Example. Pure functions of their input; any thread. */
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
    const uint8_t *data, *end; /* content (LENGTH), or the bytes of the value */
};

/* After the varint at p, or NULL when it is cut off or longer than 10 bytes. Bits past 64 are dropped, as
 * protobuf does. */
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

/* After the field at p, or NULL with *why. */
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

/* Adds the lists of one Feature message; NULL with *why, else something. */
static const uint8_t *example_read_feature(const uint8_t *p, const uint8_t *end, struct cw_feature *f,
                                           const char **why)
{
    struct field field;
    while (p < end) {
        const uint8_t *next = example_read_field(p, end, &field, why);
        if (!next)
            return NULL;
        p = next;
        if (field.wire != LENGTH || field.number > CW_FEATURE_INT64)
            continue;
        if (f->kind == (enum cw_feature_kind)field.number) {
            f->n_lists++;
        } else {
            f->kind = (enum cw_feature_kind)field.number;
            f->n_lists = 1;
            f->list = field.data;
            f->list_end = field.end;
        }
    }
    return p;
}

static int example_read_entry(const uint8_t *p, const uint8_t *end, struct cw_feature *f,
                              const uint8_t **ret_at, const char **why)
{
    struct field field;
    *f = (struct cw_feature){.key = "", .entry = p, .entry_end = end};
    while (p < end) {
        *ret_at = p;
        p = example_read_field(p, end, &field, why);
        if (!p)
            return -1;
        if (field.wire == LENGTH && field.number == 1) {
            f->key = (const char *)field.data;
            f->key_size = (size_t)(field.end - field.data);
        } else if (field.wire == LENGTH && field.number == 2 &&
                   !example_read_feature(field.data, field.end, f, why)) {
            return -1;
        }
    }
    return 0;
}

void cw_example_walk_init(struct cw_example_walk *w, const void *data, size_t size)
{
    static const uint8_t nothing[1];
    const uint8_t *p = size ? data : nothing;
    *w = (struct cw_example_walk){.start = p, .at = p, .end = p + size, .features = p, .features_end = p};
}

static int example_malformed(struct cw_example_walk *w, const uint8_t *at)
{
    return w->where = (size_t)(at - w->start), -1;
}

int cw_example_next(struct cw_example_walk *w, struct cw_feature *ret)
{
    struct field field;
    const uint8_t *at, *next;
    for (;;) {
        while (w->features < w->features_end) {
            at = w->features;
            next = example_read_field(at, w->features_end, &field, &w->why);
            if (!next)
                return example_malformed(w, at);
            w->features = next;
            if (field.wire != LENGTH || field.number != 1)
                continue;
            return example_read_entry(field.data, field.end, ret, &at, &w->why) < 0 ? example_malformed(w, at)
                                                                                    : 1;
        }
        if (w->at == w->end)
            return 0;
        at = w->at;
        next = example_read_field(at, w->end, &field, &w->why);
        if (!next)
            return example_malformed(w, at);
        w->at = next;
        if (field.wire == LENGTH && field.number == 1) {
            w->features = field.data;
            w->features_end = field.end;
        }
    }
}

/* ---- values ---- */

/* The lists of a feature, one after another. Entry and features were read once before, so nothing in them can
 * be malformed. */
struct lists {
    const struct cw_feature *f;
    const uint8_t *entry, *feature, *feature_end;
    unsigned given;
};

static bool example_next_list(struct lists *l, const uint8_t **ret, const uint8_t **ret_end)
{
    const struct cw_feature *f = l->f;
    struct field field;
    const char *why;
    if (l->given == f->n_lists)
        return false;
    if (f->n_lists == 1) {
        l->given = 1;
        *ret = f->list;
        *ret_end = f->list_end;
        return true;
    }
    if (!l->entry)
        l->entry = f->entry;
    for (;;) {
        while (l->feature < l->feature_end) {
            l->feature = example_read_field(l->feature, l->feature_end, &field, &why);
            if (!l->feature)
                return false;
            if (field.wire == LENGTH && field.number == (uint32_t)f->kind && field.data >= f->list) {
                l->given++;
                *ret = field.data;
                *ret_end = field.end;
                return true;
            }
        }
        if (l->entry >= f->entry_end)
            return false;
        l->entry = example_read_field(l->entry, f->entry_end, &field, &why);
        if (!l->entry)
            return false;
        if (field.wire == LENGTH && field.number == 2) {
            l->feature = field.data;
            l->feature_end = field.end;
        }
    }
}

/* The value fields of a feature, one after another. As lists, but where a value is malformed it ends too,
 * with `bad`. */
struct values {
    struct lists lists;
    const uint8_t *at, *end;
    bool bad;
};

static bool example_next_value(struct values *v, struct field *ret)
{
    const char *why;
    do {
        while (v->at == v->end)
            if (!example_next_list(&v->lists, &v->at, &v->end))
                return false;
        v->at = example_read_field(v->at, v->end, ret, &why);
        v->bad = !v->at;
    } while (!v->bad && ret->number != 1);
    return !v->bad;
}

/* Values in a packed field, -1 when malformed. */
static int64_t example_packed_count(enum cw_feature_kind kind, const uint8_t *p, const uint8_t *end)
{
    if (kind == CW_FEATURE_FLOAT)
        return (end - p) % 4 ? -1 : (end - p) / 4;
    int64_t n = 0;
    uint64_t v;
    for (; p < end; n++)
        if (!(p = example_read_varint(p, end, &v)))
            return -1;
    return n;
}

int64_t cw_feature_count(const struct cw_feature *f)
{
    struct values values = {.lists.f = f};
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
    struct values values = {.lists.f = f};
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
    struct values values = {.lists.f = f};
    struct field field;
    while (example_next_value(&values, &field))
        if (field.wire == LENGTH || field.wire == FIXED32)
            for (const uint8_t *v = field.data; v < field.end; v += 4)
                *out++ = example_load_float(v);
}

void cw_feature_int64s(const struct cw_feature *f, int64_t *out)
{
    struct values values = {.lists.f = f};
    struct field field;
    while (example_next_value(&values, &field))
        if (field.wire == LENGTH || field.wire == VARINT)
            for (const uint8_t *v = field.data; v < field.end;) {
                uint64_t bits = 0;
                v = example_read_varint(v, field.end, &bits);
                *out++ = (int64_t)bits;
            }
}
