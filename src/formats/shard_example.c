/* Elements as tf.train.Example in TFRecords: the format tfrecord of shards. example.h has the messages. */
#include <inttypes.h>

#include "data/convert.h"
#include "formats/shard_format.h"
#include "formats/tfrecord.h"

#define SHAPE "/shape"
#define STEP 512 /* values that are converted at a time */

enum { TAG_1 = 0x0a, TAG_2 = 0x12 }; /* the tags of fields 1 and 2 of wire type LENGTH */

static enum cw_feature_kind shard_example_kind(enum cw_dtype dtype)
{
    return dtype == CW_BYTES          ? CW_FEATURE_BYTES
           : cw_dtype_is_float(dtype) ? CW_FEATURE_FLOAT
                                      : CW_FEATURE_INT64;
}

static bool shard_example_has_shape(const struct cw_type *t)
{
    return t->dtype != CW_BYTES && !cw_type_fixed(t);
}

static int shard_example_check(const struct cw_shard_schema *s, struct cw_error *err)
{
    for (unsigned i = 0; i < s->n; i++) {
        const char *name = s->components[i].name;
        if (s->components[i].type.dtype == CW_FLOAT64)
            return cw_error_value(
                err, CW_E_OPTION, "format", "tfrecord", "cachew or tar, or a cast to float32",
                "format tfrecord can't hold component \"%.60s\" exactly: it is float64, and a "
                "tf.train.Example has float32 only; cast it to float32, or use format cachew "
                "or tar",
                name);
        for (unsigned k = 0; k < s->n && shard_example_has_shape(&s->components[i].type); k++) {
            const char *other = s->components[k].name;
            size_t n = strlen(name);
            if (strncmp(other, name, n) == 0 && strcmp(other + n, SHAPE) == 0)
                return cw_error_value(err, CW_E_OPTION, "format", "tfrecord", "cachew, or other names",
                                      "format tfrecord keeps the shape of component \"%.60s\" in the feature "
                                      "\"%.60s\", which is also a component: rename one of the two",
                                      name, other);
        }
    }
    return 0;
}

/* ---- sizes ---- */

static size_t shard_example_varint(uint64_t v)
{
    return (size_t)(63 - __builtin_clzll(v | 1)) / 7 + 1;
}

/* Bytes of a field of wire type LENGTH whose content has `size` bytes. */
static size_t shard_example_field(size_t size)
{
    return 1 + shard_example_varint(size) + size;
}

struct feature { /* to be written */
    const char *key;
    size_t key_size, key_end_size; /* bytes of key, and of SHAPE after it */
    enum cw_dtype dtype;
    const void *data;
    size_t size;                 /* bytes of data */
    size_t packed;               /* bytes of the values as the list has them */
    size_t list, feature, entry; /* bytes of the contents of these messages */
};

/* Converts up to STEP integers from number `at` on to int64. Returns how many. */
static size_t shard_example_integers(const struct feature *f, size_t at, int64_t out[STEP])
{
    size_t item = cw_dtype_size(f->dtype), n = CW_MIN(f->size / item - at, (size_t)STEP);
    cw_convert(f->dtype, CW_INT64, out, (const uint8_t *)f->data + at * item, n);
    return n;
}

static void shard_example_measure(struct feature *f)
{
    int64_t values[STEP];
    if (f->dtype == CW_BYTES) {
        f->packed = f->size;
    } else if (cw_dtype_is_float(f->dtype)) {
        f->packed = f->size / cw_dtype_size(f->dtype) * sizeof(float);
    } else if (f->dtype == CW_UINT8) { /* images: the loop vectorises */
        f->packed = f->size;
        for (size_t i = 0; i < f->size; i++)
            f->packed += ((const uint8_t *)f->data)[i] >> 7;
    } else {
        f->packed = 0;
        for (size_t at = 0, n; (n = shard_example_integers(f, at, values)) > 0; at += n)
            for (size_t i = 0; i < n; i++)
                f->packed += shard_example_varint((uint64_t)values[i]);
    }
    f->list = f->packed || f->dtype == CW_BYTES ? shard_example_field(f->packed) : 0;
    f->feature = shard_example_field(f->list);
    f->entry = shard_example_field(f->key_size + f->key_end_size) + shard_example_field(f->feature);
}

