/* mel_spectrogram: samples to a power spectrogram on the mel scale. docs/audio.md has the definition. */
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/math.h"
#include "ops/audio/audio_op.h"
#include "ops/audio/fft.h"

#define LOG_10 2.302585092994045684
#define PI 3.141592653589793116
/* Slaney's mel scale is linear up to this frequency, then logarithmic. */
#define SLANEY_HZ 1000.0
#define SLANEY_LINEAR (200.0 / 3)
#define SLANEY_STEP 0.068751777420949123 /* log(6.4) / 27 */

struct filter { /* one mel band: weights of consecutive coefficients */
    size_t first, n;
    const float *weights;
};

struct mel {
    size_t n_fft, hop, n_mels;
    float *window; /* n_fft */
    struct filter *filters;
    float *weights; /* of all filters */
};

static void mel_free(void *state)
{
    struct mel *m = state;
    if (!m)
        return;
    free(m->window);
    free(m->filters);
    free(m->weights);
    free(m);
}

/* ---- binding: the window and the filters ---- */

/* cos(2 pi k / n), by Taylor's series on an eighth of the circle: the C library's cos differs between
 * machines. */
static double mel_cos(size_t k, size_t n)
{
    size_t eighth = 8 * (k % n) / n; /* cos(x) = cos(-x), cos(pi/2 - x) = sin(x), ... */
    double turns = (double)(k % n) / (double)n;
    bool sine = (eighth + 1) / 2 % 2 == 1, minus = eighth >= 1 && eighth <= 4;
    double x = 2 * PI * (turns - (double)((eighth + 1) / 2) / 4), term = sine ? x : 1, sum = term;
    for (int i = sine ? 2 : 1; i < 22; i += 2) {
        term *= -x * x / ((double)i * (i + 1));
        sum += term;
    }
    if (!sine)
        return eighth == 0 || eighth == 7 ? sum : -sum;
    return minus && eighth < 3 ? -sum : sum;
}

static double mel_of(double hz, bool slaney)
{
    if (!slaney)
        return 2595.0 / LOG_10 * cw_log(1.0 + hz / 700.0);
    return hz < SLANEY_HZ ? hz / SLANEY_LINEAR
                          : SLANEY_HZ / SLANEY_LINEAR + cw_log(hz / SLANEY_HZ) / SLANEY_STEP;
}

static double mel_to_hz(double mel, bool slaney)
{
    if (!slaney)
        return 700.0 * (cw_exp(mel * (LOG_10 / 2595.0)) - 1.0);
    return mel < SLANEY_HZ / SLANEY_LINEAR
               ? mel * SLANEY_LINEAR
               : SLANEY_HZ * cw_exp(SLANEY_STEP * (mel - SLANEY_HZ / SLANEY_LINEAR));
}

/* Returns the weight of a frequency in the triangle between three frequencies. */
static double mel_triangle(double hz, const double f[3], bool slaney)
{
    double up = (hz - f[0]) / (f[1] - f[0]), down = (f[2] - hz) / (f[2] - f[1]), w = CW_MIN(up, down);
    return w <= 0 ? 0 : slaney ? w * 2.0 / (f[2] - f[0]) : w;
}

static int mel_make_filters(const struct cw_op *op, struct mel *m, struct cw_error *err)
{
    bool slaney = strcmp(cw_attr_string(op, "scale"), "slaney") == 0;
    size_t n_freqs = m->n_fft / 2 + 1, used = 0;
    double rate = (double)cw_attr_int(op, "rate"), low = cw_attr_float(op, "f_min"),
           high = cw_attr_float(op, "f_max");
    high = high == 0 ? rate / 2 : high;
    if (low >= high)
        return cw_attr_error(op, "f_min", err, "a frequency below %g Hz, the highest one", high);
    if (high > rate / 2)
        return cw_attr_error(op, "f_max", err, "a frequency of at most rate / 2 = %g Hz", rate / 2);
    double mel_low = mel_of(low, slaney), step = (mel_of(high, slaney) - mel_low) / (double)(m->n_mels + 1);
    /* a frequency lies in at most two triangles */
    m->weights = calloc(2 * n_freqs + 2 * m->n_mels, sizeof(*m->weights));
    m->filters = calloc(m->n_mels, sizeof(*m->filters));
    if (!m->weights || !m->filters)
        return cw_error_nomem(err, 0, "mel_spectrogram");
    for (size_t k = 0; k < m->n_mels; k++) {
        struct filter *f = &m->filters[k];
        double edges[3];
        for (size_t i = 0; i < 3; i++)
            edges[i] = mel_to_hz(mel_low + step * (double)(k + i), slaney);
        f->weights = m->weights + used;
        for (size_t i = 0; i < n_freqs; i++) {
            double w = mel_triangle((double)i * rate / (double)m->n_fft, edges, slaney);
            if (w == 0)
                continue;
            if (f->n == 0)
                f->first = i;
            m->weights[used++] = (float)w;
            f->n++;
        }
    }
    return 0;
}

