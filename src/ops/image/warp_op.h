/*
 * What the operators that warp images share (rotate, random_rotation, affine, random_affine,
 * random_perspective): reading attributes, and running a warp for each image. The operator only makes the
 * map.
 */
#pragma once
#include "ops/image/image_annotations.h"
#include "ops/image/image_each.h"
#include "ops/image/warp.h"

struct cw_warp_op { /* the first member of the operator's state */
    enum cw_interp interp;
    struct cw_image_fill fill;
    bool has_centre;
    double centre[2];
    /* Sets the map of an image, and the size of the result; *p is complete otherwise. false: the image stays
     * as it is. */
    bool (*map)(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p);
};

/* bind: makes op->state, `size` bytes that begin with a struct cw_warp_op, and declares input and output.
 * varies: the size of the result is not that of the image. */
int cw_warp_bind(struct cw_bind *b, struct cw_op *op, size_t size, bool varies,
                 bool (*map)(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p),
                 struct cw_error *err) _must_check_;
/* cw_op_desc.run */
int cw_warp_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;

/* Returns the centre for cw_warp_rotate and cw_warp_affine. */
static inline const double *cw_warp_centre(const struct cw_warp_op *s)
{
    return s->has_centre ? s->centre : NULL;
}

/* Reads a range [low, high] from an attribute of two numbers, or of one number x: [-x, x]. */
int cw_warp_attr_range(const struct cw_op *op, const char *name, double ret[2],
                       struct cw_error *err) _must_check_;

/* Returns a number in the range from a word of a draw. */
static inline double cw_warp_uniform(const double range[2], double uniform)
{
    return range[0] + (range[1] - range[0]) * uniform;
}

#define CW_WARP_ATTR_INTERP(def_) \
    {.name = "interpolation", \
     .kind = CW_ATTR_STRING, \
     .def = def_, \
     .choices = cw_interp_names, \
     .doc = "what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear) or 4 x 4 " \
            "pixels (bicubic)"}
#define CW_WARP_ATTR_FILL \
    CW_IMAGE_ATTR_FILL("fill", "value of the result where it shows what is outside of the image")
#define CW_WARP_ATTR_CENTER \
    {.name = "center", \
     .kind = CW_ATTR_FLOATS, \
     .def = "[]", \
     .min = -1e6, \
     .max = 1e6, \
     .len_max = 2, \
     .doc = "[x, y] of the fixed point in pixels, from the top left corner; []: the middle of the image"}
#define CW_WARP_DEGREES 360 /* the largest angle of an attribute */
