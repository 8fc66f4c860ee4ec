/* The end of an image's way: rows of pixels get their last values and layout and go into the destination. */
#pragma once
#include "ops/image/image_role.h"

#define CW_IMAGE_CHAIN_MAX 12

struct cw_image_finish {
    const struct cw_op *const *pixel; /* pixelwise operators, in order */
    unsigned n_pixel;
    bool planar; /* CHW */
    bool flip_y;
    int channels;
    int64_t h, w;
    enum cw_dtype from, to; /* before the first, after the last of them */
    uint8_t *dst;
    uint8_t *tmp[2]; /* rows between operators */
    int status;      /* of the first failure, with which operator */
    const struct cw_op *failed;
    struct cw_error *err;
};

/* Whether rows lie in dst as they come: then direct says where, and there is no put. */
bool cw_image_finish_is_copy(const struct cw_image_finish *f);
/* Buffers and the way that rows take. CW_E_MEMORY, CW_E_BUDGET. */
int cw_image_finish_init(struct cw_image_finish *f, struct cw_row_sink *ret_sink, struct cw_arena *arena,
                         struct cw_error *err) _must_check_;
