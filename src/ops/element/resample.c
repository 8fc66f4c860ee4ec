/* resample: drops elements at random by their class, so that the classes get given shares. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "data/convert.h"
#include "ops/element/component.h"

struct resample {
    size_t n;      /* classes */
    double keep[]; /* by class: the probability that an element is kept */
};

/* Sets the probabilities: target / initial of each class, divided by the largest of these quotients. */
static int resample_set(const struct cw_op *op, struct resample *s, struct cw_error *err)
{
    double most = 0;
    for (size_t i = 0; i < s->n; i++) {
        double target = cw_attr_float_at(op, "target", i), initial = cw_attr_float_at(op, "initial", i);
        if (initial == 0 && target > 0)
            return cw_attr_error(op, "initial", err,
                                 "a share above 0 of class %zu, whose target is %g, because no element of it "
                                 "would arrive",
                                 i, target);
        s->keep[i] = target > 0 ? target / initial : 0;
        most = CW_MAX(most, s->keep[i]);
    }
    if (most == 0)
        return cw_attr_error(op, "target", err, "at least one value above 0");
    for (size_t i = 0; i < s->n; i++)
        s->keep[i] /= most;
    return 0;
}

static int resample_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    char text[160];
    int r = cw_component_bind(b, op, &type, err);
    if (r < 0)
        return r;
    if ((!cw_dtype_is_integer(type.dtype) && type.dtype != CW_BOOL) || type.ndim != 0)
        return cw_attr_error(op, "component", err, "one integer per element, but \"%s\" is %s",
                             cw_attr_string(op, "component"), cw_type_print(&type, text));
    size_t n = cw_attr_len(op, "target");
    if (cw_attr_len(op, "initial") != n)
        return cw_attr_error(op, "initial", err, "as many values as target has: %zu", n);
    struct resample *s = op->state = calloc(1, sizeof(*s) + n * sizeof(s->keep[0]));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "resample");
    s->n = n;
    return resample_set(op, s, err);
}

static int resample_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err CW_UNUSED)
{
    const struct resample *s = op->state;
    bool dropped = false;
    CW_ROWS_OK(row, b, true)
    {
        int64_t k; /* of a uint64 that int64 can't hold, it is negative */
        uint32_t words[4];
        cw_convert(op->in[0].type.dtype, CW_INT64, &k, cw_in(op, b, 0, row).data, 1);
        if (k < 0 || (uint64_t)k >= s->n) {
            cw_block_fail(b, row, op->desc->name, "%s is %" PRIi64 ": expected a class from 0 to %zu",
                          cw_attr_string(op, "component"), k, s->n - 1);
            continue;
        }
        cw_block_draw(b, op->index, row, 0, words);
        if (cw_uniform(words[0]) < s->keep[k])
            continue;
        b->status[row] = CW_ROW_DROPPED;
        dropped = true;
    }
    b->all_ok &= !dropped;
    return 0;
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the class of an element: an integer from 0 on"},
    {.name = "target",
     .kind = CW_ATTR_FLOATS,
     .min = 0,
     .max = 0x1p62,
     .len_min = 1,
     .len_max = 1 << 16,
     .doc = "for each class its share of the elements that are kept, in any unit"},
    {.name = "initial",
     .kind = CW_ATTR_FLOATS,
     .min = 0,
     .max = 0x1p62,
     .len_min = 1,
     .len_max = 1 << 16,
     .doc = "for each class its share of the elements that arrive, in any unit: counts of a data set, for "
            "example"},
    {0},
};

const struct cw_op_desc cw_op_resample = {
    .name = "resample",
    .summary = "drops elements at random, so that classes get given shares",
    .doc = "An element of class k is kept with a probability in proportion to target[k] / initial[k], and as "
           "many elements as possible are kept: all those of the class with the largest quotient. If "
           "`initial` is right, the expected shares of the classes are those of `target`. Each element draws "
           "by itself, and draws again in each epoch. No element is repeated.",
    .kind = CW_OP_FILTER,
    .effects = {.count = CW_COUNT_FEWER, .random = true},
    .attrs = attrs,
    .bind = resample_bind,
    .run = resample_run,
    .free_state = free,
};
