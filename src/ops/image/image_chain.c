/* Runs image operators, a single one or a fused chain, over the rows of each image. The state is immutable.
 */
#include "ops/image/image_chain.h"

#include <stdlib.h>
#include <string.h>

#include "ops/image/image_annotations.h"
#include "ops/image/image_finish.h"

struct chain {                                                        /* immutable */
    const struct cw_op *ops[CW_IMAGE_LAYOUT + 1][CW_IMAGE_CHAIN_MAX]; /* by step, in order */
    unsigned n[CW_IMAGE_LAYOUT + 1];
    enum cw_dtype dtype; /* of pixels before the pixelwise operators */
    struct cw_port in, out;
};

static const struct cw_op *chain_decode(const struct chain *c)
{
    return c->ops[CW_IMAGE_DECODE][0]; /* NULL: none */
}

/* ---- which operators go together ---- */

/* Appends an operator to the chain; false: it can't be fused with the operators before it. */
static bool chain_add(struct chain *c, const struct cw_op *op)
{
    static const unsigned most[] = {[CW_IMAGE_DECODE] = 1,
                                    [CW_IMAGE_REGION] = CW_IMAGE_CHAIN_MAX,
                                    [CW_IMAGE_FLIP] = 1,
                                    [CW_IMAGE_PIXELWISE] = CW_IMAGE_CHAIN_MAX,
                                    [CW_IMAGE_LAYOUT] = 1};
    const struct cw_image_role *role = op->desc->image;
    if (!role || (role->fuses && !role->fuses(op)) || c->n[role->step] == most[role->step] ||
        (role->step == CW_IMAGE_DECODE && c->in.type.dtype != CW_BYTES))
        return false;
    for (int later = (int)role->step + 1; later <= CW_IMAGE_LAYOUT; later++)
        if (c->n[later])
            return false;
    for (unsigned i = 0; i < c->n[CW_IMAGE_REGION]; i++)
        if (role->resizes && c->ops[CW_IMAGE_REGION][i]->desc->image->resizes)
            return false;
    c->ops[role->step][c->n[role->step]++] = op;
    if (role->step < CW_IMAGE_PIXELWISE)
        c->dtype = op->out[0].type.dtype;
    c->out = op->out[0];
    return true;
}

static void chain_begin(struct chain *c, const struct cw_op *first)
{
    *c = (struct chain){.in = first->in[0], .dtype = first->in[0].type.dtype};
}

static bool chain_is_image(const struct cw_type *t)
{
    return t->dtype != CW_BYTES && (t->ndim == 3 || t->ndim == 2);
}

/* Whether an operator's ports are those of an image and its annotations, and fit a chain that has n_out
 * outputs so far. The chain makes annotations only together with the image. */
static bool chain_fits(const struct cw_op *op, unsigned n_out)
{
    return op->n_in == op->n_out && op->n_out >= 1 && n_out + op->n_out - 1 <= CW_OP_MAX_PORTS &&
           (op->out[0].live || !cw_annotations_live(op));
}

size_t cw_image_chain_match(const struct cw_op *const *ops, size_t n)
{
    if (!n || !ops[0]->desc->image || ops[0]->n_in < 1)
        return 0;
    struct chain c;
    chain_begin(&c, ops[0]);
    if (c.in.type.dtype != CW_BYTES &&
        !chain_is_image(&c.in.type)) /* cast accepts arrays that are not images */
        return 0;
    size_t i = 0;
    unsigned n_out = 1;
    while (i < n && i < CW_IMAGE_CHAIN_MAX && chain_fits(ops[i], n_out) &&
           (i == 0 || ops[i]->in[0].value == ops[i - 1]->out[0].value) && chain_add(&c, ops[i]))
        n_out += ops[i++]->n_out - 1;
    return i >= 2 ? i : 0;
}

/* ---- one record ---- */