/* ---- writing ---- */

static uint8_t *shard_example_put_varint(uint8_t *at, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *at++ = (uint8_t)(v | 0x80);
    *at++ = (uint8_t)v;
    return at;
}

static uint8_t *shard_example_put_head(uint8_t *at, int tag, size_t size)
{
    *at++ = (uint8_t)tag;
    return shard_example_put_varint(at, size);
}

static uint8_t *shard_example_put_values(uint8_t *at, const struct feature *f)
{
    int64_t values[STEP];
    float floats[STEP];
    if (f->dtype == CW_BYTES || f->dtype == CW_FLOAT32) {
        if (f->size)
            memcpy(at, f->data, f->size);
        return at + f->size;
    }
    if (cw_dtype_is_float(f->dtype)) {
        size_t item = cw_dtype_size(f->dtype), total = f->size / item;
        for (size_t i = 0, n; i < total; i += n, at += n * sizeof(float)) {
            n = CW_MIN(total - i, (size_t)STEP);
            cw_convert(f->dtype, CW_FLOAT32, floats, (const uint8_t *)f->data + i * item, n);
            memcpy(at, floats, n * sizeof(float));
        }
        return at;
    }
    if (f->dtype ==
        CW_UINT8) { /* images: no branch depends on a value; the byte after the last is written again */
        for (size_t i = 0; i < f->size; i++) {
            at[0] = ((const uint8_t *)f->data)[i];
            at[1] = 1;
            at += 1 + (at[0] >> 7);
        }
        return at;
    }
    for (size_t i = 0, n; (n = shard_example_integers(f, i, values)) > 0; i += n)
        for (size_t k = 0; k < n; k++)
            at = shard_example_put_varint(at, (uint64_t)values[k]);
    return at;
}

static uint8_t *shard_example_put_feature(uint8_t *at, const struct feature *f)
{
    at = shard_example_put_head(at, TAG_1, f->entry);
    at = shard_example_put_head(at, TAG_1, f->key_size + f->key_end_size);
    memcpy(at, f->key, f->key_size);
    memcpy(at + f->key_size, SHAPE, f->key_end_size);
    at = shard_example_put_head(at + f->key_size + f->key_end_size, TAG_2, f->feature);
    at = shard_example_put_head(at, (int)shard_example_kind(f->dtype) << 3 | 2, f->list);
    if (!f->list)
        return at;
    at = shard_example_put_head(at, TAG_1, f->packed);
    return shard_example_put_values(at, f);
}

static int shard_example_write(const struct cw_shard_schema *s, uint64_t number CW_UNUSED,
                               const struct cw_tensor *values, struct cw_shard_bytes *to,
                               struct cw_error *err)
{
    struct feature features[2 * CW_SHARD_COMPONENTS];
    unsigned n = 0;
    size_t total = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const struct cw_shard_component *c = &s->components[i];
        features[n++] = (struct feature){.key = c->name,
                                         .key_size = strlen(c->name),
                                         .dtype = c->type.dtype,
                                         .data = values[i].data,
                                         .size = values[i].size};
        if (shard_example_has_shape(&c->type))
            features[n++] = (struct feature){.key = c->name,
                                             .key_size = strlen(c->name),
                                             .key_end_size = strlen(SHAPE),
                                             .dtype = CW_INT64,
                                             .data = values[i].dims,
                                             .size = (size_t)values[i].ndim * sizeof(int64_t)};
    }
    for (unsigned i = 0; i < n; i++) {
        shard_example_measure(&features[i]);
        total += shard_example_field(features[i].entry);
    }
    size_t size = shard_example_field(total);
    uint8_t *start = cw_shard_room(to, size + CW_TFRECORD_FRAME, err);
    if (!start)
        return err ? err->status : CW_E_MEMORY;
    uint8_t *at = shard_example_put_head(start + CW_TFRECORD_HEADER, TAG_1, total);
    for (unsigned i = 0; i < n; i++)
        at = shard_example_put_feature(at, &features[i]);
    to->size += cw_tfrecord_frame(start, size);
    return 0;
}

/* ---- reading ---- */