static int mel_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_audio_bind_library(op, cw_fft_lacks, "libkissfft-dev", err);
    if (r >= 0)
        r = cw_audio_bind_read(b, op, 1, 1, &type, err);
    if (r < 0)
        return r;
    struct mel *m = op->state = calloc(1, sizeof(*m));
    if (!m)
        return cw_error_nomem(err, sizeof(*m), "mel_spectrogram");
    *m = (struct mel){.n_fft = (size_t)cw_attr_int(op, "n_fft"),
                      .hop = (size_t)cw_attr_int(op, "hop"),
                      .n_mels = (size_t)cw_attr_int(op, "mels")};
    if (m->n_fft % 2)
        return cw_attr_error(op, "n_fft", err, "an even number");
    m->window = calloc(m->n_fft, sizeof(*m->window));
    if (!m->window)
        return cw_error_nomem(err, m->n_fft * sizeof(*m->window), "mel_spectrogram");
    for (size_t i = 0; i < m->n_fft; i++)
        m->window[i] = (float)(0.5 - 0.5 * mel_cos(i, m->n_fft));
    r = mel_make_filters(op, m, err);
    int64_t frames = type.dims[0] == CW_VARIES ? CW_VARIES : 1 + type.dims[0] / (int64_t)m->hop;
    type = (struct cw_type){.dtype = CW_FLOAT32, .ndim = 2, .dims = {(int64_t)m->n_mels, frames}};
    if (r >= 0)
        r = cw_bind_write(b, cw_attr_string(op, "component"), &type, err);
    return r < 0 ? r : 0;
}

/* ---- running ---- */

struct scratch { /* of one block */
    struct cw_fft *fft;
    float *values, *coefficients, *power; /* n_fft; n_fft + 2; n_fft/2 + 1 */
};

static int scratch_make(const struct mel *m, struct cw_block *b, struct scratch *s, struct cw_error *err)
{
    void *fft = cw_block_alloc(b, cw_fft_bytes(m->n_fft), err);
    s->values = fft ? cw_block_alloc(b, m->n_fft * sizeof(float), err) : NULL;
    s->coefficients = s->values ? cw_block_alloc(b, (m->n_fft + 2) * sizeof(float), err) : NULL;
    s->power = s->coefficients ? cw_block_alloc(b, (m->n_fft / 2 + 1) * sizeof(float), err) : NULL;
    if (!s->power)
        return err ? err->status : CW_E_MEMORY;
    s->fft = cw_fft_init(fft, m->n_fft);
    return 0;
}

/* Sets s->values to the samples around sample `centre`, times the window. Before the first and after the last
 * sample the audio is mirrored. */
static void mel_window(const struct mel *m, struct scratch *s, const float *x, size_t n, size_t centre)
{
    size_t half = m->n_fft / 2;
    if (centre >= half && centre + half <= n) {
        x += centre - half;
        for (size_t i = 0; i < m->n_fft; i++)
            s->values[i] = x[i] * m->window[i];
        return;
    }
    for (size_t i = 0; i < m->n_fft; i++) {
        size_t at = centre + i < half ? half - centre - i : centre + i - half;
        s->values[i] = x[at < n ? at : 2 * (n - 1) - at] * m->window[i];
    }
}

