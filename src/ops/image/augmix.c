/* augmix: a mixture of the image and augmented copies of it (Hendrycks et al., "AugMix", 2019). */
#include <math.h>

#include "base/gamma.h"
#include "base/math.h"
#include "base/philox.h"
#include "ops/image/image_augment.h"

#define WIDTH_MAX 16
#define BINS 10     /* magnitudes; `severity` of them are drawn */
#define DEPTH_MAX 3 /* of a chain whose length is drawn */

/* What chains choose from; the last four only with all_ops. */
static const enum cw_augment_kind kinds[] = {
    CW_AUGMENT_SHEAR_X,   CW_AUGMENT_SHEAR_Y,    CW_AUGMENT_TRANSLATE_X, CW_AUGMENT_TRANSLATE_Y,
    CW_AUGMENT_ROTATE,    CW_AUGMENT_POSTERIZE,  CW_AUGMENT_SOLARIZE,    CW_AUGMENT_AUTOCONTRAST,
    CW_AUGMENT_EQUALIZE,  CW_AUGMENT_BRIGHTNESS, CW_AUGMENT_COLOR,       CW_AUGMENT_CONTRAST,
    CW_AUGMENT_SHARPNESS,
};

#define KINDS_WITHOUT_COLORS 9

struct augmix_shares {
    float image, chain[WIDTH_MAX];
};

static int augmix_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    if (cw_attr_int(op, "chain_depth") == 0)
        return cw_attr_error(op, "chain_depth", err, "at least 1, or -1 for lengths that are drawn");
    return cw_augment_bind(b, op, err);
}

/* Draws the shares, the chains' from a Dirichlet distribution. Returns the first block of words that they
 * leave. */
static uint32_t augmix_draw_shares(double alpha, int width, const uint64_t key[2], struct augmix_shares *ret)
{
    uint32_t block = 1;
    double a = cw_log_gamma(key, &block, alpha), b = cw_log_gamma(key, &block, alpha);
    double image = 1.0 / (1.0 + cw_exp(b - a)), part[WIDTH_MAX], most = -INFINITY, sum = 0;
    for (int i = 0; i < width; i++) {
        part[i] = cw_log_gamma(key, &block, alpha);
        most = part[i] > most ? part[i] : most;
    }
    for (int i = 0; i < width; i++)
        sum += part[i] = cw_exp(part[i] - most);
    ret->image = (float)image;
    for (int i = 0; i < width; i++)
        ret->chain[i] = (float)((1.0 - image) * (part[i] / sum));
    return block;
}

/* Draws a chain from the blocks of words from *block on. Returns its length. */
static int augmix_draw_chain(const struct cw_op *op, const struct cw_block *b, size_t row, uint32_t *block,
                             struct cw_augment_step ret[CW_AUGMENT_STEPS_MAX])
{
    uint32_t word[4];
    int n = (int)cw_attr_int(op, "chain_depth");
    cw_block_draw(b, op->index, row, (*block)++, word);
    if (n < 0)
        n = 1 + (int)cw_integer(word[0], DEPTH_MAX);
    uint64_t n_kinds = cw_attr_bool(op, "all_ops") ? CW_COUNT_OF(kinds) : KINDS_WITHOUT_COLORS;
    for (int i = 0; i < n; i++) {
        cw_block_draw(b, op->index, row, (*block)++, word);
        ret[i] = (struct cw_augment_step){
            .kind = kinds[cw_integer(word[0], n_kinds)],
            .bin = (int)cw_integer(word[1], (uint64_t)cw_attr_int(op, "severity")),
            .bins = BINS,
            .negative = cw_integer(word[2], 2),
            .scale = CW_AUGMENT_MIX};
    }
    return n;
}

static void augmix_add(float *sum, const uint8_t *pixels, size_t n, float share)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += share * (float)pixels[i];
}

static int augmix_image(const struct cw_op *op, struct cw_block *b, size_t row, const struct cw_image_in *in,
                        struct cw_error *err)
{
    struct cw_color_shape shape;
    struct augmix_shares shares;
    const uint64_t key[2] = {b->keys[op->index], b->eids[row]};
    int width = (int)cw_attr_int(op, "mixture_width");
    size_t n = (size_t)in->h * (size_t)in->w * in->pixel;
    if (cw_color_shape_of(op, in, &shape, err) < 0)
        return CW_E_RECORD;
    uint8_t *dst = cw_image_each_out(op, b, row, in, in->h, in->w, err);
    struct cw_arena_mark mark = cw_arena_mark(b->arena);
    uint8_t *chain = dst ? cw_block_alloc(b, n, err) : NULL;
    void *scratch = chain ? cw_block_alloc(b, n, err) : NULL;
    float *sum = scratch ? cw_block_alloc(b, n * sizeof(*sum), err) : NULL;
    if (!sum)
        return err->status;
    uint32_t block = augmix_draw_shares(cw_attr_float(op, "alpha"), width, key, &shares);
    for (size_t i = 0; i < n; i++)
        sum[i] = shares.image * (float)in->pixels[i];
    for (int k = 0; k < width; k++) {
        struct cw_augment_step step[CW_AUGMENT_STEPS_MAX];
        int n_steps = augmix_draw_chain(op, b, row, &block, step);
        cw_augment_apply(step, n_steps, &shape, chain, scratch, in->pixels);
        augmix_add(sum, chain, n, shares.chain[k]);
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(sum[i] < 255.0f ? sum[i] : 255.0f);
    cw_arena_release(b->arena, mark);
    return 0;
}

static int augmix_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, augmix_image, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "severity",
     .kind = CW_ATTR_INT,
     .def = "3",
     .min = 1,
     .max = BINS,
     .doc = "number of magnitudes that are drawn, from the smallest on"},
    {.name = "mixture_width",
     .kind = CW_ATTR_INT,
     .def = "3",
     .min = 1,
     .max = WIDTH_MAX,
     .doc = "number of chains of changes"},
    {.name = "chain_depth",
     .kind = CW_ATTR_INT,
     .def = "-1",
     .min = -1,
     .max = CW_AUGMENT_STEPS_MAX,
     .doc = "number of changes in a chain; -1: 1 to 3, drawn for each chain"},
    {.name = "alpha",
     .kind = CW_ATTR_FLOAT,
     .def = "1",
     .min = 1e-3,
     .max = 1e6,
     .doc = "parameter of the Beta and Dirichlet distributions of the shares"},
    {.name = "all_ops",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "whether chains also change brightness, colour, contrast and sharpness"},
    {0},
};

const struct cw_op_desc cw_op_augmix = {
    .name = "augmix",
    .summary = "mixes uint8 images with copies of them that chains of drawn changes have augmented",
    .doc = "AugMix: each element draws mixture_width chains of changes (shears, translations, a rotation, "
           "changes of colours). The result is the sum of the image and the augmented copies, each times a "
           "drawn share. Attributes and changes are those of torchvision's AugMix, with the results of "
           "changes on Pillow images.",
    .kind = CW_OP_MAP,
    .effects.random = true,
    .attrs = attrs,
    .bind = augmix_bind,
    .run = augmix_run,
};
