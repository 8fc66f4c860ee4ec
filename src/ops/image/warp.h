/*
 * Warps: images whose pixels are computed from other places of an image, by an affine or a perspective map.
 * The results are those of Pillow's Image.transform, bit for bit (docs/pixels.md). Rotations, shears,
 * translations and the operators on top of them use these functions. No allocation, no state.
 */
#pragma once
#include "data/type.h"
#include "ops/kernels/resize.h"
#include "pipeline/op.h"

/* The centre of pixel (x, y) of the result, at X = x + 0.5 and Y = y + 0.5, is computed from the place
 * ((m0 X + m1 Y + m2) / d, (m3 X + m4 Y + m5) / d) of the image; d is 1, or m6 X + m7 Y + 1. */
struct cw_warp {
    double m[8];
    bool perspective;    /* d is m6 X + m7 Y + 1 */
    enum cw_dtype dtype; /* CW_UINT8 or CW_FLOAT32 */
    enum cw_interp interp;
    int channels;
    int64_t h, w, out_h, out_w; /* of the image and of the result: 1 to 2^31 - 1 */
    const void *fill;           /* a pixel of dtype: the result where the place is outside of the image */
};

/* Computes the result, rows one after the other. */
void cw_warp_image(const struct cw_warp *p, void *dst, const void *src);

/* Sets the map to a rotation, as Pillow's Image.rotate: by `angle` degrees counter-clockwise around the
 * centre (x, y), NULL for the middle of the image. Sets out_h and out_w: to the size of the image, or with
 * `expand` to the size of the rotated image. */
void cw_warp_rotate(struct cw_warp *p, double angle, const double centre[2], bool expand);

/* Sets the map as torchvision's `affine` does on Pillow images: rotates by `angle` degrees clockwise, shears
 * by shear[0] degrees along x and shear[1] along y, scales, all around the centre (x, y), NULL for the middle
 * of the image, and then moves by translate[0] to the right and translate[1] down, in pixels. */
void cw_warp_affine(struct cw_warp *p, double angle, const double translate[2], double scale,
                    const double shear[2], const double centre[2]);

/* Sets the map to the perspective that moves the corners of the image (the centres of its corner pixels: top
 * left, top right, bottom right, bottom left) to `corners`, each (x, y). false: there is none. */
bool cw_warp_perspective(struct cw_warp *p, const double corners[4][2]);
