/*
 * Roles of image operators: descriptions of their work that image_chain.c can fuse. An operator's descriptor
 * points to its role. image_chain.c runs one operator, or several that follow one another, in one pass over
 * the rows of pixels. docs/pixels.md defines the results.
 */
#pragma once
#include "formats/image.h"
#include "ops/kernels/resize.h"
#include "pipeline/op.h"

enum cw_image_step {                  /* the steps of a chain, in this order */
                     CW_IMAGE_DECODE, /* bytes to an image */
                     CW_IMAGE_REGION, /* cuts and/or resizes */
                     CW_IMAGE_FLIP,
                     CW_IMAGE_PIXELWISE, /* changes each value by itself, depending on its channel */
                     CW_IMAGE_LAYOUT,    /* HWC to CHW */
};

struct cw_image_geometry { /* what a region operator does to one image: cuts rect, then resizes it */
    struct cw_rect rect;
    bool resize;
    int64_t out_h, out_w;
    enum cw_interp interp;
    bool antialias;
};

struct cw_image_role {
    enum cw_image_step step;
    bool crops;   /* region: the operator cuts first, so only the part that it cuts has to be undamaged */
    bool resizes; /* region: the operator resizes, with or without a cut before */
    /* Whether this operator, with its attributes, can be fused; NULL: always. */
    bool (*fuses)(const struct cw_op *op);
    /* Region: makes op->state from the attributes alone. Called by bind, and by decode_image for its copy of
     * the crop that follows it. */
    int (*prepare)(struct cw_op *op, struct cw_error *err);
    /* Region, after `prepare`: sets *ret to the rectangle and the size for an image of h x w. CW_E_RECORD
     * with the reason if that is impossible. */
    int (*geometry)(const struct cw_op *op, const struct cw_block *b, size_t row, int64_t h, int64_t w,
                    struct cw_image_geometry *ret, struct cw_error *err);
    /* Flip: which flips the row's draws give. */
    void (*flips)(const struct cw_op *op, const struct cw_block *b, size_t row, bool *ret_horizontal,
                  bool *ret_vertical);
    /* Pixelwise: converts n pixels with `channels` channels from src, of the input's dtype, to dst, of the
     * output's dtype. CW_E_RECORD if the number of channels does not fit the operator. */
    int (*pixels)(const struct cw_op *op, void *dst, const void *src, size_t n, int channels,
                  struct cw_error *err);
};

/* The role of `cast`: converts between the dtypes of its ports. */
extern const struct cw_image_role cw_image_role_cast;

/* ---- shared by the operators ---- */

/* State of decode_image. */
struct cw_decode_image {
    struct cw_image_options options;
    /* a prepared copy of the operator that directly follows in the pipeline as written, if it crops, or if it
     * resizes and `reduces` is set; desc NULL: there is none. Only the part that a crop cuts has to be
     * undamaged */
    struct cw_op next;
    bool reduces; /* decode at 1/2, 1/4 or 1/8 of the size what `next` makes at least that much smaller */
};

/* State of normalize. */
struct cw_normalize {
    int channels;
    float *mean, *std; /* `channels` each; they point into values */
    float values[];
};
extern const struct cw_image_role cw_image_role_normalize;

/* bind: reads the attribute `component` and checks that it is an image, HWC or (where two_d) HW, of
 * fixed-size values. Returns its type. */
int cw_image_bind_read(struct cw_bind *b, struct cw_op *op, bool two_d, struct cw_type *ret,
                       struct cw_error *err) _must_check_;
/* bind: writes the component with the type, and declares its annotations (image_annotations.h). */
int cw_image_bind_write(struct cw_bind *b, struct cw_op *op, const struct cw_type *type,
                        struct cw_error *err) _must_check_;
/* Reads the attribute `size`, [h, w]. */
void cw_image_attr_size(const struct cw_op *op, int64_t *ret_h, int64_t *ret_w);

/* The state of center_crop and random_crop; freed by free(). */
struct cw_image_size {
    int64_t h, w;
};

/* cw_image_role.prepare of these crops. */
int cw_image_prepare_size(struct cw_op *op, struct cw_error *err) _must_check_;
/* CW_E_RECORD: an image of h x w is too small for the crop. */
int cw_image_size_check(const struct cw_image_size *s, int64_t h, int64_t w,
                        struct cw_error *err) _must_check_;
/* Reads the attributes size, interpolation and antialias. The rectangle is left empty. */
struct cw_image_geometry cw_image_attr_resize(const struct cw_op *op);
/* bind of a region operator: prepares its state, reads an image of two or three dimensions, and declares the
 * result, of h x w. */
int cw_image_bind_region(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* Attributes that several image operators have, for their tables. */
extern const char *const cw_interp_names[];
#define CW_IMAGE_ATTR_COMPONENT {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the image"}
#define CW_IMAGE_ATTR_SIZE \
    {.name = "size", \
     .kind = CW_ATTR_INTS, \
     .min = 1, \
     .max = 65535, \
     .len_min = 2, \
     .len_max = 2, \
     .scalar_too = true, \
     .doc = "[height, width] in pixels; a single number: both"}
#define CW_IMAGE_ATTR_INTERP \
    {.name = "interpolation", \
     .kind = CW_ATTR_STRING, \
     .def = "\"bilinear\"", \
     .choices = cw_interp_names, \
     .doc = "what a result pixel is computed from: the nearest pixel, 2 x 2 pixels (bilinear) or 4 x 4 " \
            "pixels (bicubic); from more with antialias"}
#define CW_IMAGE_ATTR_ANTIALIAS \
    {.name = "antialias", \
     .kind = CW_ATTR_BOOL, \
     .def = "true", \
     .doc = "true: when shrinking, compute result pixels from all pixels of the image (no effect with " \
            "nearest)"}

/* cw_op_desc.run of every operator with a role: runs that operator alone. */
int cw_image_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
