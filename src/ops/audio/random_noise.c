/* random_noise: white noise added to samples, drawn for each element. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/philox.h"
#include "ops/audio/audio_op.h"

#define LOG_10 2.302585092994045684

static int random_noise_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_audio_bind_read(b, op, 0, CW_MAX_NDIM, &type, err);
    if (r < 0)
        return r;
    double *snr = op->state = calloc(2, sizeof(*snr));
    if (!snr)
        return cw_error_nomem(err, 2 * sizeof(*snr), "random_noise");
    r = cw_audio_bind_range(op, "snr", snr, err);
    if (r >= 0)
        r = cw_bind_write(b, cw_attr_string(op, "component"), &type, err);
    return r < 0 ? r : 0;
}

/* Returns a polynomial of degree 7. c: from the highest coefficient to the lowest. */
static double polynomial(double x, const double c[8])
{
    double sum = c[0];
    for (int i = 1; i < 8; i++)
        sum = sum * x + c[i];
    return sum;
}

/* Returns a number of the standard normal distribution from a random word: the quantile of ((word >> 8) +
 * 1/2) / 2^24, by algorithm AS 241 (Wichura, "The Percentage Points of the Normal Distribution", Applied
 * Statistics 37, 1988). Its third case, for quantiles beyond e^-25, does not occur. */
static double random_noise_normal(uint32_t word)
{
    static const double centre_up[8] = {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
                                        45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
                                        133.14166789178437745, 3.387132872796366608},
                        centre_down[8] = {5226.495278852854561,  28729.085735721942674,
                                          39307.89580009271061,  21213.794301586595867,
                                          5394.1960214247511077, 687.1870074920579083,
                                          42.313330701600911252, 1.0},
                        tail_up[8] = {7.7454501427834140764e-4, .0227238449892691845833,
                                      .24178072517745061177,    1.27045825245236838258,
                                      3.64784832476320460504,   5.7694972214606914055,
                                      4.6303378461565452959,    1.42343711074968357734},
                        tail_down[8] = {1.05075007164441684324e-9, 5.475938084995344946e-4,
                                        .0151986665636164571966,   .14810397642748007459,
                                        .68976733498510000455,     1.6763848301838038494,
                                        2.05319162663775882187,    1.0};
    double p = ((double)(word >> 8) + 0.5) * 0x1p-24, q = p - 0.5;
    if (q >= -0.425 && q <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial(r, centre_up) / polynomial(r, centre_down);
    }
    double r = sqrt(-cw_log(q < 0 ? p : 1 - p)) - 1.6, x = polynomial(r, tail_up) / polynomial(r, tail_down);
    return q < 0 ? -x : x;
}

/* Returns the mean square of n values. */
static double random_noise_power(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return n ? sum / (double)n : 0;
}

static int random_noise_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    const double *snr = op->state;
    int r = cw_block_column(b, out->value, &out->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, i);
        const float *x = in.data;
        size_t n = in.size / sizeof(*x);
        uint32_t word[4];
        float *to = cw_block_row_out(b, out->value, &out->type, i, in.dims, in.ndim, err);
        if (!to)
            return err ? err->status : CW_E_MEMORY;
        cw_block_draw(b, op->index, i, 0, word);
        double db = snr[0] + (snr[1] - snr[0]) * cw_uniform(word[0]);
        double deviation = sqrt(random_noise_power(x, n)) * cw_exp(-db * (LOG_10 / 20));
        for (size_t k = 0; k < n; k++) {
            if (k % 4 == 0)
                cw_block_draw(b, op->index, i, (uint32_t)(k / 4 + 1), word);
            to[k] = (float)((double)x[k] + deviation * random_noise_normal(word[k % 4]));
        }
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the samples, float32"),
    {.name = "snr",
     .kind = CW_ATTR_FLOATS,
     .def = "[10, 40]",
     .min = -200,
     .max = 200,
     .len_min = 2,
     .len_max = 2,
     .scalar_too = true,
     .doc = "smallest and largest ratio of signal to noise, in dB; a single number: always this ratio"},
    {0},
};

const struct cw_op_desc cw_op_random_noise = {
    .name = "random_noise",
    .summary = "adds white noise to audio, at random",
    .doc = "The noise of an element is normally distributed. Its ratio of signal to noise (of their mean "
           "squares) is drawn uniformly from `snr`. Silence stays silence.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = random_noise_bind,
    .run = random_noise_run,
    .free_state = free,
};
