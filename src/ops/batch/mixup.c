/* mixup: each row of a batch is mixed with the row before it. */
#include <stdlib.h>

#include "ops/batch/mix_batch.h"
#include "ops/kernels/mix.h"

static int mixup_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_bind_read(b, cw_attr_string(op, "component"), &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_UINT8 && type.dtype != CW_FLOAT32)
        return cw_attr_error(op, "component", err, "a component of uint8 or float32, but \"%s\" is %s",
                             cw_attr_string(op, "component"), cw_dtype_name(type.dtype));
    return cw_mix_bind(b, op, &type, err);
}

static int mixup_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                       int (*cancelled)(void *), void *cancel_arg, struct cw_batch_result *ret,
                       struct cw_error *err)
{
    double share = cw_mix_draw(op->state, key);
    float own = (float)share, other = (float)(1.0 - share);
    (void)cancelled;
    (void)cancel_arg;
    int r = cw_mix_results(op, in, share, ret, err);
    if (r < 0)
        return r;
    size_t bytes;
    const uint8_t *images = cw_mix_images(op, in, &bytes);
    for (uint32_t row = 0; row < in->n; row++) {
        const void *a = images + row * bytes, *b = images + (row ? row - 1 : in->n - 1) * bytes;
        void *to = (uint8_t *)ret->columns[CW_MIX_IMAGE].data + row * bytes;
        if (op->in[CW_MIX_IMAGE].type.dtype == CW_UINT8)
            cw_mix_bytes(to, a, b, own, other, bytes);
        else
            cw_mix_floats(to, a, b, own, other, bytes / sizeof(float));
    }
    return 0;
}

static const struct cw_attr_def attrs[] = {CW_MIX_ATTRS("0.2"), {0}};

const struct cw_op_desc cw_op_mixup = {
    .name = "mixup",
    .summary = "mixes each row of a batch with the row before it, and their labels",
    .doc =
        "The operator comes after `batch`; only operators on batches, `take`, `skip` and `repeat` may "
        "follow. A batch draws one share from Beta(alpha, alpha). A row becomes share * row + (1 - share) * "
        "the row before it, and so do labels; the first row is mixed with the last one. Rows are uint8 or "
        "float32, of any shape (Zhang, Cisse, Dauphin, Lopez-Paz: \"mixup: Beyond Empirical Risk "
        "Minimization\", ICLR 2018; torchvision's MixUp). A label that is no class ends the run.",
    .kind = CW_OP_BATCH_MAP,
    .effects = {.count = CW_COUNT_SAME, .random = true},
    .attrs = attrs,
    .bind = mixup_bind,
    .batch = mixup_batch,
    .batch_release = cw_mix_release,
    .free_state = free,
};
