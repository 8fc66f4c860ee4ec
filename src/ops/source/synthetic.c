/* synthetic: elements made of random words, at a chosen cost of CPU time. For tests, benchmarks and models of
 * workloads. */
#include <string.h>

#include "base/cost_clock.h"
#include "base/hash.h"
#include "base/philox.h"
#include "data/convert.h"
#include "ops/source/keyed_source.h"

#define MAX_COUNT ((double)((uint64_t)1 << 40))
/* 2^40 elements of this size add up to far less than 2^64 bytes, but the sum over all sources must fit, too.
 */
#define MAX_ELEMENT_BYTES ((size_t)1 << 31)
#define MAX_SOURCE_BYTES ((uint64_t)1 << 60)
#define STREAM 2 /* last counter word of Philox (docs/semantics.md, section 1); 0: draws, 1: permutations */

struct synthetic {
    struct cw_keyed_source base;
    uint64_t cost_ns;
    size_t n_values;
    bool random;
};

static int synthetic_type(const struct cw_op *op, struct cw_type *ret, struct cw_error *err)
{
    *ret = cw_type_scalar(cw_attr_dtype(op, "dtype"));
    ret->ndim = (int)cw_attr_len(op, "shape");
    for (int i = 0; i < ret->ndim; i++)
        ret->dims[i] = cw_attr_int_at(op, "shape", (size_t)i);
    if (ret->dtype == CW_BYTES)
        return cw_attr_error(op, "dtype", err, "a dtype of numbers");
    if (cw_type_bytes(ret) > MAX_ELEMENT_BYTES)
        return cw_attr_error(op, "shape", err, "a shape of at most 2^31 bytes");
    if ((uint64_t)cw_attr_int(op, "count") > MAX_SOURCE_BYTES / CW_MAX(cw_type_bytes(ret), (size_t)1))
        return cw_attr_error(op, "count", err, "at most 2^60 bytes in all");
    return 0;
}

static int synthetic_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = synthetic_type(op, &type, err);
    if (r == 0)
        r = cw_bind_write(b, "data", &type, err);
    return r < 0 ? r : 0;
}

/* Makes n values from four random words. An integer takes the low bits of one word; an integer of 64 bits
 * takes two words, the low word first. */
static void synthetic_put_values(enum cw_dtype dtype, uint8_t *out, uint32_t words[4], size_t n)
{
    if (cw_dtype_is_float(dtype)) {
        const double uniform[4] = {cw_uniform(words[0]), cw_uniform(words[1]), cw_uniform(words[2]),
                                   cw_uniform(words[3])};
        cw_convert(CW_FLOAT64, dtype, out, uniform, n);
        return;
    }
    for (size_t i = 0; dtype == CW_BOOL && i < n; i++)
        words[i] &= 1;
    cw_convert(cw_dtype_size(dtype) == 8 ? dtype : CW_UINT32, dtype, out, words, n);
}

static void synthetic_fill_element(const struct synthetic *s, enum cw_dtype dtype, uint64_t row, uint8_t *out)
{
    size_t at_once = dtype == CW_UINT64 || dtype == CW_INT64 ? 2 : 4; /* values made from four words */
    for (size_t k = 0; k < s->n_values; k += at_once) {
        uint32_t words[4];
        const uint32_t counter[4] = {(uint32_t)row, (uint32_t)(row >> 32), (uint32_t)(k / at_once), STREAM};
        cw_philox(s->base.file_key, counter, words);
        synthetic_put_values(dtype, out + k * cw_dtype_size(dtype), words, CW_MIN(at_once, s->n_values - k));
    }
}

/* Spends cost_ns of CPU time, not wall time: a preempted thread still does all its work. */
static int synthetic_burn(const struct synthetic *s, const struct cw_block *b, struct cw_error *err)
{
    uint64_t start = cw_thread_cpu_ns();
    if (cw_cost_modelled()) {
        cw_cost_compute(s->cost_ns);
        return 0;
    }
    for (unsigned turns = 0; cw_thread_cpu_ns() - start < s->cost_ns; turns++)
        if (turns % 1024 == 1023 && b->cancelled && b->cancelled(b->cancel_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    return 0;
}

static int synthetic_produce(const struct cw_source *source, const struct cw_op *op, struct cw_block *b,
                             struct cw_error *err)
{
    const struct synthetic *s = (const struct synthetic *)source;
    const struct cw_port *port = &op->out[0];
    int r = port->live ? cw_block_dense(b, port->value, &port->type, err) : 0;
    if (r == 0 && port->live && !s->random)
        memset(b->columns[port->value].data, 0, b->n * b->columns[port->value].stride);
    for (size_t i = 0; r == 0 && i < b->n && (s->cost_ns || (port->live && s->random)); i++) {
        if (port->live && s->random)
            synthetic_fill_element(s, port->type.dtype, b->rows[i],
                                   b->columns[port->value].data + i * b->columns[port->value].stride);
        if (s->cost_ns)
            r = synthetic_burn(s, b, err);
    }
    return r;
}

static const struct cw_source_ops synthetic_ops = {
    .free = cw_keyed_source_free, .ids = cw_keyed_source_ids, .produce = synthetic_produce};

static int synthetic_open(const struct cw_op *op, const struct cw_source_env *env CW_UNUSED,
                          struct cw_source **ret, struct cw_error *err)
{
    struct cw_type type;
    int r = synthetic_type(op, &type, err);
    if (r < 0)
        return r;
    struct synthetic *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a source");
    uint64_t n = (uint64_t)cw_attr_int(op, "count");
    *s = (struct synthetic){.cost_ns = (uint64_t)(cw_attr_float(op, "cost_us") * 1e3),
                            .n_values = cw_type_bytes(&type) / cw_dtype_size(type.dtype),
                            .random = strcmp(cw_attr_string(op, "fill"), "random") == 0};
    cw_keyed_source_init(&s->base, &synthetic_ops, cw_hash64("synthetic", 9), n, n * cw_type_bytes(&type));
    *ret = &s->base.base;
    return 0;
}

static const char *const fills[] = {"random", "none", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "count", .kind = CW_ATTR_INT, .min = 0, .max = MAX_COUNT, .doc = "number of elements"},
    {.name = "shape",
     .kind = CW_ATTR_INTS,
     .def = "[]",
     .min = 1,
     .max = 0x1p31,
     .len_max = CW_MAX_NDIM,
     .doc = "shape of an element"},
    {.name = "dtype", .kind = CW_ATTR_DTYPE, .def = "\"float32\"", .doc = "dtype of an element"},
    {.name = "cost_us",
     .kind = CW_ATTR_FLOAT,
     .def = "0",
     .min = 0,
     .max = 1e9,
     .doc = "CPU time spent on each element, in microseconds"},
    {.name = "fill",
     .kind = CW_ATTR_STRING,
     .def = "\"random\"",
     .choices = fills,
     .doc = "random: random values, the same in every run; none: zeros"},
    {0},
};

const struct cw_op_desc cw_op_synthetic = {
    .name = "synthetic",
    .summary = "made-up elements that take a chosen CPU time, for tests and measurements",
    .doc = "Gives the component `data`. Random integers cover all values of their dtype; random "
           "floating-point numbers lie in [0, 1). The values depend only on the element's number.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = synthetic_bind,
    .open = synthetic_open,
};
