/*
 * What an image operator does, in a form that can be fused: docs/pixels.md names the steps. An operator gives
 * its descriptor a role; image_chain.c runs one operator or a run of them, in one pass per row of pixels.
 */
#pragma once
#include "formats/image.h"
#include "ops/kernels/resize.h"
#include "pipeline/op.h"

enum cw_image_step {
    CW_IMAGE_DECODE, /* bytes to an image */
    CW_IMAGE_REGION, /* cuts and/or resizes */
    CW_IMAGE_FLIP,
    CW_IMAGE_PIXELWISE, /* each value by itself, given its channel */
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
    bool crops;   /* region: it cuts before anything else, so only what it cuts need be undamaged */
    bool resizes; /* region: it (also) resizes */
    /* Not every use can be fused; NULL: it can. */
    bool (*fuses)(const struct cw_op *op);
    /* Region: makes op->state from the attributes alone (bind does, and decode_image for the crop that
     * follows it). */
    int (*prepare)(struct cw_op *op, struct cw_error *err);
    /* Region, prepared: for an image of h x w. CW_E_RECORD with the reason when it can't. */
    int (*geometry)(const struct cw_op *op, const struct cw_block *b, size_t row, int64_t h, int64_t w,
                    struct cw_image_geometry *ret, struct cw_error *err);
    /* Flip. */
    void (*flips)(const struct cw_op *op, const struct cw_block *b, size_t row, bool *ret_horizontal,
                  bool *ret_vertical);
    /* Pixelwise: n pixels of as many channels from the input's dtype to the output's. CW_E_RECORD when the
     * channels don't fit. */
    int (*pixels)(const struct cw_op *op, void *dst, const void *src, size_t n, int channels,
                  struct cw_error *err);
};

/* For `cast`: pixelwise between the dtypes of its ports. */
extern const struct cw_image_role cw_image_role_cast;

/* ---- shared by the operators ---- */

/* State of decode_image. */
struct cw_decode_image {
    struct cw_image_options options;
    /* the crop that directly follows as written (a copy of its own, prepared); desc NULL: none. Only what it
     * cuts need be undamaged */
    struct cw_op crop;
};

/* State of normalize. */
struct cw_normalize {
    int channels;
    float *mean, *std; /* in values */
    float values[];
};
extern const struct cw_image_role cw_image_role_normalize;

/* bind: reads the attribute `component` and checks that it is an image, HWC or (where two_d) HW, of
 * fixed-size values. Returns its type. */
int cw_image_bind_read(struct cw_bind *b, struct cw_op *op, bool two_d, struct cw_type *ret,
                       struct cw_error *err) _must_check_;
/* bind: writes the component with the type. */
int cw_image_bind_write(struct cw_bind *b, struct cw_op *op, const struct cw_type *type,
                        struct cw_error *err) _must_check_;
/* The attribute size, [h, w]. */
void cw_image_attr_size(const struct cw_op *op, int64_t *ret_h, int64_t *ret_w);

/* State of the crops of fixed size; freed by `free`. */
struct cw_image_size {
    int64_t h, w;
};

int cw_image_prepare_size(struct cw_op *op, struct cw_error *err) _must_check_;
/* CW_E_RECORD: an image of h x w is too small for it. */
int cw_image_size_check(const struct cw_image_size *s, int64_t h, int64_t w,
                        struct cw_error *err) _must_check_;
/* The attributes size, interpolation and antialias; without a rectangle. */
struct cw_image_geometry cw_image_attr_resize(const struct cw_op *op);
/* bind of a region operator: prepares it, and declares the image in (two- or three-dimensional) and out, h x
 * w. */
int cw_image_bind_region(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* The table's entries for them. */
extern const char *const cw_interp_names[];
#define CW_IMAGE_ATTR_COMPONENT {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the image"}
#define CW_IMAGE_ATTR_SIZE \
    {.name = "size", \
     .kind = CW_ATTR_INTS, \
     .min = 1, \
     .max = 65535, \
     .len_min = 2, \
     .len_max = 2, \
     .doc = "[height, width] in pixels"}
#define CW_IMAGE_ATTR_INTERP \
    {.name = "interpolation", \
     .kind = CW_ATTR_STRING, \
     .def = "\"bilinear\"", \
     .choices = cw_interp_names, \
     .doc = "how result pixels are computed"}
#define CW_IMAGE_ATTR_ANTIALIAS \
    {.name = "antialias", \
     .kind = CW_ATTR_BOOL, \
     .def = "true", \
     .doc = "average over all pixels when shrinking (no effect with nearest)"}

/* run of every operator with a role: the one operator by itself. */
int cw_image_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
