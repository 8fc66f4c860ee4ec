/* Shared by the operators that change the colours of images: bind functions, and run for one step. */
#include "ops/image/image_color.h"

#include <stdlib.h>

#include "base/philox.h"

static bool color_channels(int64_t channels)
{
    return channels == 1 || channels == 3;
}

int cw_color_bind_read(struct cw_bind *b, struct cw_op *op, bool float_too, struct cw_type *ret,
                       struct cw_error *err)
{
    int r = cw_image_bind_read(b, op, true, ret, err);
    if (r < 0)
        return r;
    int64_t channels = ret->ndim == 3 ? ret->dims[2] : 1;
    if ((ret->dtype == CW_UINT8 || (float_too && ret->dtype == CW_FLOAT32)) &&
        (channels == CW_VARIES || color_channels(channels)))
        return 0;
    char type[160];
    return cw_attr_error(op, "component", err, "an image of uint8%s with 1 or 3 channels, but \"%s\" is %s",
                         float_too ? " or float32" : "", cw_attr_string(op, "component"),
                         cw_type_print(ret, type));
}

int cw_color_shape_of(const struct cw_op *op, const struct cw_image_in *in, struct cw_color_shape *ret,
                      struct cw_error *err)
{
    *ret = (struct cw_color_shape){
        .h = in->h, .w = in->w, .channels = in->channels, .is_float = op->in[0].type.dtype == CW_FLOAT32};
    return color_channels(in->channels)
               ? 0
               : cw_error_set(err, CW_E_RECORD, "an image of %d channels: expected 1 or 3", in->channels);
}

struct color_state {
    struct cw_color_step step;
    double p;
};

int cw_color_bind_to(struct cw_bind *b, struct cw_op *op, const struct cw_color_step *step, double p,
                     const struct cw_type *type, struct cw_error *err)
{
    struct color_state *s = op->state = malloc(sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), op->desc->name);
    *s = (struct color_state){.step = *step, .p = p};
    return cw_image_bind_write(b, op, type, err);
}

int cw_color_bind(struct cw_bind *b, struct cw_op *op, const struct cw_color_step *step, double p,
                  bool float_too, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_color_bind_read(b, op, float_too, &type, err);
    return r < 0 ? r : cw_color_bind_to(b, op, step, p, &type, err);
}

static bool color_drawn(const struct color_state *s, const struct cw_op *op, const struct cw_block *b,
                        size_t row)
{
    uint32_t word[4];
    if (s->p >= 1)
        return true;
    cw_block_draw(b, op->index, row, 0, word);
    return cw_uniform(word[0]) < s->p;
}

static int color_image(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                       struct cw_error *err)
{
    const struct color_state *s = op->state;
    const struct cw_port *out = &op->out[0];
    struct cw_color_shape shape;
    if (cw_color_shape_of(op, in, &shape, err) < 0)
        return CW_E_RECORD;
    if (!color_drawn(s, op, b, row))
        return cw_image_each_copy(op, b, row, in, err);
    int64_t channels = s->step.kind == CW_COLOR_GRAYSCALE ? (int64_t)s->step.value : in->channels;
    void *dst = cw_block_row_out(b, out->value, &out->type, row, (int64_t[]){in->h, in->w, channels},
                                 in->ndim, err);
    if (!dst)
        return err->status;
    cw_color_apply(&s->step, &shape, dst, in->pixels);
    return 0;
}

int cw_color_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, color_image, err);
}

bool cw_color_draws(const json_t *attrs)
{
    return json_number_value(json_object_get(attrs, "p")) < 1;
}
