/* random_flip: images left-right and upside down, drawn per element. */
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/image_annotations.h"

struct random_flip {
    double horizontal, vertical;
};

static void random_flip_flips(const struct cw_op *op, const struct cw_block *b, size_t row,
                              bool *ret_horizontal, bool *ret_vertical)
{
    const struct random_flip *f = op->state;
    uint32_t word[4];
    cw_block_draw(b, op->index, row, 0, word);
    *ret_horizontal = cw_uniform(word[0]) < f->horizontal;
    *ret_vertical = cw_uniform(word[1]) < f->vertical;
}

static const struct cw_image_role role = {.step = CW_IMAGE_FLIP, .flips = random_flip_flips};

static int random_flip_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    struct random_flip *f = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "random_flip");
    op->state = f;
    f->horizontal = cw_attr_float(op, "horizontal");
    f->vertical = cw_attr_float(op, "vertical");
    return cw_image_bind_write(b, op, &type, err);
}

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT,
    {.name = "horizontal",
     .kind = CW_ATTR_FLOAT,
     .def = "0.5",
     .min = 0,
     .max = 1,
     .doc = "probability of a left-right flip"},
    {.name = "vertical",
     .kind = CW_ATTR_FLOAT,
     .def = "0",
     .min = 0,
     .max = 1,
     .doc = "probability of an upside-down flip"},
    CW_IMAGE_ATTRS_ANNOTATIONS,
    {0},
};

const struct cw_op_desc cw_op_random_flip = {
    .name = "random_flip",
    .summary = "flips images left-right or upside down, at random",
    .doc = "Each element draws both flips independently. Images are [height, width, channels] or [height, "
           "width].",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_SPATIAL, .random = true},
    .attrs = attrs,
    .bind = random_flip_bind,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
