/* Chooses the pixel kernels of the best instruction set that this CPU has, once per process. */
#include "ops/kernels/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct cw_pixel_isa *chosen;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const struct cw_pixel_isa *cw_pixel_isa_find(const char *name)
{
    for (const struct cw_pixel_isa *const *i = cw_pixel_isa_list; *i; i++)
        if (strcmp((*i)->name, name) == 0)
            return (*i)->supported() ? *i : NULL;
    return strcmp(name, "c") == 0 ? &cw_pixel_isa_c : NULL;
}

static void isa_choose(void)
{
    const char *name = getenv("CACHEW_SIMD");
    chosen = name ? cw_pixel_isa_find(name) : NULL;
    for (const struct cw_pixel_isa *const *i = cw_pixel_isa_list; *i && !chosen; i++)
        if ((*i)->supported())
            chosen = *i;
    if (!chosen)
        chosen = &cw_pixel_isa_c;
}

const struct cw_pixel_isa *cw_pixel_isa(void)
{
    pthread_once(&once, isa_choose);
    return chosen;
}