struct plan {     /* of one image: the part that is cut from it, and how that is resized and flipped */
    int64_t h, w; /* of the whole image */
    int channels, ndim;
    struct cw_rect rect;        /* the part of the image that the result depends on */
    struct cw_rect crop;        /* the part that the first region operator cuts */
    struct cw_resize_spec spec; /* from rect to the result */
    bool resized, flip_y;
};

/* Plans the flips of an image of h x w, and moves the annotations of the operator that flips. */
static int chain_plan_flips(const struct cw_op *flip, struct cw_block *b, size_t row, int64_t h, int64_t w,
                            bool *ret_x, bool *ret_y, struct cw_error *err)
{
    flip->desc->image->flips(flip, b, row, ret_x, ret_y);
    struct cw_image_region region = {
        .rect = {.h = h, .w = w}, .out_h = h, .out_w = w, .flip_x = *ret_x, .flip_y = *ret_y};
    return flip->n_out > 1 ? cw_annotations_move_region(flip, b, row, h, w, &region, err) : 0;
}

/* Plans the cut and the resize of an image of h x w, and moves the annotations of the operator. */
static int chain_plan_region(const struct cw_op *op, struct cw_block *b, size_t row, int64_t h, int64_t w,
                             struct cw_image_geometry *ret, struct cw_error *err)
{
    int r = op->desc->image->geometry(op, b, row, h, w, ret, err);
    struct cw_image_region region = {.rect = ret->rect,
                                     .out_h = ret->resize ? ret->out_h : ret->rect.h,
                                     .out_w = ret->resize ? ret->out_w : ret->rect.w};
    return r < 0 || op->n_out == 1 ? r : cw_annotations_move_region(op, b, row, h, w, &region, err);
}

/* Plans the cuts, the resize and the flips of an image, and moves the annotations. If an operator can't be
 * applied, sets *ret_failed to it. */
static int chain_plan_regions(const struct chain *c, struct cw_block *b, size_t row, struct plan *p,
                              const struct cw_op **ret_failed, struct cw_error *err)
{
    const struct cw_op *flip = c->ops[CW_IMAGE_FLIP][0];
    struct cw_image_geometry g = {0}, resize = {0};
    struct cw_rect cut, *at = &p->rect; /* a part of the image; after a resize, a part of its result */
    bool flip_x = false;
    int r = 0;
    p->rect = (struct cw_rect){.h = p->h, .w = p->w};
    for (unsigned i = 0; i < c->n[CW_IMAGE_REGION]; i++) {
        const struct cw_op *op = c->ops[CW_IMAGE_REGION][i];
        r = chain_plan_region(op, b, row, at->h, at->w, &g, err);
        if (r < 0) {
            *ret_failed = op;
            return r;
        }
        if (i == 0)
            p->crop = g.rect;
        *at = (struct cw_rect){.y = at->y + g.rect.y, .x = at->x + g.rect.x, .h = g.rect.h, .w = g.rect.w};
        if (g.resize) {
            resize = g;
            at = &cut;
            cut = (struct cw_rect){.h = g.out_h, .w = g.out_w};
        }
    }
    p->resized = resize.resize;
    if (!p->resized)
        cut = (struct cw_rect){.h = p->rect.h, .w = p->rect.w};
    if (flip)
        r = chain_plan_flips(flip, b, row, cut.h, cut.w, &flip_x, &p->flip_y, err);
    p->spec = (struct cw_resize_spec){.in_h = p->rect.h,
                                      .in_w = p->rect.w,
                                      .out_h = p->resized ? resize.out_h : p->rect.h,
                                      .out_w = p->resized ? resize.out_w : p->rect.w,
                                      .channels = p->channels,
                                      .dtype = c->dtype,
                                      .interp = resize.interp,
                                      .antialias = resize.antialias,
                                      .cut_y = cut.y,
                                      .cut_x = cut.x,
                                      .cut_h = cut.h,
                                      .cut_w = cut.w,
                                      .flip_x = flip_x};
    *ret_failed = r < 0 ? flip : *ret_failed;
    return r;
}

