/* For processors other than x86-64 and aarch64: only the portable kernels. */
#include "ops/kernels/isa.h"

const struct cw_pixel_isa *const cw_pixel_isa_list[] = {NULL};
