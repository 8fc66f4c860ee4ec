/*
 * What mixup and cutmix share: operators on whole batches that mix each row with the row before it (the first
 * with the last), and replace labels by the shares of classes.
 */
#pragma once
#include "pipeline/op.h"

struct cw_mix { /* state of the operator */
    double alpha;
    int64_t classes;
    bool chw; /* cutmix: images are [channels, height, width] */
};

enum { CW_MIX_IMAGE, CW_MIX_LABEL }; /* ports, of inputs and of outputs */

/* bind: makes op->state, reads the component and the label, and declares the results. The operator has
 * checked the component's type, which cw_bind_read gave. */
int cw_mix_bind(struct cw_bind *b, struct cw_op *op, const struct cw_type *type,
                struct cw_error *err) _must_check_;
/* Draws the share of a batch: a number of the distribution Beta(alpha, alpha). */
double cw_mix_draw(const struct cw_mix *s, const uint64_t key[2]);
/* Stores words 0 to 3 of the batch's draw in word. */
void cw_mix_words(const uint64_t key[2], uint32_t word[4]);
/* batch: allocates both results, of which the caller fills in the images, and computes the labels: `share` of
 * the row's, the rest of the row's before it. Sets *ret_images to the images of the input and *ret_row to the
 * bytes of one. */
int cw_mix_results(const struct cw_op *op, const struct cw_batch *in, double share,
                   struct cw_batch_result *ret, struct cw_error *err) _must_check_;
void cw_mix_release(struct cw_batch_result *result);

/* The images of the input, and the bytes of one. */
static inline const uint8_t *cw_mix_images(const struct cw_op *op, const struct cw_batch *in, size_t *ret_row)
{
    const struct cw_batch_component *c = &in->components[op->in[CW_MIX_IMAGE].value];
    *ret_row = in->n ? c->size / in->n : 0;
    return c->data;
}

#define CW_MIX_ATTRS(alpha_) \
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the images"}, \
        {.name = "label", \
         .kind = CW_ATTR_COMPONENT, \
         .doc = "the class of each row: an integer, or float32 [classes], the shares of classes. The " \
                "result is " \
                "float32 [classes]"}, \
        {.name = "classes", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 24, .doc = "number of classes"}, \
        {.name = "alpha", \
         .kind = CW_ATTR_FLOAT, \
         .def = alpha_, \
         .min = 0.01, \
         .max = 1000, \
         .doc = "parameter of the distribution Beta(alpha, alpha) of the share that rows keep"}
