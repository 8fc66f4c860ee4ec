/*
 * The components that belong to an image and move with it: boxes, masks and keypoints. Operators that move
 * pixels have attributes for their names. The operator describes how places move; image_annotations.c moves
 * the annotations. docs/pixels.md, section "Boxes, masks and keypoints", defines the results.
 */
#pragma once
#include "ops/image/image_role.h"

/* Where the places of an image are in the result. Places are in pixels from the top left corner; the centre
 * of the first pixel is (0.5, 0.5). */
struct cw_image_move {
    int64_t h, w, out_h, out_w; /* of the image and of the result */
    /* (x, y) moves to ((m0 x + m1 y + m2) / d, (m3 x + m4 y + m5) / d); d is m6 x + m7 y + m8 */
    double m[9];
    /* Moves a mask: computes a plane of out_h x out_w bytes from one of h x w. `how` is the operator's. */
    int (*mask)(const struct cw_image_move *move, uint8_t *dst, const uint8_t *src, struct cw_arena *arena,
                struct cw_error *err);
    const void *how;
};

/* What cuts, resizes and flips do: rect is cut, resized to the size of the result, and then flipped. */
struct cw_image_region {
    struct cw_rect rect;
    int64_t out_h, out_w;
    bool flip_x, flip_y;
};

/* bind, after the image was written: reads the attributes, if the operator has them, and declares each
 * component as an input and an output. image: the type of the result. */
int cw_annotations_bind(struct cw_bind *b, struct cw_op *op, const struct cw_type *image,
                        struct cw_error *err) _must_check_;
/* bind: declares an input of an operator that has written as many outputs as it has inputs, and sets *ret to
 * its type. The component must be none of those that the operator has read or written. */
int cw_annotations_read(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *name,
                        struct cw_type *ret, struct cw_error *err) _must_check_;
/* Returns whether the operator has annotations that are needed. */
bool cw_annotations_live(const struct cw_op *op);
/* run: makes the columns of the annotations. */
int cw_annotations_columns(const struct cw_op *op, struct cw_block *b, struct cw_error *err) _must_check_;
/* run: moves the annotations of a row. CW_E_RECORD: an annotation does not fit the image. */
int cw_annotations_move(const struct cw_op *op, struct cw_block *b, size_t row,
                        const struct cw_image_move *move, struct cw_error *err) _must_check_;
/* The same for a region of an image of h x w. */
int cw_annotations_move_region(const struct cw_op *op, struct cw_block *b, size_t row, int64_t h, int64_t w,
                               const struct cw_image_region *region, struct cw_error *err) _must_check_;
/* The same for an image of h x w whose pixels stay where they are: boxes are clipped. */
int cw_annotations_copy(const struct cw_op *op, struct cw_block *b, size_t row, int64_t h, int64_t w,
                        struct cw_error *err) _must_check_;

#define CW_IMAGE_ATTRS_ANNOTATIONS \
    {.name = "boxes", \
     .kind = CW_ATTR_STRINGS, \
     .def = "[]", \
     .scalar_too = true, \
     .doc = \
         "components with boxes of the image, which move with it: float32 [n, 4], x0 y0 x1 y1 in pixels"}, \
        {.name = "masks", \
         .kind = CW_ATTR_STRINGS, \
         .def = "[]", \
         .scalar_too = true, \
         .doc = "components with masks of the image, which move with it: uint8 [height, width] or [n, " \
                "height, width]"}, \
        {.name = "keypoints", \
         .kind = CW_ATTR_STRINGS, \
         .def = "[]", \
         .scalar_too = true, \
         .doc = "components with points of the image, which move with it: float32 [n, 2], x y in pixels"}
