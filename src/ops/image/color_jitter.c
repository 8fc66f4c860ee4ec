/* color_jitter: brightness, contrast, saturation and hue changed by drawn amounts, in a drawn order. */
#include <stdlib.h>

#include "base/macro.h"
#include "base/philox.h"
#include "ops/image/image_color.h"

#define JITTERS 4

static const struct jitter_kind {
    const char *attribute;
    enum cw_color_kind kind;
    double neutral; /* the amount that changes nothing */
    double least;   /* the least amount that there is */
} kinds[JITTERS] = {
    {"brightness", CW_COLOR_BRIGHTNESS, 1, 0},
    {"contrast", CW_COLOR_CONTRAST, 1, 0},
    {"saturation", CW_COLOR_SATURATION, 1, 0},
    {"hue", CW_COLOR_HUE, 0, -0.5},
};

struct color_jitter {
    struct jitter_range {
        bool used;
        double low, high;
    } ranges[JITTERS]; /* in the order of kinds */
};

static int color_jitter_range(const struct cw_op *op, const struct jitter_kind *k, struct jitter_range *ret,
                              struct cw_error *err)
{
    size_t n = cw_attr_len(op, k->attribute);
    double first = cw_attr_float_at(op, k->attribute, 0);
    ret->low = n == 2 ? first : CW_MAX(k->neutral - first, k->least);
    ret->high = n == 2 ? cw_attr_float_at(op, k->attribute, 1) : k->neutral + first;
    if (ret->low > ret->high)
        return cw_attr_error(op, k->attribute, err, n == 2 ? "[least, greatest]" : "a number from 0 on");
    ret->used = ret->low != k->neutral || ret->high != k->neutral;
    return 0;
}

static int color_jitter_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_color_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    struct color_jitter *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "color_jitter");
    for (int k = 0; k < JITTERS && r >= 0; k++)
        r = color_jitter_range(op, &kinds[k], &s->ranges[k], err);
    return r < 0 ? r : cw_image_bind_write(b, op, &type, err);
}

/* Sets ret to the drawn steps in their drawn order, and returns their number. */
static int color_jitter_draw(const struct cw_op *op, const struct cw_block *b, size_t row,
                             struct cw_color_step ret[JITTERS])
{
    const struct color_jitter *s = op->state;
    uint32_t word[8];
    int order[JITTERS] = {0, 1, 2, 3}, n = 0;
    cw_block_draw(b, op->index, row, 0, word);
    cw_block_draw(b, op->index, row, 1, word + 4);
    for (int t = 0; t < JITTERS - 1; t++) {
        int i = JITTERS - 1 - t, j = (int)cw_integer(word[4 + t], (uint64_t)i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
    for (int i = 0; i < JITTERS; i++) {
        int k = order[i];
        const struct jitter_range *range = &s->ranges[k];
        if (range->used)
            ret[n++] = (struct cw_color_step){kinds[k].kind,
                                              range->low + (range->high - range->low) * cw_uniform(word[k])};
    }
    return n;
}

static int color_jitter_image(const struct cw_op *op, struct cw_block *b, size_t row,
                              const struct cw_image_in *in, struct cw_error *err)
{
    struct cw_color_shape shape;
    struct cw_color_step steps[JITTERS];
    if (cw_color_shape_of(op, in, &shape, err) < 0)
        return CW_E_RECORD;
    int n = color_jitter_draw(op, b, row, steps);
    if (!n)
        return cw_image_each_copy(op, b, row, in, err);
    void *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    if (!dst)
        return err->status;
    for (int i = 0; i < n; i++)
        cw_color_apply(&steps[i], &shape, dst, i ? dst : in->pixels);
    return 0;
}

static int color_jitter_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, color_jitter_image, err);
}

#define JITTER_ATTR(name_, least_, most_, doc_) \
    {.name = name_, \
     .kind = CW_ATTR_FLOATS, \
     .def = "0", \
     .min = least_, \
     .max = most_, \
     .len_min = 1, \
     .len_max = 2, \
     .scalar_too = true, \
     .doc = doc_}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    JITTER_ATTR("brightness", 0, 1e6,
                "x: a factor from max(0, 1 - x) to 1 + x; [least, greatest]: from that range"),
    JITTER_ATTR("contrast", 0, 1e6, "the same, for the contrast"),
    JITTER_ATTR("saturation", 0, 1e6, "the same, for the saturation"),
    JITTER_ATTR("hue", -0.5, 0.5,
                "x: a shift from -x to x, in turns of the colour circle; [least, greatest]: from that range"),
    {0},
};

const struct cw_op_desc cw_op_color_jitter = {
    .name = "color_jitter",
    .summary = "changes brightness, contrast, saturation and hue of images, at random",
    .doc =
        "Each element draws the four amounts and the order of the four changes. An amount that can only be "
        "neutral (factor 1, shift 0) changes nothing.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_COLOUR, .random = true},
    .attrs = attrs,
    .bind = color_jitter_bind,
    .run = color_jitter_run,
    .free_state = free,
};
