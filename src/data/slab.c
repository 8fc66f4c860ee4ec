#include "data/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
/* Address space of one memfd; its pages are there only once written. Larger slabs get a memfd of their own. */
#define REGION_SIZE ((size_t)1 << 30)

struct cw_slab_region {
    struct cw_slab_region *next;
    uint8_t *data;
    size_t size, used;
    int fd;
};

/* Sizes are rounded up to 8 steps per power of two, so that slabs of similar size serve each other: at most 12.5 % are lost. */
static unsigned size_class(size_t size, size_t *ret_size)
{
    size_t pages = CW_MAX((size + PAGE - 1) / PAGE, 1);
    if (pages <= 8) {
        *ret_size = pages * PAGE;
        return (unsigned)pages;
    }
    unsigned bits = 63u - (unsigned)__builtin_clzl(pages); /* 2^bits <= pages */
    size_t step = (size_t)1 << (bits - 3), steps = (pages + step - 1) / step; /* 8 .. 16 */
    *ret_size = steps * step * PAGE;
    return 8 * (bits - 2) + (unsigned)(steps - 8);
}

size_t cw_slab_charge(size_t size)
{
    size_t rounded;
    size_class(size, &rounded);
    return rounded;
}

int cw_slab_pool_init(struct cw_slab_pool *p, struct cw_budget *budget, struct cw_error *err)
{
    *p = (struct cw_slab_pool){.budget = budget};
    int r = pthread_mutex_init(&p->mutex, NULL);
    return r ? cw_error_errno(err, CW_E_MEMORY, r, "can't make a mutex") : 0;
}

static void free_list(struct cw_slab *s, struct cw_budget *budget)
{
    while (s) {
        struct cw_slab *next = s->next;
        if (s->charged)
            cw_budget_give(budget, s->size);
        free(s);
        s = next;
    }
}

void cw_slab_pool_deinit(struct cw_slab_pool *p)
{
    for (size_t i = 0; i < CW_COUNT_OF(p->backed); i++) {
        free_list(p->backed[i], p->budget);
        free_list(p->punched[i], p->budget);
    }
    free_list(p->retired, p->budget);
    while (p->regions) {
        struct cw_slab_region *region = p->regions;
        p->regions = region->next;
        munmap(region->data, region->size);
        close(region->fd);
        free(region);
    }
    pthread_mutex_destroy(&p->mutex);
}

static int region_new(struct cw_slab_pool *p, size_t size, struct cw_error *err)
{
    struct cw_slab_region *region = calloc(1, sizeof(*region));
    if (!region)
        return cw_error_nomem(err, sizeof(*region), "slabs");
    region->size = CW_MAX(size, REGION_SIZE);
    region->fd = memfd_create("cachew-slabs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (region->fd < 0) {
        int e = errno;
        free(region);
        return cw_error_errno(err, CW_E_MEMORY, e, "can't make shared memory for batches (memfd_create)");
    }
    region->data = MAP_FAILED;
    if (ftruncate(region->fd, (off_t)region->size) == 0)
        region->data = mmap(NULL, region->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, region->fd, 0);
    if (region->data == MAP_FAILED || fcntl(region->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int e = errno;
        size_t region_size = region->size;
        if (region->data != MAP_FAILED)
            munmap(region->data, region->size);
        close(region->fd);
        free(region);
        return cw_error_errno(err, CW_E_MEMORY, e, "can't map %zu bytes of shared memory for batches, for which %zu bytes of address space are set aside (ulimit -v "
                              "and -f limit them)", size, region_size);
    }
    region->next = p->regions;
    p->regions = region;
    return 0;
}

/* mutex held */
static int slab_new(struct cw_slab_pool *p, size_t size, unsigned class, struct cw_slab **ret, struct cw_error *err)
{
    if (!p->regions || p->regions->size - p->regions->used < size) {
        int r = region_new(p, size, err);
        if (r < 0)
            return r;
    }
    struct cw_slab *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a slab");
    struct cw_slab_region *region = p->regions;
    *s = (struct cw_slab){.pool = p, .data = region->data + region->used, .size = size, .fd = region->fd, .offset = region->used, .size_class = class};
    region->used += size;
    *ret = s;
    return 0;
}

int cw_slab_get(struct cw_slab_pool *p, size_t size, struct cw_slab **ret, struct cw_error *err)
{
    size_t rounded;
    if (size > (size_t)1 << 46)
        return cw_error_nomem(err, size, "a batch");
    unsigned class = size_class(size, &rounded);
    struct cw_slab *s;
    int r = 0;
    pthread_mutex_lock(&p->mutex);
    if ((s = p->backed[class])) {
        p->backed[class] = s->next;
    } else {
        r = cw_budget_take(p->budget, rounded, "a batch", err);
        if (r >= 0) {
            if ((s = p->punched[class]))
                p->punched[class] = s->next;
            else
                r = slab_new(p, rounded, class, &s, err);
            if (r >= 0)
                s->charged = 1;
            else
                cw_budget_give(p->budget, rounded);
        }
    }
    if (r >= 0) {
        s->next = NULL;
        p->n_out++;
        *ret = s;
    }
    pthread_mutex_unlock(&p->mutex);
    return r;
}

void cw_slab_put(struct cw_slab *s)
{
    struct cw_slab_pool *p = s->pool;
    pthread_mutex_lock(&p->mutex);
    if (!s->charged && !s->retired && cw_budget_take(p->budget, s->size, "a batch", NULL) == 0)
        s->charged = 1;
    struct cw_slab **list = s->retired ? &p->retired : s->charged ? &p->backed[s->size_class] : &p->punched[s->size_class];
    if (!s->charged && !s->retired)
        madvise(s->data, s->size, MADV_REMOVE);
    s->next = *list;
    *list = s;
    p->n_out--;
    pthread_mutex_unlock(&p->mutex);
}

void cw_slab_disown(struct cw_slab *s)
{
    pthread_mutex_lock(&s->pool->mutex);
    if (s->charged)
        cw_budget_give(s->pool->budget, s->size);
    s->charged = 0;
    pthread_mutex_unlock(&s->pool->mutex);
}

void cw_slab_retire(struct cw_slab *s)
{
    pthread_mutex_lock(&s->pool->mutex);
    s->retired = true;
    pthread_mutex_unlock(&s->pool->mutex);
}

size_t cw_slab_trim(struct cw_slab_pool *p)
{
    size_t given = 0;
    pthread_mutex_lock(&p->mutex);
    for (size_t i = 0; i < CW_COUNT_OF(p->backed); i++)
        while (p->backed[i]) {
            struct cw_slab *s = p->backed[i];
            p->backed[i] = s->next;
            madvise(s->data, s->size, MADV_REMOVE);
            s->charged = 0;
            cw_budget_give(p->budget, s->size);
            given += s->size;
            s->next = p->punched[i];
            p->punched[i] = s;
        }
    pthread_mutex_unlock(&p->mutex);
    return given;
}
