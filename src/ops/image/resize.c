/* resize: an image to a fixed size. */
#include <stdlib.h>

#include "ops/image/image_annotations.h"

static int resize_geometry(const struct cw_op *op, const struct cw_block *b CW_UNUSED, size_t row CW_UNUSED,
                           int64_t h, int64_t w, struct cw_image_geometry *ret, struct cw_error *err)
{
    const struct cw_image_geometry *prepared = op->state;
    if (h < 1 || w < 1)
        return cw_error_set(err, CW_E_RECORD, "an image of %lld x %lld pixels is empty and can't be resized",
                            (long long)h, (long long)w);
    *ret = *prepared;
    ret->rect = (struct cw_rect){.h = h, .w = w};
    return 0;
}

static int resize_prepare(struct cw_op *op, struct cw_error *err)
{
    struct cw_image_geometry *prepared = op->state = calloc(1, sizeof(*prepared));
    if (!prepared)
        return cw_error_nomem(err, sizeof(*prepared), "resize");
    *prepared = cw_image_attr_resize(op);
    return 0;
}

static const struct cw_image_role role = {
    .step = CW_IMAGE_REGION, .resizes = true, .prepare = resize_prepare, .geometry = resize_geometry};

static const struct cw_attr_def attrs[] = {CW_IMAGE_ATTR_COMPONENT,    CW_IMAGE_ATTR_SIZE,
                                           CW_IMAGE_ATTR_INTERP,       CW_IMAGE_ATTR_ANTIALIAS,
                                           CW_IMAGE_ATTRS_ANNOTATIONS, {0}};

const struct cw_op_desc cw_op_resize = {
    .name = "resize",
    .summary = "resizes an image",
    .doc = "The aspect ratio is not kept. With `antialias` (as in Pillow and torchvision), shrinking "
           "averages over all pixels of the image. Without `antialias` (as in tf.image.resize and OpenCV), "
           "each result pixel is computed from the nearest 2 x 2 (bilinear) or 4 x 4 (bicubic) pixels. "
           "docs/pixels.md defines the arithmetic.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_NEIGHBOURHOOD,
    .attrs = attrs,
    .bind = cw_image_bind_region,
    .run = cw_image_run,
    .free_state = free,
    .image = &role,
};
