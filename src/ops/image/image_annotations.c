/* Moves boxes, masks and keypoints as an image operator moves the pixels of their image. */
#include "ops/image/image_annotations.h"

/* ---- bind ---- */

struct annotation_kind {
    const char *attribute, *expected;
    enum cw_dtype dtype;
    int64_t values; /* length of the last dimension; 0: masks */
};

/* In this order the components are ports 1, 2, ... of the operator. */
static const struct annotation_kind annotation_kinds[] = {
    {"boxes", "float32[?,4]", CW_FLOAT32, 4},
    {"masks", "uint8[?,?] or uint8[?,?,?]", CW_UINT8, 0},
    {"keypoints", "float32[?,2]", CW_FLOAT32, 2},
};

static bool annotation_fits(const struct annotation_kind *kind, const struct cw_type *t)
{
    if (t->dtype != kind->dtype)
        return false;
    if (!kind->values)
        return t->ndim == 2 || t->ndim == 3;
    return t->ndim == 2 && (t->dims[1] == kind->values || t->dims[1] == CW_VARIES);
}

int cw_annotations_read(struct cw_bind *b, const struct cw_op *op, const char *attribute, const char *name,
                        struct cw_type *ret, struct cw_error *err)
{
    int port = cw_bind_read(b, name, ret, err);
    if (port < 0)
        return port;
    bool twice = (unsigned)port != op->n_out;
    for (unsigned p = 0; p < op->n_out; p++)
        twice |= op->out[p].value == op->in[port].value;
    return twice ? cw_attr_error(op, attribute, err, "each component once, but \"%s\" is named twice", name)
                 : 0;
}

static int annotation_bind(struct cw_bind *b, struct cw_op *op, const struct annotation_kind *kind,
                           const char *name, const struct cw_type *image, struct cw_error *err)
{
    struct cw_type type;
    char text[160];
    int r = cw_annotations_read(b, op, kind->attribute, name, &type, err);
    if (r < 0)
        return r;
    if (!annotation_fits(kind, &type))
        return cw_attr_error(op, kind->attribute, err, "%s, but \"%s\" is %s", kind->expected, name,
                             cw_type_print(&type, text));
    if (kind->values) {
        type.dims[1] = kind->values;
    } else {
        type.dims[type.ndim - 2] = image->dims[0];
        type.dims[type.ndim - 1] = image->dims[1];
    }
    r = cw_bind_write(b, name, &type, err);
    return CW_MIN(r, 0);
}

int cw_annotations_bind(struct cw_bind *b, struct cw_op *op, const struct cw_type *image,
                        struct cw_error *err)
{
    int r = 0;
    for (size_t k = 0; k < CW_COUNT_OF(annotation_kinds); k++) {
        const struct annotation_kind *kind = &annotation_kinds[k];
        size_t n = cw_attr_json(op, kind->attribute) ? cw_attr_len(op, kind->attribute) : 0;
        for (size_t i = 0; i < n && r >= 0; i++)
            r = annotation_bind(b, op, kind, cw_attr_string_at(op, kind->attribute, i), image, err);
    }
    return r;
}

/* ---- run ---- */

bool cw_annotations_live(const struct cw_op *op)
{
    bool live = false;
    for (unsigned p = 1; p < op->n_out; p++)
        live |= op->out[p].live;
    return live;
}

int cw_annotations_columns(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    int r = 0;
    for (unsigned p = 1; p < op->n_out && r >= 0; p++)
        if (op->out[p].live)
            r = cw_block_column(b, op->out[p].value, &op->out[p].type, err);
    return r;
}

/* Returns the name of the component of a port. */
static const char *annotation_name(const struct cw_op *op, unsigned port)
{
    size_t i = port - 1, k = 0;
    while (i >= cw_attr_len(op, annotation_kinds[k].attribute))
        i -= cw_attr_len(op, annotation_kinds[k++].attribute);
    return cw_attr_string_at(op, annotation_kinds[k].attribute, i);
}

/* Sets ret to the new place of a point. Returns d: points on both sides of a perspective's horizon have other
 * signs. */
static double annotation_point(const struct cw_image_move *move, double x, double y, double ret[2])
{
    const double *m = move->m, d = m[6] * x + m[7] * y + m[8];
    ret[0] = (m[0] * x + m[1] * y + m[2]) / d;
    ret[1] = (m[3] * x + m[4] * y + m[5]) / d;
    return d;
}

static double annotation_clip(double v, int64_t most)
{
    return v<0 ? 0 : v>(double) most ? (double)most : v;
}

/* The box around the four moved corners, clipped to the result. The whole result if a horizon crosses it. */
static void annotation_box(const struct cw_image_move *move, float dst[4], const float src[4])
{
    double lo[2], hi[2], at[2], first = 0;
    bool crossed = false;
    for (int k = 0; k < 4; k++) {
        double d = annotation_point(move, (double)src[k == 1 || k == 2 ? 2 : 0], (double)src[k >= 2 ? 3 : 1],
                                    at);
        first = k ? first : d;
        crossed |= d * first <= 0;
        for (int i = 0; i < 2; i++) {
            lo[i] = k && !(at[i] < lo[i]) ? lo[i] : at[i];
            hi[i] = k && !(at[i] > hi[i]) ? hi[i] : at[i];
        }
    }
    for (int i = 0; i < 2; i++) {
        int64_t most = i ? move->out_h : move->out_w;
        dst[i] = (float)(crossed ? 0 : annotation_clip(lo[i], most));
        dst[i + 2] = (float)(crossed ? (double)most : annotation_clip(hi[i], most));
    }
}

