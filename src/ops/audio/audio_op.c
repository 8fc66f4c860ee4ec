/* What operators on audio share when they are bound. */
#include "ops/audio/audio_op.h"

int cw_audio_bind_read(struct cw_bind *b, const struct cw_op *op, int min_ndim, int max_ndim,
                       struct cw_type *ret, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component");
    char shown[160];
    int r = cw_bind_read(b, name, ret, err);
    if (r < 0)
        return r;
    if (ret->dtype != CW_FLOAT32 || ret->ndim < min_ndim || ret->ndim > max_ndim)
        return cw_attr_error(op, "component", err, "float32 with %d%s dimension%s, but \"%s\" is %s",
                             min_ndim,
                             min_ndim == max_ndim ? ""
                             : max_ndim == 2      ? " or 2"
                                                  : " or more",
                             max_ndim == 1 ? "" : "s", name, cw_type_print(ret, shown));
    return 0;
}

int cw_audio_bind_library(const struct cw_op *op, const char *library, const char *package,
                          struct cw_error *err)
{
    if (!library)
        return 0;
    cw_error_op(err, op->desc->name);
    return cw_error_set(err, CW_E_PIPELINE,
                        "%s: this build of Cachew has no %s: install its headers (on Debian %s) and build "
                        "Cachew again",
                        op->desc->name, library, package);
}

int cw_audio_bind_range(const struct cw_op *op, const char *attribute, double ret[2], struct cw_error *err)
{
    ret[0] = cw_attr_float_at(op, attribute, 0);
    ret[1] = cw_attr_float_at(op, attribute, cw_attr_len(op, attribute) - 1);
    if (ret[0] > ret[1])
        return cw_attr_error(op, attribute, err, "the smaller number first");
    return 0;
}
