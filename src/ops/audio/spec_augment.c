/* spec_augment: masks of frequencies and of times over a spectrogram, drawn for each element. */
#include <string.h>

#include "base/philox.h"
#include "ops/audio/audio_op.h"

static int spec_augment_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_audio_bind_read(b, op, 2, 2, &type, err);
    if (r >= 0)
        r = cw_bind_write(b, cw_attr_string(op, "component"), &type, err);
    return r < 0 ? r : 0;
}

/* Draws mask number k, of at most `most` of n places: its begin and end. */
static void spec_augment_draw(const struct cw_op *op, const struct cw_block *b, size_t row, uint32_t k,
                              int64_t most, int64_t n, size_t *ret_begin, size_t *ret_end)
{
    uint32_t word[4];
    cw_block_draw(b, op->index, row, k / 2, word);
    uint32_t width = cw_integer(word[2 * (k & 1)], (uint64_t)(most < n ? most : n) + 1);
    *ret_begin = cw_integer(word[2 * (k & 1) + 1], (uint64_t)n - width + 1);
    *ret_end = *ret_begin + width;
}

static void spec_augment_fill(float *to, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        to[i] = value;
}

static int spec_augment_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    int64_t freq_mask = cw_attr_int(op, "freq_mask"), time_mask = cw_attr_int(op, "time_mask");
    uint32_t freq_masks = (uint32_t)cw_attr_int(op, "freq_masks"),
             time_masks = (uint32_t)cw_attr_int(op, "time_masks");
    float value = (float)cw_attr_float(op, "value");
    int r = cw_block_column(b, out->value, &out->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, i);
        size_t begin, end, times = (size_t)in.dims[1];
        float *to = cw_block_row_out(b, out->value, &out->type, i, in.dims, in.ndim, err);
        if (!to)
            return err ? err->status : CW_E_MEMORY;
        if (in.size)
            memcpy(to, in.data, in.size);
        for (uint32_t k = 0; k < freq_masks; k++) {
            spec_augment_draw(op, b, i, k, freq_mask, in.dims[0], &begin, &end);
            spec_augment_fill(to + begin * times, (end - begin) * times, value);
        }
        for (uint32_t k = 0; k < time_masks; k++) {
            spec_augment_draw(op, b, i, freq_masks + k, time_mask, in.dims[1], &begin, &end);
            for (size_t f = 0; f < (size_t)in.dims[0]; f++)
                spec_augment_fill(to + f * times + begin, end - begin, value);
        }
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the spectrogram, float32 [frequencies, times]"),
    {.name = "freq_mask",
     .kind = CW_ATTR_INT,
     .def = "27",
     .min = 0,
     .max = 1 << 24,
     .doc = "most frequencies of a frequency mask"},
    {.name = "time_mask",
     .kind = CW_ATTR_INT,
     .def = "100",
     .min = 0,
     .max = 1 << 24,
     .doc = "most times of a time mask"},
    {.name = "freq_masks",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 0,
     .max = 1000,
     .doc = "number of frequency masks"},
    {.name = "time_masks",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 0,
     .max = 1000,
     .doc = "number of time masks"},
    {.name = "value", .kind = CW_ATTR_FLOAT, .def = "0", .doc = "what masked places become"},
    {0},
};

const struct cw_op_desc cw_op_spec_augment = {
    .name = "spec_augment",
    .summary = "masks frequencies and times of a spectrogram, at random",
    .doc =
        "SpecAugment without time warping (Park et al., 2019). The width of a mask is drawn uniformly from 0 "
        "to its largest width, its begin from all places where it fits.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = spec_augment_bind,
    .run = spec_augment_run,
};
