/* center_crop: the middle of an image. */
#include <stdlib.h>

#include "ops/image_role.h"

struct center_crop { int64_t h, w; };

static int center_crop_geometry(const struct cw_op *op, const struct cw_block *b CW_UNUSED, size_t row CW_UNUSED, int64_t h, int64_t w,
                                struct cw_image_geometry *ret, struct cw_error *err)
{
    const struct center_crop *c = op->state;
    if (c->h > h || c->w > w)
        return cw_error_set(err, CW_E_RECORD, "a crop of %lld x %lld from an image of %lld x %lld (height x width)", (long long)c->h,
                            (long long)c->w, (long long)h, (long long)w);
    *ret = (struct cw_image_geometry){.rect = {.y = (h - c->h) / 2, .x = (w - c->w) / 2, .h = c->h, .w = c->w}};
    return 0;
}

static int center_crop_prepare(struct cw_op *op, struct cw_error *err)
{
    struct center_crop *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "center_crop");
    op->state = c;
    cw_image_attr_size(op, &c->h, &c->w);
    return 0;
}

static const struct cw_image_role role = {.step = CW_IMAGE_REGION, .crops = true, .prepare = center_crop_prepare,
                                          .geometry = center_crop_geometry};

static const struct cw_attr_def attrs[] = {CW_IMAGE_ATTR_COMPONENT, CW_IMAGE_ATTR_SIZE, {0}};

const struct cw_op_desc cw_op_center_crop = {
    .name = "center_crop",
    .summary = "the middle of an image",
    .doc = "y = (height - h) div 2, x = (width - w) div 2. A crop larger than the image fails the record.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = cw_image_bind_region,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
