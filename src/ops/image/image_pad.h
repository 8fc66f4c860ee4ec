/* Pixels added at the edges of images: what pad_image and random_zoom_out share. */
#pragma once
#include "ops/image/image_annotations.h"
#include "ops/image/image_each.h"

enum cw_image_pad_mode {
    CW_IMAGE_PAD_CONSTANT,
    CW_IMAGE_PAD_EDGE,
    CW_IMAGE_PAD_REFLECT,
    CW_IMAGE_PAD_SYMMETRIC
};

struct cw_image_pad {
    int64_t left, top, right, bottom;
    enum cw_image_pad_mode mode;
};

/* The body of a cw_image_each_fn: adds pixels to an image, and moves its annotations. New pixels of masks are
 * 0 where those of the image are `fill`. */
int cw_image_pad(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                 const struct cw_image_pad *pad, const struct cw_image_fill *fill,
                 struct cw_error *err) _must_check_;
