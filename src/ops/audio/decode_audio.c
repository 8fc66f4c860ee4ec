/* decode_audio: WAV, FLAC, Ogg and MP3 bytes to samples. */
#include <string.h>

#include "formats/audio.h"
#include "ops/audio/audio_op.h"

#define STEP_VALUES ((size_t)1 << 16) /* that are decoded at a time, at least */
/* The first estimate of a file's values is at most this many per byte: lossless compression of music has
 * about 0.6 values a byte, lossy compression about 6. */
#define VALUES_PER_BYTE 8

struct samples {
    float *values;
    size_t n, room; /* frames */
};

/* Makes room for `frames` more frames. */
static int samples_room(struct samples *s, size_t frames, unsigned channels, struct cw_block *b,
                        struct cw_error *err)
{
    if (s->room - s->n >= frames)
        return 0;
    size_t room = s->n + (s->n > frames ? s->n : frames);
    float *grown = cw_block_alloc(b, room * channels * sizeof(*grown), err);
    if (!grown)
        return err ? err->status : CW_E_MEMORY;
    if (s->n)
        memcpy(grown, s->values, s->n * channels * sizeof(*grown));
    s->values = grown;
    s->room = room;
    return 0;
}

/* Decodes all frames. Memory follows what is decoded, not what the file claims. */
static int decode_audio_frames(struct cw_audio *a, const struct cw_audio_facts *facts, size_t bytes,
                               uint64_t most, struct samples *s, struct cw_block *b, struct cw_error *err)
{
    size_t step = STEP_VALUES / facts->channels + 1,
           estimate = bytes * VALUES_PER_BYTE / facts->channels + step;
    if (facts->frames > most / facts->channels)
        return cw_error_set(err, CW_E_RECORD,
                            "the audio has %llu frames of %u channels: expected at most max_samples = %llu "
                            "samples",
                            (unsigned long long)facts->frames, facts->channels, (unsigned long long)most);
    int r = samples_room(s, facts->frames && facts->frames < estimate ? facts->frames + 1 : estimate,
                         facts->channels, b, err);
    for (size_t got = step; r >= 0 && got == step; s->n += got) {
        r = samples_room(s, step, facts->channels, b, err);
        if (r >= 0)
            r = cw_audio_read(a, s->values + s->n * facts->channels, step, &got, err);
        if (r >= 0 && s->n + got > most / facts->channels)
            r = cw_error_set(err, CW_E_RECORD, "the audio has more samples than max_samples = %llu",
                             (unsigned long long)most);
        if (r < 0)
            break;
    }
    if (r >= 0 && s->n == 0)
        r = cw_error_set(err, CW_E_RECORD, "the audio has no samples");
    return r;
}

/* The mean of the channels, added in their order, in place. */
static void decode_audio_mono(float *values, size_t n, unsigned channels)
{
    float by = (float)channels;
    if (channels == 2) {
        for (size_t i = 0; i < n; i++)
            values[i] = (values[2 * i] + values[2 * i + 1]) / 2.0f;
        return;
    }
    for (size_t i = 0; i < n && channels > 1; i++) {
        float sum = values[i * channels];
        for (unsigned c = 1; c < channels; c++)
            sum += values[i * channels + c];
        values[i] = sum / by;
    }
}

/* Decodes a row: its samples are wanted, or else only its rate. */
static int decode_audio_row(const struct cw_op *op, struct cw_block *b, size_t row, bool wanted,
                            int32_t *ret_rate, struct cw_error *err)
{
    struct cw_tensor in = cw_in(op, b, 0, row), *out;
    struct cw_audio_facts facts;
    struct cw_audio *a = NULL;
    struct samples s = {0};
    int r = cw_audio_open(in.data, in.size, &a, &facts, err);
    if (r < 0)
        return r;
    *ret_rate = facts.rate;
    if (wanted)
        r = decode_audio_frames(a, &facts, in.size, (uint64_t)cw_attr_int(op, "max_samples"), &s, b, err);
    cw_audio_close(a);
    if (r < 0 || !wanted)
        return r;
    bool mono = cw_attr_bool(op, "mono");
    if (mono)
        decode_audio_mono(s.values, s.n, facts.channels);
    out = &b->columns[op->out[0].value].rows[row];
    *out = (struct cw_tensor){.data = s.values,
                              .size = s.n * (mono ? 1 : facts.channels) * sizeof(float),
                              .ndim = mono ? 1 : 2,
                              .dims = {(int64_t)s.n, mono ? 0 : (int64_t)facts.channels}};
    return 0;
}

static int decode_audio_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *samples = &op->out[0], *rate = op->n_out > 1 ? &op->out[1] : NULL;
    bool rates = rate && rate->live;
    int r = samples->live ? cw_block_ragged(b, samples->value, err) : 0;
    if (r >= 0 && rates)
        r = cw_block_dense(b, rate->value, &rate->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_error why = {0};
        int32_t hz = 0;
        r = decode_audio_row(op, b, i, samples->live, &hz, &why);
        if (r == CW_E_RECORD) {
            cw_block_fail(b, i, "decode_audio", "%s", why.message);
            r = 0;
        } else if (r < 0) {
            return cw_error_copy(err, &why);
        }
        if (rates)
            memcpy(b->columns[rate->value].data + i * b->columns[rate->value].stride, &hz, sizeof(hz));
    }
    return r;
}

static int decode_audio_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component"), *rate = cw_attr_string(op, "sample_rate");
    struct cw_type type, hz = cw_type_scalar(CW_INT32);
    char shown[160];
    int r = cw_audio_bind_library(op, cw_audio_lacks, "libsndfile1-dev", err);
    if (r >= 0)
        r = cw_bind_read(b, name, &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "bytes, but \"%s\" is %s", name,
                             cw_type_print(&type, shown));
    if (strcmp(rate, name) == 0)
        return cw_attr_error(op, "sample_rate", err, "another name than that of the samples");
    type = (struct cw_type){
        .dtype = CW_FLOAT32, .ndim = cw_attr_bool(op, "mono") ? 1 : 2, .dims = {CW_VARIES, CW_VARIES}};
    r = cw_bind_write(b, name, &type, err);
    if (r >= 0 && *rate)
        r = cw_bind_write(b, rate, &hz, err);
    return r < 0 ? r : 0;
}

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the encoded audio, bytes"),
    {.name = "mono",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: the mean of the channels, [n]; false: all channels, [n, channels]"},
    {.name = "sample_rate",
     .kind = CW_ATTR_STRING,
     .def = "\"sample_rate\"",
     .doc = "name of the component that gets the file's sample rate in Hz, int32; \"\": none"},
    {.name = "max_samples",
     .kind = CW_ATTR_INT,
     .def = "268435456",
     .min = 1,
     .max = 0x1p40,
     .doc = "most samples (frames times channels); longer audio fails the record"},
    {0},
};

const struct cw_op_desc cw_op_decode_audio = {
    .name = "decode_audio",
    .summary = "decodes WAV, FLAC, Ogg or MP3 bytes to samples, float32",
    .doc = "The format is detected from the content, by libsndfile. Samples of integers are divided by "
           "2^(bits - "
           "1), so that they lie in [-1, 1). A file without samples, a damaged one, or one that is cut off "
           "fails "
           "the record. docs/audio.md has the details.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = decode_audio_bind,
    .run = decode_audio_run,
};
