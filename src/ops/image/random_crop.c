/* random_crop: a rectangle of fixed size anywhere in an image, drawn per element. */
#include <stdlib.h>

#include "base/philox.h"
#include "ops/image/image_annotations.h"

static int random_crop_geometry(const struct cw_op *op, const struct cw_block *b, size_t row, int64_t h,
                                int64_t w, struct cw_image_geometry *ret, struct cw_error *err)
{
    const struct cw_image_size *c = op->state;
    if (cw_image_size_check(c, h, w, err) < 0)
        return CW_E_RECORD;
    uint32_t word[4];
    cw_block_draw(b, op->index, row, 0, word);
    *ret = (struct cw_image_geometry){.rect = {.y = cw_integer(word[0], (uint64_t)(h - c->h + 1)),
                                               .x = cw_integer(word[1], (uint64_t)(w - c->w + 1)),
                                               .h = c->h,
                                               .w = c->w}};
    return 0;
}

static const struct cw_image_role role = {.step = CW_IMAGE_REGION,
                                          .crops = true,
                                          .prepare = cw_image_prepare_size,
                                          .geometry = random_crop_geometry};

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT, CW_IMAGE_ATTR_SIZE, CW_IMAGE_ATTRS_ANNOTATIONS, {0}};

const struct cw_op_desc cw_op_random_crop = {
    .name = "random_crop",
    .summary = "cuts a rectangle of fixed size at a random place out of an image",
    .doc = "All positions are equally likely. A crop larger than the image fails the record.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_SPATIAL, .random = true},
    .attrs = attrs,
    .bind = cw_image_bind_region,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
