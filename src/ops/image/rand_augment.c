/* rand_augment: several drawn augmentations of a fixed magnitude (Cubuk et al., "RandAugment", 2019). */
#include "base/philox.h"
#include "ops/image/image_augment.h"

static int rand_augment_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    if (cw_attr_int(op, "magnitude") >= cw_attr_int(op, "num_magnitude_bins"))
        return cw_attr_error(op, "magnitude", err, "less than num_magnitude_bins, %lld",
                             (long long)cw_attr_int(op, "num_magnitude_bins"));
    return cw_augment_bind(b, op, err);
}

static int rand_augment_steps(const struct cw_op *op, const struct cw_block *b, size_t row,
                              struct cw_augment_step ret[CW_AUGMENT_STEPS_MAX])
{
    int n = (int)cw_attr_int(op, "num_ops");
    uint32_t word[4];
    for (int i = 0; i < n; i++) {
        const uint32_t *two = word + 2 * (i % 2);
        if (i % 2 == 0)
            cw_block_draw(b, op->index, row, (uint32_t)i / 2, word);
        ret[i] = (struct cw_augment_step){.kind = (enum cw_augment_kind)cw_integer(two[0], CW_AUGMENT_KINDS),
                                          .bin = (int)cw_attr_int(op, "magnitude"),
                                          .bins = (int)cw_attr_int(op, "num_magnitude_bins"),
                                          .negative = cw_integer(two[1], 2)};
    }
    return n;
}

static int rand_augment_image(const struct cw_op *op, struct cw_block *b, size_t row,
                              const struct cw_image_in *in, struct cw_error *err)
{
    return cw_augment_image(op, b, row, in, rand_augment_steps, err);
}

static int rand_augment_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    return cw_image_each(op, b, rand_augment_image, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "num_ops",
     .kind = CW_ATTR_INT,
     .def = "2",
     .min = 0,
     .max = CW_AUGMENT_STEPS_MAX,
     .doc = "number of augmentations of each image"},
    {.name = "magnitude",
     .kind = CW_ATTR_INT,
     .def = "9",
     .min = 0,
     .max = 999,
     .doc = "how strong they are, from 0 to num_magnitude_bins - 1"},
    {.name = "num_magnitude_bins",
     .kind = CW_ATTR_INT,
     .def = "31",
     .min = 2,
     .max = 1000,
     .doc = "number of magnitudes"},
    {0},
};

const struct cw_op_desc cw_op_rand_augment = {
    .name = "rand_augment",
    .summary = "augments uint8 images by several drawn changes of a fixed magnitude",
    .doc = "RandAugment: each element draws num_ops of 14 changes (shears, translations, a rotation, "
           "changes of colours), and their signs. The results are those of torchvision on Pillow images.",
    .kind = CW_OP_MAP,
    .effects = {.action = CW_ACTS_WARP, .random = true},
    .attrs = attrs,
    .bind = rand_augment_bind,
    .run = rand_augment_run,
};