/* Sets *ret to the part of the image that must be undamaged: the part that is cut by the crop that directly
 * follows decode_image in the pipeline as written; without such a crop, the whole image. */
static void chain_plan_needed(const struct chain *c, const struct cw_block *b, size_t row,
                              const struct plan *p, struct cw_rect *ret)
{
    const struct cw_op *crop = &((const struct cw_decode_image *)chain_decode(c)->state)->next;
    *ret = (struct cw_rect){.h = p->h, .w = p->w};
    if (!crop->desc || !crop->desc->image->crops)
        return;
    struct cw_image_geometry g;
    if (c->n[CW_IMAGE_REGION] && c->ops[CW_IMAGE_REGION][0]->index == crop->index)
        *ret = p->crop;
    else if (crop->desc->image->geometry(crop, b, row, p->h, p->w, &g, NULL) >= 0)
        *ret = g.rect;
    else
        *ret = (struct cw_rect){0}; /* nothing: the crop will fail the record */
}

struct record { /* one row that is being computed */
    const struct chain *c;
    struct cw_block *b;
    size_t row;
    struct plan plan;
    struct cw_image image; /* if the chain decodes: open */
    const uint8_t *src;    /* otherwise: the input's pixels */
    uint8_t *dst;
    const struct cw_op *failed;
};

/* Allocates the output before any scratch: the arena frees everything that is allocated after the mark. */
static int chain_record_output(struct record *r, struct cw_error *err)
{
    const struct cw_resize_spec *s = &r->plan.spec;
    int64_t hwc[3] = {s->cut_h, s->cut_w, r->plan.channels}, chw[3] = {r->plan.channels, s->cut_h, s->cut_w};
    r->dst = cw_block_row_out(r->b, r->c->out.value, &r->c->out.type, r->row,
                              r->c->n[CW_IMAGE_LAYOUT] ? chw : hwc, r->plan.ndim, err);
    return r->dst ? 0 : err ? err->status : CW_E_MEMORY;
}

struct resize_feed {
    struct cw_resize resize;
    const struct cw_row_sink *sink;
};

static void chain_feed_row(void *arg, int64_t y, const uint8_t *pixels)
{
    struct resize_feed *f = arg;
    cw_resize_row(&f->resize, y, pixels, f->resize.pad, f->sink);
}

static int chain_record_resize(struct record *r, const struct cw_row_sink *sink, struct cw_error *err)
{
    struct resize_feed feed = {.sink = sink};
    struct cw_resize *resize = &feed.resize;
    int e = cw_resize_plan(resize, &r->plan.spec, r->b->arena, err);
    if (e < 0)
        return e;
    struct cw_rect want = {.y = r->plan.rect.y + resize->y.first,
                           .x = r->plan.rect.x + resize->x.first,
                           .h = resize->y.used,
                           .w = resize->x.used};
    if (chain_decode(r->c)) {
        struct cw_rect needed;
        struct cw_image_rows rows = {.put = chain_feed_row, .arg = &feed, .slack = resize->pad};
        chain_plan_needed(r->c, r->b, r->row, &r->plan, &needed);
        r->failed = chain_decode(r->c);
        return cw_image_decode_rows(&r->image, &want, &needed, &rows, r->b->arena, err);
    }
    size_t stride = (size_t)r->plan.w * resize->pixel,
           first = (size_t)want.y * stride + (size_t)want.x * resize->pixel;
    size_t end = (size_t)(want.y + want.h - 1) * stride + (size_t)(want.x + want.w) * resize->pixel;
    cw_resize_run(resize, r->src + first, stride, (size_t)r->plan.h * stride - end, sink);
    return 0;
}

