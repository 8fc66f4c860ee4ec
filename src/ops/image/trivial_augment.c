/* trivial_augment: one drawn augmentation of a drawn magnitude (Mueller, Hutter: "TrivialAugment", 2021). */
#include "base/philox.h"
#include "ops/image/image_augment.h"

#define BINS 31 /* magnitudes */

static int trivial_augment_steps(const struct cw_op *op, const struct cw_block *b, size_t row,
                                 struct cw_augment_step ret[CW_AUGMENT_STEPS_MAX])
{
    uint32_t word[4];
    cw_block_draw(b, op->index, row, 0, word);
    ret[0] = (struct cw_augment_step){.kind = (enum cw_augment_kind)cw_integer(word[0], CW_AUGMENT_KINDS),
                                      .bin = (int)cw_integer(word[1], BINS),
                                      .bins = BINS,
                                      .negative = cw_integer(word[2], 2),
                                      .scale = CW_AUGMENT_WIDE};
    return 1;
}

static int trivial_augment_image(const struct cw_op *op, struct cw_block *b, size_t row,
                                 const struct cw_image_in *in, struct cw_error *err)
{
    return cw_augment_image(op, b, row, in, trivial_augment_steps, err);
}

static int trivial_augment_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, trivial_augment_image, err);
}

static const struct cw_attr_def attrs[] = {CW_COLOR_ATTR_COMPONENT, {0}};

const struct cw_op_desc cw_op_trivial_augment = {
    .name = "trivial_augment",
    .summary = "augments uint8 images by one drawn change of a drawn magnitude",
    .doc = "TrivialAugmentWide: each element draws one of 14 changes (shears, translations, a rotation, "
           "changes of colours), one of 31 magnitudes, and its sign. The results are those of torchvision on "
           "Pillow "
           "images.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = cw_augment_bind,
    .run = trivial_augment_run,
};
