/* The instruction sets of x86-64, the best one first. */
#include "ops/kernels/kernels_x86.h"

const struct cw_pixel_isa *const cw_pixel_isa_list[] = {&cw_pixel_isa_avx512, &cw_pixel_isa_avx2, NULL};