/* Decodes the rectangle directly into the output, unchanged. */
static int chain_record_decode(struct record *r, struct cw_error *err)
{
    struct cw_rect needed;
    size_t stride = (size_t)r->plan.rect.w * (size_t)r->plan.channels * cw_dtype_size(r->c->dtype);
    chain_plan_needed(r->c, r->b, r->row, &r->plan, &needed);
    r->failed = chain_decode(r->c);
    return cw_image_decode(&r->image, &r->plan.rect, &needed, r->dst, stride, r->b->arena, err);
}

/* Computes the pixels. The input is open, the plan is made, and the output is allocated. */
static int chain_record_pixels(struct record *r, struct cw_error *err)
{
    const struct cw_resize_spec *s = &r->plan.spec;
    struct cw_image_finish finish = {.pixel = r->c->ops[CW_IMAGE_PIXELWISE],
                                     .n_pixel = r->c->n[CW_IMAGE_PIXELWISE],
                                     .planar = r->c->n[CW_IMAGE_LAYOUT],
                                     .flip_y = r->plan.flip_y,
                                     .channels = r->plan.channels,
                                     .h = s->cut_h,
                                     .w = s->cut_w,
                                     .from = r->c->dtype,
                                     .to = r->c->out.type.dtype,
                                     .dst = r->dst,
                                     .err = err};
    if (chain_decode(r->c) && !r->plan.resized && !s->flip_x && !r->plan.flip_y &&
        cw_image_finish_is_copy(&finish))
        return chain_record_decode(r, err);
    struct cw_row_sink sink;
    int e = cw_image_finish_init(&finish, &sink, r->b->arena, err);
    if (e >= 0)
        e = chain_record_resize(r, &sink, err);
    if (e == 0 && finish.status < 0) {
        e = finish.status;
        r->failed = finish.failed;
    }
    return e;
}

/* Reduces the size at which the image is decoded, if the operator that follows allows it. */
static void chain_record_reduce(struct record *r, const struct cw_decode_image *d)
{
    struct cw_image_geometry g;
    int64_t h = r->image.height, w = r->image.width;
    int by = 1;
    if (!d->reduces || !d->next.desc || !d->next.desc->image->resizes ||
        d->next.desc->image->geometry(&d->next, r->b, r->row, h, w, &g, NULL) < 0)
        return;
    while (by < 8 && g.rect.h >= 2 * by * g.out_h && g.rect.w >= 2 * by * g.out_w)
        by *= 2;
    if (by > 1)
        cw_image_reduce(&r->image, by);
}

static int chain_record_open(struct record *r, const struct cw_op *op, struct cw_error *err)
{
    struct cw_tensor in = cw_block_row(r->b, r->c->in.value, r->row);
    struct plan *p = &r->plan;
    if (chain_decode(r->c)) {
        const struct cw_decode_image *d = chain_decode(r->c)->state;
        r->failed = chain_decode(r->c);
        int e = cw_image_open(&r->image, in.data, in.size, &d->options, err);
        if (e < 0)
            return e;
        r->image.memo = r->b->memo;
        chain_record_reduce(r, d);
        *p = (struct plan){
            .h = r->image.height, .w = r->image.width, .channels = r->image.channels, .ndim = 3};
        return 0;
    }
    *p = (struct plan){
        .h = in.dims[0], .w = in.dims[1], .channels = in.ndim == 3 ? (int)in.dims[2] : 1, .ndim = in.ndim};
    r->src = in.data;
    r->failed = op;
    return p->h < 1 || p->w < 1 || p->channels < 1 ? cw_error_set(err, CW_E_RECORD, "an image without pixels")
                                                   : 0;
}

/* Computes the pixels once more, after the image was decoded from wrong entry points. */
static int chain_record_again(struct record *r, struct cw_error *err)
{
    struct cw_tensor in = cw_block_row(r->b, r->c->in.value, r->row);
    const struct cw_image_options options = r->image.options;
    cw_image_close(&r->image);
    int e = cw_image_open(&r->image, in.data, in.size, &options, err);
    r->image.memo = r->b->memo;
    r->image.memo_wrong = true;
    return e < 0 ? e : chain_record_pixels(r, err);
}