static void mel_power(const struct mel *m, struct scratch *s)
{
    cw_fft_real(s->fft, s->values, s->coefficients);
    for (size_t i = 0; i <= m->n_fft / 2; i++) {
        float re = s->coefficients[2 * i], im = s->coefficients[2 * i + 1];
        s->power[i] = re * re + im * im;
    }
}

static void mel_row(const struct mel *m, struct scratch *s, const float *x, size_t n, float *to,
                    size_t frames)
{
    for (size_t t = 0; t < frames; t++) {
        mel_window(m, s, x, n, t * m->hop);
        mel_power(m, s);
        for (size_t k = 0; k < m->n_mels; k++) {
            const struct filter *f = &m->filters[k];
            float sum = 0;
            for (size_t i = 0; i < f->n; i++)
                sum += s->power[f->first + i] * f->weights[i];
            to[k * frames + t] = sum;
        }
    }
}

static int mel_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    const struct mel *m = op->state;
    struct scratch s = {0};
    int r = cw_block_column(b, out->value, &out->type, err);
    if (r >= 0)
        r = scratch_make(m, b, &s, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, i);
        size_t n = (size_t)in.dims[0], frames = 1 + n / m->hop;
        if (n <= m->n_fft / 2) {
            cw_block_fail(b, i, "mel_spectrogram",
                          "the audio has %zu samples: expected more than n_fft / 2 = %zu", n, m->n_fft / 2);
            continue;
        }
        int64_t dims[2] = {(int64_t)m->n_mels, (int64_t)frames};
        float *to = cw_block_row_out(b, out->value, &out->type, i, dims, 2, err);
        if (!to)
            return err ? err->status : CW_E_MEMORY;
        mel_row(m, &s, in.data, n, to, frames);
    }
    return r;
}

static const char *const scales[] = {"htk", "slaney", NULL};

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the samples, float32 [n]"),
    {.name = "n_fft",
     .kind = CW_ATTR_INT,
     .def = "400",
     .min = 2,
     .max = 1 << 20,
     .doc = "samples of a frame: the length of the window and of the transform; an even number"},
    {.name = "hop",
     .kind = CW_ATTR_INT,
     .def = "160",
     .min = 1,
     .max = 1 << 24,
     .doc = "samples from frame to frame"},
    {.name = "mels", .kind = CW_ATTR_INT, .def = "80", .min = 1, .max = 4096, .doc = "number of mel bands"},
    {.name = "rate",
     .kind = CW_ATTR_INT,
     .def = "16000",
     .min = 1,
     .max = CW_AUDIO_RATE_MOST,
     .doc = "the sample rate of the samples, in Hz"},
    {.name = "f_min",
     .kind = CW_ATTR_FLOAT,
     .def = "0",
     .min = 0,
     .max = CW_AUDIO_RATE_MOST,
     .doc = "lowest frequency, in Hz"},
    {.name = "f_max",
     .kind = CW_ATTR_FLOAT,
     .def = "0",
     .min = 0,
     .max = CW_AUDIO_RATE_MOST,
     .doc = "highest frequency, in Hz; 0: rate / 2"},
    {.name = "scale",
     .kind = CW_ATTR_STRING,
     .def = "\"htk\"",
     .choices = scales,
     .doc = "htk: HTK's mel scale and triangles of height 1, as torchaudio; slaney: Slaney's mel scale and "
            "triangles of equal area, as librosa and Whisper"},
    {0},
};

const struct cw_op_desc cw_op_mel_spectrogram = {
    .name = "mel_spectrogram",
    .summary = "computes the power spectrogram of audio on the mel scale, float32 [mels, frames]",
    .doc =
        "The result of torchaudio's `MelSpectrogram(rate, n_fft, hop_length=hop, n_mels=mels)`: Hann window, "
        "frames centred on every hop-th sample, mirrored ends, squared magnitudes. docs/audio.md has the "
        "formulas. For a log-mel spectrogram, `assign` `log(audio + 1e-6)`.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = mel_bind,
    .run = mel_run,
    .free_state = mel_free,
};
