/* auto_augment: one of 25 learned pairs of augmentations, drawn (Cubuk et al., "AutoAugment", 2018). */
#include <string.h>

#include "base/philox.h"
#include "ops/image/image_augment.h"

#define PAIRS 25
#define BINS 10 /* magnitudes */
#define IN_PAIR 2

struct auto_step {
    enum cw_augment_kind kind;
    double p; /* probability that the step of a drawn pair is done */
    int bin;
};

/* The tables of the paper, in the order of policy_names. */
#define STEP(kind_) CW_AUGMENT_##kind_
static const struct auto_step policies[][PAIRS][IN_PAIR] = {
    {
        /* imagenet */
        {{STEP(POSTERIZE), 0.4, 8}, {STEP(ROTATE), 0.6, 9}},
        {{STEP(SOLARIZE), 0.6, 5}, {STEP(AUTOCONTRAST), 0.6, 0}},
        {{STEP(EQUALIZE), 0.8, 0}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(POSTERIZE), 0.6, 7}, {STEP(POSTERIZE), 0.6, 6}},
        {{STEP(EQUALIZE), 0.4, 0}, {STEP(SOLARIZE), 0.2, 4}},
        {{STEP(EQUALIZE), 0.4, 0}, {STEP(ROTATE), 0.8, 8}},
        {{STEP(SOLARIZE), 0.6, 3}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(POSTERIZE), 0.8, 5}, {STEP(EQUALIZE), 1, 0}},
        {{STEP(ROTATE), 0.2, 3}, {STEP(SOLARIZE), 0.6, 8}},
        {{STEP(EQUALIZE), 0.6, 0}, {STEP(POSTERIZE), 0.4, 6}},
        {{STEP(ROTATE), 0.8, 8}, {STEP(COLOR), 0.4, 0}},
        {{STEP(ROTATE), 0.4, 9}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(EQUALIZE), 0, 0}, {STEP(EQUALIZE), 0.8, 0}},
        {{STEP(INVERT), 0.6, 0}, {STEP(EQUALIZE), 1, 0}},
        {{STEP(COLOR), 0.6, 4}, {STEP(CONTRAST), 1, 8}},
        {{STEP(ROTATE), 0.8, 8}, {STEP(COLOR), 1, 2}},
        {{STEP(COLOR), 0.8, 8}, {STEP(SOLARIZE), 0.8, 7}},
        {{STEP(SHARPNESS), 0.4, 7}, {STEP(INVERT), 0.6, 0}},
        {{STEP(SHEAR_X), 0.6, 5}, {STEP(EQUALIZE), 1, 0}},
        {{STEP(COLOR), 0.4, 0}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(EQUALIZE), 0.4, 0}, {STEP(SOLARIZE), 0.2, 4}},
        {{STEP(SOLARIZE), 0.6, 5}, {STEP(AUTOCONTRAST), 0.6, 0}},
        {{STEP(INVERT), 0.6, 0}, {STEP(EQUALIZE), 1, 0}},
        {{STEP(COLOR), 0.6, 4}, {STEP(CONTRAST), 1, 8}},
        {{STEP(EQUALIZE), 0.8, 0}, {STEP(EQUALIZE), 0.6, 0}},
    },
    {
        /* cifar10 */
        {{STEP(INVERT), 0.1, 0}, {STEP(CONTRAST), 0.2, 6}},
        {{STEP(ROTATE), 0.7, 2}, {STEP(TRANSLATE_X), 0.3, 9}},
        {{STEP(SHARPNESS), 0.8, 1}, {STEP(SHARPNESS), 0.9, 3}},
        {{STEP(SHEAR_Y), 0.5, 8}, {STEP(TRANSLATE_Y), 0.7, 9}},
        {{STEP(AUTOCONTRAST), 0.5, 0}, {STEP(EQUALIZE), 0.9, 0}},
        {{STEP(SHEAR_Y), 0.2, 7}, {STEP(POSTERIZE), 0.3, 7}},
        {{STEP(COLOR), 0.4, 3}, {STEP(BRIGHTNESS), 0.6, 7}},
        {{STEP(SHARPNESS), 0.3, 9}, {STEP(BRIGHTNESS), 0.7, 9}},
        {{STEP(EQUALIZE), 0.6, 0}, {STEP(EQUALIZE), 0.5, 0}},
        {{STEP(CONTRAST), 0.6, 7}, {STEP(SHARPNESS), 0.6, 5}},
        {{STEP(COLOR), 0.7, 7}, {STEP(TRANSLATE_X), 0.5, 8}},
        {{STEP(EQUALIZE), 0.3, 0}, {STEP(AUTOCONTRAST), 0.4, 0}},
        {{STEP(TRANSLATE_Y), 0.4, 3}, {STEP(SHARPNESS), 0.2, 6}},
        {{STEP(BRIGHTNESS), 0.9, 6}, {STEP(COLOR), 0.2, 8}},
        {{STEP(SOLARIZE), 0.5, 2}, {STEP(INVERT), 0, 0}},
        {{STEP(EQUALIZE), 0.2, 0}, {STEP(AUTOCONTRAST), 0.6, 0}},
        {{STEP(EQUALIZE), 0.2, 0}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(COLOR), 0.9, 9}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(AUTOCONTRAST), 0.8, 0}, {STEP(SOLARIZE), 0.2, 8}},
        {{STEP(BRIGHTNESS), 0.1, 3}, {STEP(COLOR), 0.7, 0}},
        {{STEP(SOLARIZE), 0.4, 5}, {STEP(AUTOCONTRAST), 0.9, 0}},
        {{STEP(TRANSLATE_Y), 0.9, 9}, {STEP(TRANSLATE_Y), 0.7, 9}},
        {{STEP(AUTOCONTRAST), 0.9, 0}, {STEP(SOLARIZE), 0.8, 3}},
        {{STEP(EQUALIZE), 0.8, 0}, {STEP(INVERT), 0.1, 0}},
        {{STEP(TRANSLATE_Y), 0.7, 9}, {STEP(AUTOCONTRAST), 0.9, 0}},
    },
    {
        /* svhn */
        {{STEP(SHEAR_X), 0.9, 4}, {STEP(INVERT), 0.2, 0}},
        {{STEP(SHEAR_Y), 0.9, 8}, {STEP(INVERT), 0.7, 0}},
        {{STEP(EQUALIZE), 0.6, 0}, {STEP(SOLARIZE), 0.6, 6}},
        {{STEP(INVERT), 0.9, 0}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(EQUALIZE), 0.6, 0}, {STEP(ROTATE), 0.9, 3}},
        {{STEP(SHEAR_X), 0.9, 4}, {STEP(AUTOCONTRAST), 0.8, 0}},
        {{STEP(SHEAR_Y), 0.9, 8}, {STEP(INVERT), 0.4, 0}},
        {{STEP(SHEAR_Y), 0.9, 5}, {STEP(SOLARIZE), 0.2, 6}},
        {{STEP(INVERT), 0.9, 0}, {STEP(AUTOCONTRAST), 0.8, 0}},
        {{STEP(EQUALIZE), 0.6, 0}, {STEP(ROTATE), 0.9, 3}},
        {{STEP(SHEAR_X), 0.9, 4}, {STEP(SOLARIZE), 0.3, 3}},
        {{STEP(SHEAR_Y), 0.8, 8}, {STEP(INVERT), 0.7, 0}},
        {{STEP(EQUALIZE), 0.9, 0}, {STEP(TRANSLATE_Y), 0.6, 6}},
        {{STEP(INVERT), 0.9, 0}, {STEP(EQUALIZE), 0.6, 0}},
        {{STEP(CONTRAST), 0.3, 3}, {STEP(ROTATE), 0.8, 4}},
        {{STEP(INVERT), 0.8, 0}, {STEP(TRANSLATE_Y), 0, 2}},
        {{STEP(SHEAR_Y), 0.7, 6}, {STEP(SOLARIZE), 0.4, 8}},
        {{STEP(INVERT), 0.6, 0}, {STEP(ROTATE), 0.8, 4}},
        {{STEP(SHEAR_Y), 0.3, 7}, {STEP(TRANSLATE_X), 0.9, 3}},
        {{STEP(SHEAR_X), 0.1, 6}, {STEP(INVERT), 0.6, 0}},
        {{STEP(SOLARIZE), 0.7, 2}, {STEP(TRANSLATE_Y), 0.6, 7}},
        {{STEP(SHEAR_Y), 0.8, 4}, {STEP(INVERT), 0.8, 0}},
        {{STEP(SHEAR_X), 0.7, 9}, {STEP(TRANSLATE_Y), 0.8, 3}},
        {{STEP(SHEAR_Y), 0.8, 5}, {STEP(AUTOCONTRAST), 0.7, 0}},
        {{STEP(SHEAR_X), 0.7, 2}, {STEP(INVERT), 0.1, 0}},
    },
};
static const char *const policy_names[] = {"imagenet", "cifar10", "svhn", NULL};

