/* center_crop: the middle of an image. */
#include <stdlib.h>

#include "ops/image/image_annotations.h"

static int center_crop_geometry(const struct cw_op *op, const struct cw_block *b CW_UNUSED,
                                size_t row CW_UNUSED, int64_t h, int64_t w, struct cw_image_geometry *ret,
                                struct cw_error *err)
{
    const struct cw_image_size *c = op->state;
    if (cw_image_size_check(c, h, w, err) < 0)
        return CW_E_RECORD;
    *ret = (struct cw_image_geometry){
        .rect = {.y = (h - c->h) / 2, .x = (w - c->w) / 2, .h = c->h, .w = c->w}};
    return 0;
}

static const struct cw_image_role role = {.step = CW_IMAGE_REGION,
                                          .crops = true,
                                          .prepare = cw_image_prepare_size,
                                          .geometry = center_crop_geometry};

static const struct cw_attr_def attrs[] = {
    CW_IMAGE_ATTR_COMPONENT, CW_IMAGE_ATTR_SIZE, CW_IMAGE_ATTRS_ANNOTATIONS, {0}};

const struct cw_op_desc cw_op_center_crop = {
    .name = "center_crop",
    .summary = "cuts the middle out of an image",
    .doc = "The crop begins at y = (height - h) div 2, x = (width - w) div 2. A crop larger than the "
           "image fails the record.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_SPATIAL,
    .attrs = attrs,
    .bind = cw_image_bind_region,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
