/* Shared by the augmentation policies: magnitudes, and the run of several augmentations in a row. */
#include "ops/image/image_augment.h"

#include <math.h>

#include "ops/image/warp.h"

int cw_augment_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_color_bind_read(b, op, false, &type, err);
    return r < 0 ? r : cw_image_bind_write(b, op, &type, err);
}

/* The largest magnitudes, by scale. */
static const struct {
    double shear, translate, rotate, blend, posterize;
    bool of_side; /* `translate` is a part of the image's width or height, not a number of pixels */
    int bits;     /* of posterize, for magnitude 0 */
} augment_most[] = {
    [CW_AUGMENT_NARROW] = {0.3, 150.0 / 331.0, 30, 0.9, 4, true, 8},
    [CW_AUGMENT_WIDE] = {0.99, 32, 135, 0.99, 6, false, 8},
    [CW_AUGMENT_MIX] = {0.3, 1.0 / 3.0, 30, 0.9, 4, true, 4},
};

/* Returns the magnitude in float32, as torch.linspace has it, but correctly rounded. */
static double augment_linear(const struct cw_augment_step *s, double most)
{
    double magnitude = (float)(most * s->bin / (s->bins - 1));
    return s->negative ? -magnitude : magnitude;
}

static double augment_translate(const struct cw_augment_step *s, int64_t side) /* pixels */
{
    double most = augment_most[s->scale].translate;
    return trunc(augment_linear(s, augment_most[s->scale].of_side ? most * (double)side : most));
}

/* Moves the places that pixels are computed from: px = X + shear[0] * Y - move[0], and py likewise. */
static void augment_warp(const struct cw_color_shape *shape, const double shear[2], const double move[2],
                         const double *angle, void *dst, const void *src)
{
    static const uint8_t black[3];
    struct cw_warp p = {.m = {1, shear[0], -move[0], shear[1], 1, -move[1]},
                        .dtype = CW_UINT8,
                        .interp = CW_NEAREST,
                        .channels = shape->channels,
                        .h = shape->h,
                        .w = shape->w,
                        .out_h = shape->h,
                        .out_w = shape->w,
                        .fill = black};
    if (angle)
        cw_warp_rotate(&p, *angle, NULL, false);
    cw_warp_image(&p, dst, src);
}

/* Computes one of the changes of places; false: the kind changes colours. */
static bool augment_place(const struct cw_augment_step *s, const struct cw_color_shape *shape, void *dst,
                          const void *src)
{
    double shear[2] = {0, 0}, move[2] = {0, 0}, angle;
    switch (s->kind) {
    case CW_AUGMENT_SHEAR_X:
    case CW_AUGMENT_SHEAR_Y:
        shear[s->kind == CW_AUGMENT_SHEAR_Y] = augment_linear(s, augment_most[s->scale].shear);
        break;
    case CW_AUGMENT_TRANSLATE_X:
        move[0] = augment_translate(s, shape->w);
        break;
    case CW_AUGMENT_TRANSLATE_Y:
        move[1] = augment_translate(s, shape->h);
        break;
    case CW_AUGMENT_ROTATE:
        angle = augment_linear(s, augment_most[s->scale].rotate);
        augment_warp(shape, shear, move, &angle, dst, src);
        return true;
    default:
        return false;
    }
    augment_warp(shape, shear, move, NULL, dst, src);
    return true;
}

static struct cw_color_step augment_color(const struct cw_augment_step *s)
{
    double factor = 1 + augment_linear(s, augment_most[s->scale].blend);
    switch (s->kind) {
    case CW_AUGMENT_BRIGHTNESS:
        return (struct cw_color_step){CW_COLOR_BRIGHTNESS, factor};
    case CW_AUGMENT_COLOR:
        return (struct cw_color_step){CW_COLOR_SATURATION, factor};
    case CW_AUGMENT_CONTRAST:
        return (struct cw_color_step){CW_COLOR_CONTRAST, factor};
    case CW_AUGMENT_SHARPNESS:
        return (struct cw_color_step){CW_COLOR_SHARPNESS, factor};
    case CW_AUGMENT_POSTERIZE: /* half to even */
        return (struct cw_color_step){CW_COLOR_POSTERIZE,
                                      augment_most[s->scale].bits -
                                          rint(augment_most[s->scale].posterize * s->bin / (s->bins - 1))};
    case CW_AUGMENT_SOLARIZE:
        return (struct cw_color_step){CW_COLOR_SOLARIZE, (float)(255 - 255.0 * s->bin / (s->bins - 1))};
    case CW_AUGMENT_AUTOCONTRAST:
        return (struct cw_color_step){.kind = CW_COLOR_AUTOCONTRAST};
    case CW_AUGMENT_EQUALIZE:
        return (struct cw_color_step){.kind = CW_COLOR_EQUALIZE};
    default:
        return (struct cw_color_step){.kind = CW_COLOR_INVERT};
    }
}

void cw_augment_apply(const struct cw_augment_step *step, int n, const struct cw_color_shape *shape,
                      void *dst, void *scratch, const void *src)
{
    for (int i = 0; i < n; i++) { /* between two buffers, of which the last step writes dst */
        void *to = (n - 1 - i) % 2 ? scratch : dst;
        if (!augment_place(&step[i], shape, to, src)) {
            struct cw_color_step color = augment_color(&step[i]);
            cw_color_apply(&color, shape, to, src);
        }
        src = to;
    }
}

int cw_augment_image(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                     cw_augment_fn *steps, struct cw_error *err)
{
    struct cw_color_shape shape;
    struct cw_augment_step step[CW_AUGMENT_STEPS_MAX];
    if (cw_color_shape_of(op, in, &shape, err) < 0)
        return CW_E_RECORD;
    int drawn = steps(op, b, row, step), n = 0;
    for (int i = 0; i < drawn; i++)
        if (step[i].kind != CW_AUGMENT_IDENTITY)
            step[n++] = step[i];
    if (n == 0)
        return cw_image_each_copy(op, b, row, in, err);
    void *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    struct cw_arena_mark mark = cw_arena_mark(b->arena);
    void *scratch = dst && n > 1 ? cw_block_alloc(b, (size_t)in->h * (size_t)in->w * in->pixel, err) : dst;
    if (!scratch)
        return err->status;
    cw_augment_apply(step, n, &shape, dst, scratch, in->pixels);
    cw_arena_release(b->arena, mark);
    return 0;
}
