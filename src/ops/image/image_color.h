/* Operators that change the colours of images of 1 or 3 channels: what their bind and run functions share.
 * docs/pixels.md defines the results. */
#pragma once
#include "ops/image/image_each.h"
#include "ops/kernels/color.h"

/* bind: reads the attribute `component` and checks that it is an image of 1 or 3 channels, if their number is
 * known, of dtype uint8 or, where float_too, float32. Returns its type. */
int cw_color_bind_read(struct cw_bind *b, struct cw_op *op, bool float_too, struct cw_type *ret,
                       struct cw_error *err) _must_check_;
/* run: sets ret to what the kernels need to know of an image. CW_E_RECORD: it has not 1 or 3 channels. */
int cw_color_shape_of(const struct cw_op *op, const struct cw_image_in *in, struct cw_color_shape *ret,
                      struct cw_error *err) _must_check_;

/* ---- operators with one step, the same for all elements; a draw decides which elements get it ---- */

/* bind: reads the image and declares the result, of the same type. p: share of the elements that get the
 * step. The state is freed by free(). */
int cw_color_bind(struct cw_bind *b, struct cw_op *op, const struct cw_color_step *step, double p,
                  bool float_too, struct cw_error *err) _must_check_;
/* The same for an image that is read already, with any type of result. */
int cw_color_bind_to(struct cw_bind *b, struct cw_op *op, const struct cw_color_step *step, double p,
                     const struct cw_type *type, struct cw_error *err) _must_check_;
/* cw_op_desc.run and cw_op_desc.draws of these operators. */
int cw_color_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
bool cw_color_draws(const json_t *attrs);

#define CW_COLOR_ATTR_COMPONENT \
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the image, of 1 or 3 channels"}
#define CW_COLOR_ATTR_P CW_IMAGE_ATTR_P("1", "probability that an element is changed")
