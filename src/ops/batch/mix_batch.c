/* What mixup and cutmix share. */
#include "ops/batch/mix_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/gamma.h"
#include "base/math.h"
#include "base/philox.h"
#include "data/convert.h"

int cw_mix_bind(struct cw_bind *b, struct cw_op *op, const struct cw_type *type, struct cw_error *err)
{
    const char *component = cw_attr_string(op, "component"), *label = cw_attr_string(op, "label");
    struct cw_type labels;
    struct cw_mix *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), op->desc->name);
    s->alpha = cw_attr_float(op, "alpha");
    s->classes = cw_attr_int(op, "classes");
    if (strcmp(component, label) == 0)
        return cw_attr_error(op, "label", err, "another component than the images");
    int r = cw_bind_read(b, label, &labels, err);
    if (r < 0)
        return r;
    bool one = labels.ndim == 0 && cw_dtype_is_integer(labels.dtype);
    bool shares = labels.ndim == 1 && labels.dtype == CW_FLOAT32 && labels.dims[0] == s->classes;
    if (!one && !shares) {
        char text[160];
        return cw_attr_error(op, "label", err, "an integer or float32[%lld], but \"%s\" is %s",
                             (long long)s->classes, label, cw_type_print(&labels, text));
    }
    labels = (struct cw_type){.dtype = CW_FLOAT32, .ndim = 1, .dims = {s->classes}};
    r = cw_bind_write(b, component, type, err);
    r = r < 0 ? r : cw_bind_write(b, label, &labels, err);
    return r < 0 ? r : 0;
}

/* ---- draws ---- */

void cw_mix_words(const uint64_t key[2], uint32_t word[4])
{
    cw_philox(key[0], (const uint32_t[4]){(uint32_t)key[1], (uint32_t)(key[1] >> 32)}, word);
}

double cw_mix_draw(const struct cw_mix *s, const uint64_t key[2])
{
    uint32_t block = 1;
    double a = cw_log_gamma(key, &block, s->alpha), b = cw_log_gamma(key, &block, s->alpha);
    return 1.0 / (1.0 + cw_exp(b - a));
}

/* ---- labels ---- */

/* Adds the label of a row, times f, to its shares of classes. */
static int mix_add_label(const struct cw_op *op, const struct cw_batch *in, uint32_t row, float f, float *to,
                         struct cw_error *err)
{
    const struct cw_mix *s = op->state;
    const struct cw_batch_component *c = &in->components[op->in[CW_MIX_LABEL].value];
    size_t bytes = c->size / in->n;
    const uint8_t *at = (const uint8_t *)c->data + row * bytes;
    if (c->dtype == CW_FLOAT32) {
        for (int64_t k = 0; k < s->classes; k++)
            to[k] += f * ((const float *)(const void *)at)[k];
        return 0;
    }
    int64_t label;
    cw_convert(c->dtype, CW_INT64, &label, at, 1);
    if (label < 0 || label >= s->classes) {
        cw_error_op(err, op->desc->name);
        return cw_error_set(err, CW_E_RECORD,
                            "%s: %s is %lld in row %u of a batch: expected a class from 0 to %lld, because "
                            "classes is %lld",
                            op->desc->name, c->name, (long long)label, row, (long long)s->classes - 1,
                            (long long)s->classes);
    }
    to[label] += f;
    return 0;
}

int cw_mix_results(const struct cw_op *op, const struct cw_batch *in, double share,
                   struct cw_batch_result *ret, struct cw_error *err)
{
    const struct cw_mix *s = op->state;
    const struct cw_batch_component *c = &in->components[op->in[CW_MIX_IMAGE].value];
    size_t images = CW_ALIGN_UP(c->size, (size_t)64), labels = in->n * (size_t)s->classes * sizeof(float);
    uint8_t *memory = malloc(images + labels + 1);
    if (!memory)
        return cw_error_nomem(err, images + labels, op->desc->name);
    float *to = memset(memory + images, 0, labels);
    int r = 0;
    for (uint32_t row = 0; row < in->n && r >= 0; row++, to += s->classes) {
        r = mix_add_label(op, in, row ? row - 1 : in->n - 1, (float)(1.0 - share), to, err);
        r = r < 0 ? r : mix_add_label(op, in, row, (float)share, to, err);
    }
    if (r < 0) {
        free(memory);
        return r;
    }
    *ret = (struct cw_batch_result){.owner = memory};
    ret->columns[CW_MIX_IMAGE] = (struct cw_tensor){.data = memory, .size = c->size, .ndim = c->ndim - 1};
    memcpy(ret->columns[CW_MIX_IMAGE].dims, c->dims + 1, (size_t)(c->ndim - 1) * sizeof(c->dims[0]));
    ret->columns[CW_MIX_LABEL] = (struct cw_tensor){
        .data = memory + images, .size = labels, .ndim = 1, .dims = {s->classes}};
    return 0;
}

void cw_mix_release(struct cw_batch_result *result)
{
    free(CW_STEAL(result->owner));
}
