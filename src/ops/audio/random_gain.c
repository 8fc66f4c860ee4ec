/* random_gain: samples louder or softer, by a factor that is drawn for each element. */
#include <stdlib.h>

#include "base/math.h"
#include "base/philox.h"
#include "ops/audio/audio_op.h"

#define LOG_10 2.302585092994045684 /* natural logarithm of 10 */

static int random_gain_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int r = cw_audio_bind_read(b, op, 0, CW_MAX_NDIM, &type, err);
    if (r < 0)
        return r;
    double *db = op->state = calloc(2, sizeof(*db));
    if (!db)
        return cw_error_nomem(err, 2 * sizeof(*db), "random_gain");
    r = cw_audio_bind_range(op, "db", db, err);
    if (r >= 0)
        r = cw_bind_write(b, cw_attr_string(op, "component"), &type, err);
    return r < 0 ? r : 0;
}

static void random_gain_values(float *to, const float *from, size_t n, float gain)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] * gain;
}

static int random_gain_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct cw_port *out = &op->out[0];
    const double *db = op->state;
    int r = cw_block_column(b, out->value, &out->type, err);
    CW_ROWS_OK(i, b, r >= 0)
    {
        struct cw_tensor in = cw_in(op, b, 0, i);
        uint32_t word[4];
        float *to = cw_block_row_out(b, out->value, &out->type, i, in.dims, in.ndim, err);
        if (!to)
            return err ? err->status : CW_E_MEMORY;
        cw_block_draw(b, op->index, i, 0, word);
        double gain = cw_exp((db[0] + (db[1] - db[0]) * cw_uniform(word[0])) * (LOG_10 / 20));
        random_gain_values(to, in.data, in.size / sizeof(*to), (float)gain);
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_AUDIO_COMPONENT("the samples, float32"),
    {.name = "db",
     .kind = CW_ATTR_FLOATS,
     .def = "[-6, 6]",
     .min = -200,
     .max = 200,
     .len_min = 2,
     .len_max = 2,
     .scalar_too = true,
     .doc = "smallest and largest gain, in dB; a single number: always this gain"},
    {0},
};

const struct cw_op_desc cw_op_random_gain = {
    .name = "random_gain",
    .summary = "makes audio louder or softer, at random",
    .doc =
        "Multiplies the samples of an element by 10^(g / 20), where g is drawn uniformly from `db`. Samples "
        "are not clipped.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = random_gain_bind,
    .run = random_gain_run,
    .free_state = free,
};
