/* Shared by the bind functions of image operators: reading their attributes and checking their input. */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_annotations.h"

/* in the order of enum cw_interp */
const char *const cw_interp_names[] = {"nearest", "bilinear", "bicubic", NULL};

int cw_image_bind_read(struct cw_bind *b, struct cw_op *op, bool two_d, struct cw_type *ret,
                       struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component");
    int port = cw_bind_read(b, name, ret, err);
    if (port < 0)
        return port;
    if (ret->dtype != CW_BYTES && (ret->ndim == 3 || (two_d && ret->ndim == 2)))
        return 0;
    char type[160];
    cw_type_print(ret, type);
    return cw_attr_error(op, "component", err, "an image [height, width, channels]%s, but \"%s\" is %s%s",
                         two_d ? " or [height, width]" : "", name, type,
                         ret->dtype == CW_BYTES ? " (decode_image makes images)" : "");
}

int cw_image_bind_write(struct cw_bind *b, struct cw_op *op, const struct cw_type *type, struct cw_error *err)
{
    int port = cw_bind_write(b, cw_attr_string(op, "component"), type, err);
    return port < 0 ? port : cw_annotations_bind(b, op, type, err);
}

void cw_image_attr_size(const struct cw_op *op, int64_t *ret_h, int64_t *ret_w)
{
    *ret_h = cw_attr_int_at(op, "size", 0);
    *ret_w = cw_attr_int_at(op, "size", 1);
}

int cw_image_prepare_size(struct cw_op *op, struct cw_error *err)
{
    struct cw_image_size *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), op->desc->name);
    cw_image_attr_size(op, &s->h, &s->w);
    return 0;
}

int cw_image_size_check(const struct cw_image_size *s, int64_t h, int64_t w, struct cw_error *err)
{
    if (s->h <= h && s->w <= w)
        return 0;
    return cw_error_set(err, CW_E_RECORD,
                        "a crop of %lld x %lld does not fit an image of %lld x %lld (height x width)",
                        (long long)s->h, (long long)s->w, (long long)h, (long long)w);
}

struct cw_image_geometry cw_image_attr_resize(const struct cw_op *op)
{
    const char *name = cw_attr_string(op, "interpolation");
    struct cw_image_geometry g = {.resize = true, .antialias = cw_attr_bool(op, "antialias")};
    while (strcmp(name, cw_interp_names[g.interp]) != 0) /* the operator's table allows no other names */
        g.interp++;
    cw_image_attr_size(op, &g.out_h, &g.out_w);
    return g;
}

static int image_check_resizable(const struct cw_op *op, enum cw_dtype dtype, struct cw_error *err)
{
    if (dtype == CW_UINT8 || dtype == CW_UINT16 || dtype == CW_FLOAT32 || dtype == CW_FLOAT64)
        return 0;
    return cw_attr_error(op, "component", err,
                         "an image of uint8, uint16, float32 or float64 to resize, but \"%s\" is %s",
                         cw_attr_string(op, "component"), cw_dtype_name(dtype));
}

int cw_image_bind_region(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_image_bind_read(b, op, true, &type, err);
    if (r >= 0)
        r = op->desc->image->prepare(op, err);
    if (r >= 0 && op->desc->image->resizes)
        r = image_check_resizable(op, type.dtype, err);
    if (r < 0)
        return r;
    cw_image_attr_size(op, &type.dims[0], &type.dims[1]);
    return cw_image_bind_write(b, op, &type, err);
}