/* Returns the number of the component that a key names, or -1. *ret_shape: the key is that of its shape.
 * guess: tried first, because records keep the order of components. */
static int shard_example_find(const struct cw_shard_schema *s, const struct cw_feature *f, unsigned guess,
                              bool *ret_shape)
{
    size_t end = strlen(SHAPE);
    for (unsigned k = 0; k < s->n; k++) {
        unsigned i = guess + k < s->n ? guess + k : guess + k - s->n;
        const char *name = s->components[i].name;
        size_t n = strlen(name);
        if (f->key_size < n || memcmp(f->key, name, n) != 0)
            continue;
        *ret_shape = f->key_size == n + end && memcmp(f->key + n, SHAPE, end) == 0 &&
                     shard_example_has_shape(&s->components[i].type);
        if (f->key_size == n || *ret_shape)
            return (int)i;
    }
    return -1;
}

/* Sets *v from a component's feature, and from the feature with its shape. */
static bool shard_example_take(const struct cw_shard_component *c, const struct cw_feature *f,
                               const struct cw_feature *shape, struct cw_shard_value *v,
                               char why[CW_SHARD_WHY])
{
    enum cw_feature_kind kind = shard_example_kind(c->type.dtype);
    int64_t dims[CW_MAX_NDIM], ndim = c->type.ndim, n = f->kind == kind ? cw_feature_count(f) : -1;
    struct cw_bytes_view view;
    *v = (struct cw_shard_value){.feature = *f};
    if (n < 0)
        return cw_shard_wrong(why, "the feature \"%.60s\" holds %s, expected %s", c->name,
                              f->kind == kind ? "a list that can't be read" : cw_feature_kind_name(f->kind),
                              cw_feature_kind_name(kind));
    if (kind == CW_FEATURE_BYTES) {
        if (n != 1)
            return cw_shard_wrong(why, "the feature \"%.60s\" holds %" PRId64 " values, expected 1", c->name,
                                  n);
        cw_feature_bytes(f, &view);
        v->data = view.data;
        v->size = view.size;
        return true;
    }
    if (shard_example_has_shape(&c->type)) {
        ndim = shape->kind == CW_FEATURE_INT64 ? cw_feature_count(shape) : -1;
        if (ndim >= 0 && ndim <= CW_MAX_NDIM)
            cw_feature_integers(shape, sizeof(*dims), dims);
    } else {
        memcpy(dims, c->type.dims, sizeof(dims));
    }
    if (!cw_shard_set_dims(c, dims, ndim, v, why))
        return false;
    int64_t expected = (int64_t)(v->size / cw_dtype_size(c->type.dtype));
    return n == expected ||
           cw_shard_wrong(why, "the feature \"%.60s\" holds %" PRId64 " values, expected %" PRId64, c->name,
                          n, expected);
}

static bool shard_example_read(const struct cw_shard_schema *s, const uint8_t *data, size_t size,
                               struct cw_shard_value *values, char why[CW_SHARD_WHY])
{
    struct cw_feature found[CW_SHARD_COMPONENTS], shapes[CW_SHARD_COMPONENTS], f;
    struct cw_example_walk walk;
    unsigned guess = 0;
    int r;
    for (unsigned i = 0; i < s->n; i++)
        found[i].kind = shapes[i].kind = CW_FEATURE_NONE;
    cw_example_walk_init(&walk, data, size);
    while ((r = cw_example_next(&walk, &f)) > 0) {
        bool shape = false;
        int i = shard_example_find(s, &f, guess, &shape);
        if (i < 0)
            continue;
        *(shape ? &shapes[i] : &found[i]) = f;
        guess = (unsigned)i + 1 < s->n ? (unsigned)i + 1 : 0;
    }
    if (r < 0)
        return cw_shard_wrong(why, "malformed Example: %s at byte %zu of %zu", walk.why, walk.where, size);
    for (unsigned i = 0; i < s->n; i++)
        if (!shard_example_take(&s->components[i], &found[i], &shapes[i], &values[i], why))
            return false;
    return true;
}

const struct cw_shard_ops cw_shard_example = {
    .check = shard_example_check, .write = shard_example_write, .read = shard_example_read};
