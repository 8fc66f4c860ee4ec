/* Processors without kernels of their own. */
#include "ops/kernels/isa.h"

const struct cw_pixel_isa *const cw_pixel_isa_list[] = {NULL};
