/* Augmentations that rand_augment, trivial_augment, auto_augment and augmix choose from: their magnitudes,
 * and the run of several in a row. docs/pixels.md, "Augmentation policies", defines them. */
#pragma once
#include "ops/image/image_color.h"

enum cw_augment_kind {
    CW_AUGMENT_IDENTITY, /* with those up to EQUALIZE, what rand_augment and trivial_augment choose from */
    CW_AUGMENT_SHEAR_X,
    CW_AUGMENT_SHEAR_Y,
    CW_AUGMENT_TRANSLATE_X,
    CW_AUGMENT_TRANSLATE_Y,
    CW_AUGMENT_ROTATE,
    CW_AUGMENT_BRIGHTNESS,
    CW_AUGMENT_COLOR,
    CW_AUGMENT_CONTRAST,
    CW_AUGMENT_SHARPNESS,
    CW_AUGMENT_POSTERIZE,
    CW_AUGMENT_SOLARIZE,
    CW_AUGMENT_AUTOCONTRAST,
    CW_AUGMENT_EQUALIZE,
    CW_AUGMENT_INVERT,
};

#define CW_AUGMENT_KINDS CW_AUGMENT_INVERT /* that rand_augment and trivial_augment choose from */
#define CW_AUGMENT_STEPS_MAX 16

enum cw_augment_scale {
    CW_AUGMENT_NARROW, /* the magnitudes of rand_augment and auto_augment */
    CW_AUGMENT_WIDE,   /* of trivial_augment, which reach further */
    CW_AUGMENT_MIX,    /* of augmix */
};

struct cw_augment_step {
    enum cw_augment_kind kind;
    int bin, bins; /* magnitude: number bin of bins, from 0; bins >= 2 */
    bool negative; /* if the kind's magnitude has a sign */
    enum cw_augment_scale scale;
};

/* Sets ret to the steps that the row's draws give, in order, and returns their number. */
typedef int cw_augment_fn(const struct cw_op *op, const struct cw_block *b, size_t row,
                          struct cw_augment_step ret[CW_AUGMENT_STEPS_MAX]);

/* bind: reads a uint8 image and declares a result of its type. */
int cw_augment_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* Applies n >= 1 steps, one after the other, none of which is the identity. dst: the result; scratch: memory
 * of the image's size, not used if n is 1. */
void cw_augment_apply(const struct cw_augment_step *step, int n, const struct cw_color_shape *shape,
                      void *dst, void *scratch, const void *src);
/* run: computes an image by the steps, one after the other. */
int cw_augment_image(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                     cw_augment_fn *steps, struct cw_error *err) _must_check_;
