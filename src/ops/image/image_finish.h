/* The last step of an image chain: applies the pixelwise operators and the layout to rows of pixels, and
 * writes them to the destination. */
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
    enum cw_dtype from, to; /* dtype before the first, and after the last pixelwise operator */
    uint8_t *dst;
    uint8_t *tmp[2]; /* buffers for a row between two operators */
    int status;      /* < 0: the first failure, of the operator `failed` */
    const struct cw_op *failed;
    struct cw_error *err;
};

/* Whether rows go to dst unchanged; the sink then has `direct`, and no `put` is called. */
bool cw_image_finish_is_copy(const struct cw_image_finish *f);
/* Sets *ret_sink, the sink that takes the rows, and allocates tmp from the arena. CW_E_MEMORY, CW_E_BUDGET.
 */
int cw_image_finish_init(struct cw_image_finish *f, struct cw_row_sink *ret_sink, struct cw_arena *arena,
                         struct cw_error *err) _must_check_;