/* Computes one row: the annotations, and the image if `pixels` says so. Returns 0; CW_E_RECORD: the record
 * fails, *ret_failed is the operator; another error ends the run. */
static int chain_record(const struct chain *c, const struct cw_op *op, struct cw_block *b, size_t row,
                        bool pixels, const struct cw_op **ret_failed, struct cw_error *err)
{
    struct record r;
    r.c = c;
    r.b = b;
    r.row = row;
    r.image.codec = NULL;
    int e = chain_record_open(&r, op, err);
    if (e >= 0)
        e = chain_plan_regions(c, b, row, &r.plan, &r.failed, err);
    if (e >= 0 && pixels)
        e = chain_record_output(&r, err);
    if (e >= 0 && pixels) {
        struct cw_arena_mark mark = cw_arena_mark(b->arena);
        e = chain_record_pixels(&r, err);
        if (e > 0) {
            cw_arena_release(b->arena, mark);
            e = chain_record_again(&r, err);
        }
        cw_arena_release(b->arena, mark);
    }
    cw_image_close(&r.image);
    *ret_failed = r.failed;
    return e;
}

/* ---- blocks ---- */

static int chain_run(const struct chain *c, const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    if (!out->live && !cw_annotations_live(op))
        return 0;
    int r = out->live ? cw_block_column(b, out->value, &out->type, err) : 0;
    if (r >= 0)
        r = cw_annotations_columns(op, b, err);
    CW_ROWS_OK(row, b, r >= 0)
    {
        struct cw_error e;
        e.status = 0;
        e.message[0] = 0;
        const struct cw_op *failed = op;
        r = chain_record(c, op, b, row, out->live, &failed, &e);
        if (r == CW_E_RECORD) {
            cw_block_fail(b, row, failed->desc->name, "%s", e.message);
            r = 0;
        } else if (r < 0) {
            cw_error_set(err, r, "%s", e.message);
            cw_error_op(err, failed ? failed->desc->name : op->desc->name);
        }
    }
    return r;
}

int cw_image_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    struct chain c;
    chain_begin(&c, op);
    if (!chain_add(&c, op))
        return cw_error_set(err, CW_E_BUG, "%s is no image operator", op->desc->name);
    return chain_run(&c, op, b, err);
}

static int chain_run_fused(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return chain_run(op->state, op, b, err);
}

static const struct cw_attr_def no_attrs[] = {{0}};

static const struct cw_op_desc fused = {
    .name = "image_chain",
    .summary = "several image operators in one pass",
    .kind = CW_OP_MAP,
    .attrs = no_attrs,
    .run = chain_run_fused,
    .free_state = free,
};

int cw_image_chain_new(const struct cw_op *const *ops, unsigned n, struct cw_op *ret, struct cw_error *err)
{
    if (cw_image_chain_match(ops, n) != n || n < 2)
        return 1;
    struct chain *c = malloc(sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "fused image operators");
    chain_begin(c, ops[0]);
    for (unsigned i = 0; i < n; i++)
        (void)chain_add(c, ops[i]); /* they match */
    *ret = (struct cw_op){.desc = &fused,
                          .occurrence = ops[0]->occurrence,
                          .position = ops[0]->position,
                          .index = ops[0]->index,
                          .n_in = 1,
                          .n_out = 1,
                          .state = c};
    ret->in[0] = ops[0]->in[0];
    ret->out[0] = ops[n - 1]->out[0];
    for (unsigned i = 0; i < n; i++)
        for (unsigned p = 1; p < ops[i]->n_out; p++) {
            ret->in[ret->n_in++] = ops[i]->in[p];
            ret->out[ret->n_out++] = ops[i]->out[p];
        }
    return 0;
}
