#include "ops/kernels/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct cw_pixel_isa *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    const struct cw_pixel_isa *native = cw_pixel_isa_native();
    const char *want = getenv("CACHEW_SIMD");
    chosen = native && !(want && strcmp(want, "c") == 0) ? native : &cw_pixel_isa_c;
}

const struct cw_pixel_isa *cw_pixel_isa(void)
{
    pthread_once(&once, choose);
    return chosen;
}