static void annotation_keypoint(const struct cw_image_move *move, float dst[2], const float src[2])
{
    double at[2];
    annotation_point(move, (double)src[0], (double)src[1], at);
    dst[0] = (float)at[0];
    dst[1] = (float)at[1];
}

static int annotation_points(const struct cw_op *op, struct cw_block *b, size_t row, unsigned port,
                             const struct cw_image_move *move, struct cw_error *err)
{
    struct cw_tensor in = cw_in(op, b, port, row);
    const struct cw_type *type = &op->out[port].type;
    if (in.dims[1] != type->dims[1])
        return cw_error_set(err, CW_E_RECORD, "\"%s\" is [%lld, %lld]: expected [n, %lld]",
                            annotation_name(op, port), (long long)in.dims[0], (long long)in.dims[1],
                            (long long)type->dims[1]);
    float *dst = cw_block_row_out(b, op->out[port].value, type, row, in.dims, 2, err);
    const float *src = in.data;
    if (!dst)
        return err->status;
    for (int64_t i = 0; i < in.dims[0]; i++)
        if (type->dims[1] == 4)
            annotation_box(move, dst + 4 * i, src + 4 * i);
        else
            annotation_keypoint(move, dst + 2 * i, src + 2 * i);
    return 0;
}

static int annotation_masks(const struct cw_op *op, struct cw_block *b, size_t row, unsigned port,
                            const struct cw_image_move *move, struct cw_error *err)
{
    struct cw_tensor in = cw_in(op, b, port, row);
    int64_t *hw = in.dims + in.ndim - 2, n = in.ndim == 3 ? in.dims[0] : 1;
    if (hw[0] != move->h || hw[1] != move->w)
        return cw_error_set(err, CW_E_RECORD,
                            "\"%s\" has masks of %lld x %lld, but the image is %lld x %lld (height x width)",
                            annotation_name(op, port), (long long)hw[0], (long long)hw[1], (long long)move->h,
                            (long long)move->w);
    hw[0] = move->out_h;
    hw[1] = move->out_w;
    uint8_t *dst = cw_block_row_out(b, op->out[port].value, &op->out[port].type, row, in.dims, in.ndim, err);
    if (!dst)
        return err->status;
    struct cw_arena_mark mark = cw_arena_mark(b->arena);
    int r = 0;
    for (int64_t i = 0; i < n && r >= 0; i++) {
        r = move->mask(move, dst + i * move->out_h * move->out_w,
                       (const uint8_t *)in.data + i * move->h * move->w, b->arena, err);
        cw_arena_release(b->arena, mark);
    }
    return r;
}

int cw_annotations_move(const struct cw_op *op, struct cw_block *b, size_t row,
                        const struct cw_image_move *move, struct cw_error *err)
{
    int r = 0;
    for (unsigned p = 1; p < op->n_out && r >= 0; p++)
        if (op->out[p].live)
            r = op->out[p].type.dtype == CW_UINT8 ? annotation_masks(op, b, row, p, move, err)
                                                  : annotation_points(op, b, row, p, move, err);
    return r;
}

/* ---- regions ---- */

static int region_mask(const struct cw_image_move *move, uint8_t *dst, const uint8_t *src,
                       struct cw_arena *arena, struct cw_error *err)
{
    const struct cw_image_region *g = move->how;
    struct cw_resize_spec spec = {.in_h = g->rect.h,
                                  .in_w = g->rect.w,
                                  .out_h = g->out_h,
                                  .out_w = g->out_w,
                                  .channels = 1,
                                  .dtype = CW_UINT8,
                                  .interp = CW_NEAREST,
                                  .cut_h = g->out_h,
                                  .cut_w = g->out_w,
                                  .flip_x = g->flip_x};
    struct cw_row_sink sink = {.direct = dst + (g->flip_y ? (g->out_h - 1) * g->out_w : 0),
                               .stride = (ptrdiff_t)(g->flip_y ? -g->out_w : g->out_w)};
    struct cw_resize resize;
    int r = cw_resize_plan(&resize, &spec, arena, err);
    if (r < 0)
        return r;
    size_t first = (size_t)((g->rect.y + resize.y.first) * move->w + g->rect.x + resize.x.first),
           end = (size_t)((g->rect.y + resize.y.first + resize.y.used - 1) * move->w + g->rect.x +
                          resize.x.first + resize.x.used);
    cw_resize_run(&resize, src + first, (size_t)move->w, (size_t)(move->h * move->w) - end, &sink);
    return 0;
}

int cw_annotations_move_region(const struct cw_op *op, struct cw_block *b, size_t row, int64_t h, int64_t w,
                               const struct cw_image_region *region, struct cw_error *err)
{
    double across = (double)region->out_w / (double)region->rect.w,
           down = (double)region->out_h / (double)region->rect.h;
    double x = -(double)region->rect.x * across, y = -(double)region->rect.y * down;
    struct cw_image_move move = {
        .h = h,
        .w = w,
        .out_h = region->out_h,
        .out_w = region->out_w,
        .m = {region->flip_x ? -across : across, 0, region->flip_x ? (double)region->out_w - x : x, 0,
              region->flip_y ? -down : down, region->flip_y ? (double)region->out_h - y : y, 0, 0, 1},
        .mask = region_mask,
        .how = region};
    return cw_annotations_move(op, b, row, &move, err);
}

int cw_annotations_copy(const struct cw_op *op, struct cw_block *b, size_t row, int64_t h, int64_t w,
                        struct cw_error *err)
{
    const struct cw_image_region all = {.rect = {.h = h, .w = w}, .out_h = h, .out_w = w};
    return cw_annotations_move_region(op, b, row, h, w, &all, err);
}