static int auto_augment_steps(const struct cw_op *op, const struct cw_block *b, size_t row,
                              struct cw_augment_step ret[CW_AUGMENT_STEPS_MAX])
{
    int policy = 0, n = 0;
    uint32_t word[8];
    while (strcmp(policy_names[policy], cw_attr_string(op, "policy")) != 0)
        policy++;
    cw_block_draw(b, op->index, row, 0, word);
    cw_block_draw(b, op->index, row, 1, word + 4);
    const struct auto_step *pair = policies[policy][cw_integer(word[0], PAIRS)];
    for (int i = 0; i < IN_PAIR; i++)
        if (cw_uniform(word[1 + i]) <= pair[i].p)
            ret[n++] = (struct cw_augment_step){.kind = pair[i].kind,
                                                .bin = pair[i].bin,
                                                .bins = BINS,
                                                .negative = cw_integer(word[3 + i], 2) == 0};
    return n;
}

static int auto_augment_image(const struct cw_op *op, struct cw_block *b, size_t row,
                              const struct cw_image_in *in, struct cw_error *err)
{
    return cw_augment_image(op, b, row, in, auto_augment_steps, err);
}

static int auto_augment_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, auto_augment_image, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "policy",
     .kind = CW_ATTR_STRING,
     .def = "\"imagenet\"",
     .choices = policy_names,
     .doc = "the data set that the pairs were learned for"},
    {0},
};

const struct cw_op_desc cw_op_auto_augment = {
    .name = "auto_augment",
    .summary = "augments uint8 images by a pair of changes that was learned",
    .doc = "AutoAugment: each element draws one of the policy's 25 pairs of changes, which of the two are "
           "done, and their signs. The results are those of torchvision on Pillow images.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = cw_augment_bind,
    .run = auto_augment_run,
};
