/* resample_audio: samples at another sample rate. */
#include <string.h>

#include "ops/audio/audio_op.h"
#include "ops/audio/resampler.h"

/* The rates may differ by this factor at most, so that a wrong rate in the data does not fill the memory. */
#define MOST_RATIO 1000

/* Sets *ret to the input's rate in Hz. Returns false after failing the row. */
static bool resample_audio_rate(const struct cw_op *op, struct cw_block *b, size_t row, int64_t *ret)
{
    int64_t rate = cw_attr_int(op, "rate");
    int32_t read;
    *ret = cw_attr_int(op, "input_rate");
    if (op->n_in > 1) {
        memcpy(&read, cw_in(op, b, 1, row).data, sizeof(read));
        *ret = read;
    }
    if (*ret < 1 || *ret > rate * MOST_RATIO || *ret * MOST_RATIO < rate)
        return cw_block_fail(
            b, row, "resample_audio",
            "the sample rate of the audio is %lld Hz: expected at least 1, and a factor of at "
            "most %d to rate = %lld",
            (long long)*ret, MOST_RATIO, (long long)rate);
    return true;
}

static int resample_audio_row(const struct cw_op *op, struct cw_block *b, size_t row, int64_t from_rate,
                              struct cw_error *err)
{
    struct cw_tensor in = cw_in(op, b, 0, row), *out;
    int64_t rate = cw_attr_int(op, "rate");
    unsigned channels = in.ndim == 1 ? 1 : (unsigned)in.dims[1];
    size_t n = (size_t)in.dims[0];
    float *values = in.data;
    out = &b->columns[op->out[0].value].rows[row];
    if (from_rate != rate && n > 0 && channels > 0) {
        int r = cw_resample(b, in.data, n, channels, (double)from_rate, (double)rate, &values, &n, err);
        if (r < 0)
            return r;
    }
    *out = in;
    out->data = values;
    out->dims[0] = (int64_t)n;
    out->size = n * channels * sizeof(float);
    return 0;
}

static int resample_audio_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    int32_t rate = (int32_t)cw_attr_int(op, "rate");
    const struct cw_port *samples = &op->out[0], *hz = op->n_out > 1 ? &op->out[1] : NULL;
    bool rates = hz && hz->live;
    int r = samples->live ? cw_block_ragged(b, samples->value, err) : 0;
    if (r >= 0 && rates)
        r = cw_block_dense(b, hz->value, &hz->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        int64_t from;
        if (rates)
            memcpy(b->columns[hz->value].data + i * b->columns[hz->value].stride, &rate, sizeof(rate));
        if (samples->live && resample_audio_rate(op, b, i, &from))
            r = resample_audio_row(op, b, i, from, err);
    }
    return r;
}

static int resample_audio_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component"), *rate = cw_attr_string(op, "sample_rate");
    struct cw_type type, hz;
    char shown[160];
    int r = cw_audio_bind_library(op, cw_resampler_lacks, "libsoxr-dev", err);
    if (r >= 0)
        r = cw_audio_bind_read(b, op, 1, 2, &type, err);
    if (r < 0)
        return r;
    bool from_component = cw_attr_int(op, "input_rate") == 0;
    if (from_component) {
        r = cw_bind_read(b, rate, &hz, err);
        if (r < 0)
            return r;
        if (hz.dtype != CW_INT32 || hz.ndim != 0)
            return cw_attr_error(op, "sample_rate", err,
                                 "a component with one int32, as decode_audio gives it, but \"%s\" is %s",
                                 rate, cw_type_print(&hz, shown));
    }
    type.dims[0] = CW_VARIES;
    r = cw_bind_write(b, name, &type, err);
    if (r >= 0 && from_component)
        r = cw_bind_write(b, rate, &hz, err);
    return r < 0 ? r : 0;
}

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the samples, float32 [n] or [n, channels]"),
    {.name = "rate",
     .kind = CW_ATTR_INT,
     .min = 1,
     .max = CW_AUDIO_RATE_MOST,
     .doc = "the new sample rate, in Hz"},
    {.name = "sample_rate",
     .kind = CW_ATTR_COMPONENT,
     .def = "\"sample_rate\"",
     .doc = "the component with the sample rate of the samples, int32; it becomes the new rate"},
    {.name = "input_rate",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = CW_AUDIO_RATE_MOST,
     .doc = "the sample rate of all elements, in Hz, if no component has it; 0: `sample_rate` has it"},
    {0},
};

const struct cw_op_desc cw_op_resample_audio = {
    .name = "resample_audio",
    .summary = "changes the sample rate of audio",
    .doc = "Computed by libsoxr with its quality HQ, each channel by itself. Samples that have the new rate "
           "already stay as they are. docs/audio.md has the details.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = resample_audio_bind,
    .run = resample_audio_run,
};
