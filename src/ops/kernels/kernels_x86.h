/* The versions for x86-64. */
#pragma once
#include "ops/kernels/isa.h"

extern const struct cw_pixel_isa cw_pixel_isa_avx2, cw_pixel_isa_avx512;
