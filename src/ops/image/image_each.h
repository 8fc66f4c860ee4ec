/*
 * Image operators that run by themselves, not in a chain (image_chain.h): a loop over the images of a block,
 * and the attribute `fill`. The operators' files call it.
 */
#pragma once
#include "ops/image/image_role.h"

struct cw_image_in { /* an image of a block: at least one pixel, rows one after the other */
    const uint8_t *pixels;
    int64_t h, w;
    int channels, ndim; /* ndim 2: [h, w], one channel */
    size_t pixel;       /* bytes of a pixel */
};

/* Computes the result for one image, in memory from cw_image_each_out, if the output is live, and moves the
 * annotations (image_annotations.h) of an operator that has them. CW_E_RECORD with the reason: the image
 * can't be computed. */
typedef int (*cw_image_each_fn)(const struct cw_op *op, struct cw_block *b, size_t row,
                                const struct cw_image_in *in, struct cw_error *err);

/* The body of `run`: calls fn for each image of input port 0 whose row is good. An image without pixels
 * fails. */
int cw_image_each(const struct cw_op *op, struct cw_block *b, cw_image_each_fn fn,
                  struct cw_error *err) _must_check_;
/* Returns the memory for the result of a row: an image of h x w of the output's dtype, with the channels and
 * the number of dimensions of the input. NULL: err says why. */
void *cw_image_each_out(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                        int64_t h, int64_t w, struct cw_error *err);
/* Makes the result a copy of the image. */
int cw_image_each_copy(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                       struct cw_error *err) _must_check_;
/* bind: checks that the image is uint8 or float32. */
int cw_image_bind_uint8_float32(const struct cw_op *op, const struct cw_type *type,
                                struct cw_error *err) _must_check_;

#define CW_IMAGE_FILL_MAX 64 /* channels */

struct cw_image_fill {
    int n; /* 1: the value of all channels; else the number of channels */
    double values[CW_IMAGE_FILL_MAX];
};

/* bind: reads an attribute with a value for all channels, or one for each, and checks that the type has these
 * values and channels. */
int cw_image_fill_bind(const struct cw_op *op, const char *attribute, const struct cw_type *type,
                       struct cw_image_fill *ret, struct cw_error *err) _must_check_;
/* Returns a pixel of the input's dtype with these values, in the block's memory. NULL: err says why; it is
 * CW_E_RECORD if the image has another number of channels. */
const void *cw_image_fill_pixel(const struct cw_image_fill *fill, const struct cw_op *op, struct cw_block *b,
                                const struct cw_image_in *in, struct cw_error *err);

#define CW_IMAGE_ATTR_FILL(name_, doc_) \
    {.name = name_, \
     .kind = CW_ATTR_FLOATS, \
     .def = "0", \
     .min = -1e30, \
     .max = 1e30, \
     .len_min = 1, \
     .len_max = CW_IMAGE_FILL_MAX, \
     .scalar_too = true, \
     .doc = doc_ ", per channel; a single number: of all channels"}
#define CW_IMAGE_ATTR_P(def_, doc_) \
    {.name = "p", .kind = CW_ATTR_FLOAT, .def = def_, .min = 0, .max = 1, .doc = doc_}
