/* Processors without kernels of their own. */
#include "ops/kernels/isa.h"

const struct cw_pixel_isa *cw_pixel_isa_native(void) { return NULL; }
