/* What the operators that warp images share. */
#include "ops/image/warp_op.h"

#include <stdlib.h>
#include <string.h>

static int warp_op_attrs(const struct cw_op *op, const struct cw_type *type, struct cw_error *err)
{
    struct cw_warp_op *s = op->state;
    const char *name = cw_attr_string(op, "interpolation");
    while (strcmp(name, cw_interp_names[s->interp]) != 0) /* the operator's table allows no other names */
        s->interp++;
    size_t n = cw_attr_json(op, "center") ? cw_attr_len(op, "center") : 0;
    if (n == 1)
        return cw_attr_error(op, "center", err, "[x, y], or [] for the middle of the image");
    s->has_centre = n == 2;
    for (size_t i = 0; i < n; i++)
        s->centre[i] = cw_attr_float_at(op, "center", i);
    return cw_image_fill_bind(op, "fill", type, &s->fill, err);
}

int cw_warp_bind(struct cw_bind *b, struct cw_op *op, size_t size, bool varies,
                 bool (*map)(const struct cw_op *op, const struct cw_block *b, size_t row, struct cw_warp *p),
                 struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r >= 0)
        r = cw_image_bind_uint8_float32(op, &type, err);
    if (r < 0)
        return r;
    struct cw_warp_op *s = op->state = calloc(1, size);
    if (!s)
        return cw_error_nomem(err, size, op->desc->name);
    s->map = map;
    r = warp_op_attrs(op, &type, err);
    if (r < 0)
        return r;
    if (varies)
        type.dims[0] = type.dims[1] = CW_VARIES;
    return cw_image_bind_write(b, op, &type, err);
}

int cw_warp_attr_range(const struct cw_op *op, const char *name, double ret[2], struct cw_error *err)
{
    size_t n = cw_attr_len(op, name);
    ret[0] = cw_attr_float_at(op, name, 0);
    ret[1] = n == 2 ? cw_attr_float_at(op, name, 1) : ret[0];
    if (n == 1 && ret[0] < 0)
        return cw_attr_error(op, name, err, "a number that is not negative, or [low, high]");
    if (n == 1)
        ret[0] = -ret[0];
    return ret[0] <= ret[1] ? 0 : cw_attr_error(op, name, err, "[low, high] with low <= high");
}

/* ---- annotations ---- */

static int warp_op_mask(const struct cw_image_move *move, uint8_t *dst, const uint8_t *src,
                        struct cw_arena *arena, struct cw_error *err)
{
    struct cw_warp p = *(const struct cw_warp *)move->how;
    (void)arena;
    (void)err;
    p.dtype = CW_UINT8;
    p.interp = CW_NEAREST;
    p.channels = 1;
    p.fill = &(uint8_t){0};
    cw_warp_image(&p, dst, src);
    return 0;
}

/* The map of a warp says where a place of the result comes from. Places of annotations move the other way, by
 * the inverse: the adjugate matrix, because a common factor makes no difference. */
static int warp_op_annotations(const struct cw_op *op, struct cw_block *b, size_t row,
                               const struct cw_warp *p, struct cw_error *err)
{
    const double *m = p->m, m6 = p->perspective ? m[6] : 0, m7 = p->perspective ? m[7] : 0;
    struct cw_image_move move = {.h = p->h,
                                 .w = p->w,
                                 .out_h = p->out_h,
                                 .out_w = p->out_w,
                                 .m = {m[4] - m[5] * m7, m[2] * m7 - m[1], m[1] * m[5] - m[2] * m[4],
                                       m[5] * m6 - m[3], m[0] - m[2] * m6, m[2] * m[3] - m[0] * m[5],
                                       m[3] * m7 - m[4] * m6, m[1] * m6 - m[0] * m7,
                                       m[0] * m[4] - m[1] * m[3]},
                                 .mask = warp_op_mask,
                                 .how = p};
    return cw_annotations_move(op, b, row, &move, err);
}

/* ---- run ---- */

static int warp_op_one(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                       struct cw_error *err)
{
    const struct cw_warp_op *s = op->state;
    struct cw_warp p = {.dtype = op->in[0].type.dtype,
                        .interp = s->interp,
                        .channels = in->channels,
                        .h = in->h,
                        .w = in->w,
                        .out_h = in->h,
                        .out_w = in->w};
    bool moved = s->map(op, b, row, &p);
    int r = cw_annotations_live(op) && moved ? warp_op_annotations(op, b, row, &p, err)
            : cw_annotations_live(op)        ? cw_annotations_copy(op, b, row, in->h, in->w, err)
                                             : 0;
    if (r < 0 || !op->out[0].live)
        return r;
    p.fill = cw_image_fill_pixel(&s->fill, op, b, in, err);
    if (!p.fill)
        return err->status;
    if (!moved)
        return cw_image_each_copy(op, b, row, in, err);
    void *dst = cw_image_each_out(op, b, row, in, p.out_h, p.out_w, err);
    if (!dst)
        return err->status;
    cw_warp_image(&p, dst, in->pixels);
    return 0;
}

int cw_warp_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, warp_op_one, err);
}
