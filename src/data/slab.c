/* Makes, lends, trims and frees slabs. Each pool has one mutex. */
#include "data/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

#define PAGE ((size_t)4096)
/* Bytes of address space of one region; its pages are allocated only when written. A larger slab gets a
 * separate region.
 */
#define REGION_SIZE ((size_t)1 << 30)
/* Bytes of a region if the address space or the size of files is limited. */
#define REGION_SIZE_SMALL ((size_t)16 << 20)

struct cw_slab_region {
    struct cw_slab_region *next;
    uint8_t *data;
    size_t size, used;
    int fd;
};

/* Returns the size class of a size, and the rounded size. Sizes are rounded up to one of 8 steps per power of
 * two, so that a slab can be reused for a similar size; at most 12.5 % are wasted. */
static unsigned slab_size_class(size_t size, size_t *ret_size)
{
    size_t pages = CW_MAX((size + PAGE - 1) / PAGE, 1);
    if (pages <= 8) {
        *ret_size = pages * PAGE;
        return (unsigned)pages;
    }
    unsigned bits = 63u - (unsigned)__builtin_clzl(pages);                    /* 2^bits <= pages */
    size_t step = (size_t)1 << (bits - 3), steps = (pages + step - 1) / step; /* 8 .. 16 */
    *ret_size = steps * step * PAGE;
    return 8 * (bits - 2) + (unsigned)(steps - 8);
}

size_t cw_slab_charge(size_t size)
{
    size_t rounded;
    slab_size_class(size, &rounded);
    return rounded;
}

int cw_slab_pool_init(struct cw_slab_pool *p, bool shared, struct cw_budget *budget, struct cw_error *err)
{
    *p = (struct cw_slab_pool){.shared = shared, .budget = budget};
    int r = pthread_mutex_init(&p->mutex, NULL);
    if (r)
        return cw_error_errno(err, CW_E_MEMORY, r, "can't make a mutex");
    if (!shared)
        cw_slab_fork_add(p);
    return 0;
}

static void slab_free_list(struct cw_slab *s, struct cw_budget *budget)
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
    if (!p->shared)
        cw_slab_fork_remove(p);
    for (size_t i = 0; i < CW_COUNT_OF(p->backed); i++) {
        slab_free_list(p->backed[i], p->budget);
        slab_free_list(p->punched[i], p->budget);
    }
    slab_free_list(p->retired, p->budget);
    while (p->regions) {
        struct cw_slab_region *region = p->regions;
        p->regions = region->next;
        munmap(region->data, region->size);
        if (region->fd >= 0)
            close(region->fd);
        free(region);
    }
    pthread_mutex_destroy(&p->mutex);
}

/* Makes a sealed memfd of this size. Returns its descriptor or a negative errno. */
static int slab_make_memfd(size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
        return -EFBIG; /* ftruncate would raise SIGXFSZ */
    int fd = memfd_create("cachew-slabs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    int e = errno;
    close(fd);
    return -e;
}

static const char *slab_why_no_memfd(int errnum)
{
    switch (errnum) {
    case EFBIG:
        return "files of this size are not allowed (ulimit -f)";
    case EPERM:
    case EACCES:
    case ENOSYS:
        return "memfd_create is not allowed here (a seccomp profile, or vm.memfd_noexec)";
    case EMFILE:
    case ENFILE:
        return "too many files are open (ulimit -n)";
    default:
        return "no memfd can be made";
    }
}

/* Maps a region of `size` bytes, of a new memfd or of anonymous memory. Returns 0 or a negative errno. */
static int slab_map_region(struct cw_slab_region *region, size_t size, bool memfd)
{
    region->size = size;
    region->fd = memfd ? slab_make_memfd(size) : -1;
    if (memfd && region->fd < 0)
        return region->fd;
    region->data = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_NORESERVE | (memfd ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), region->fd, 0);
    if (region->data != MAP_FAILED)
        return 0;
    int e = errno;
    if (memfd)
        close(region->fd);
    return -e;
}

/* Gives the pages of a slab back to the system; new pages are zeroed. */
static void slab_punch(const struct cw_slab *s)
{
    (void)madvise(s->data, s->size, s->fd >= 0 ? MADV_REMOVE : MADV_DONTNEED);
}

/* Adds a region with room for `size` bytes. In a shared pool it is a memfd if one can be made, preferably of
 * the larger size; else it is anonymous memory, and p->why_private says why. The pool's mutex is held. */
static int slab_region_new(struct cw_slab_pool *p, size_t size, struct cw_error *err)
{
    const size_t sizes[] = {CW_MAX(size, REGION_SIZE), CW_MAX(size, REGION_SIZE_SMALL)};
    struct cw_slab_region *region = calloc(1, sizeof(*region));
    int r = -ENOMEM, first = 0;
    if (!region)
        return cw_error_nomem(err, sizeof(*region), "slabs");
    for (size_t i = p->shared ? 0 : CW_COUNT_OF(sizes); i < 2 * CW_COUNT_OF(sizes) && r < 0; i++) {
        r = slab_map_region(region, sizes[i % 2], i < CW_COUNT_OF(sizes));
        if (i == 1)
            first = -r;
    }
    if (r < 0) {
        free(region);
        return cw_error_errno(err, CW_E_MEMORY, -r,
                              "the system refuses to map %zu bytes of memory for batches, and also a larger "
                              "region of %zu bytes: is the address space limited (ulimit -v)?",
                              size, sizes[1]);
    }
    if (first && !p->why_private.status)
        cw_error_errno(&p->why_private, CW_E_MEMORY, first, "%s", slab_why_no_memfd(first));
    if (!p->shared)
        /* a forked child gets only the slabs in users' hands (slab_fork.c) */
        (void)madvise(region->data, region->size, MADV_DONTFORK);
    region->next = p->regions;
    p->regions = region;
    return 0;
}

/* Makes a new slab in a region with room for it. The pool's mutex is held. */
static int slab_new(struct cw_slab_pool *p, size_t size, unsigned class, struct cw_slab **ret,
                    struct cw_error *err)
{
    if (!p->regions || p->regions->size - p->regions->used < size) {
        int r = slab_region_new(p, size, err);
        if (r < 0)
            return r;
    }
    struct cw_slab *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a slab");
    struct cw_slab_region *region = p->regions;
    *s = (struct cw_slab){.pool = p,
                          .data = region->data + region->used,
                          .size = size,
                          .fd = region->fd,
                          .offset = region->used,
                          .size_class = class,
                          .made = p->made};
    p->made = s;
    region->used += size;
    *ret = s;
    return 0;
}

int cw_slab_get(struct cw_slab_pool *p, size_t size, struct cw_slab **ret, struct cw_error *err)
{
    size_t rounded;
    if (size > (size_t)1 << 46)
        return cw_error_nomem(err, size, "a batch");
    unsigned class = slab_size_class(size, &rounded);
    struct cw_slab *s;
    int r = 0;
    CW_GUARD(&p->mutex);
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
    return r;
}

void cw_slab_put(struct cw_slab *s)
{
    struct cw_slab_pool *p = s->pool;
    CW_GUARD(&p->mutex);
    if (!s->charged && !s->retired && cw_budget_take(p->budget, s->size, "a batch", NULL) == 0)
        s->charged = 1;
    struct cw_slab **list = s->retired   ? &p->retired
                            : s->charged ? &p->backed[s->size_class]
                                         : &p->punched[s->size_class];
    if (!s->charged && !s->retired)
        slab_punch(s);
    s->users = false;
    s->next = *list;
    *list = s;
    p->n_out--;
}

bool cw_slab_is_private(const struct cw_slab *s, struct cw_error *why)
{
    if (s->fd >= 0)
        return false;
    CW_GUARD(&s->pool->mutex);
    *why = s->pool->why_private;
    return true;
}

void cw_slab_disown(struct cw_slab *s)
{
    CW_GUARD(&s->pool->mutex);
    if (s->charged)
        cw_budget_give(s->pool->budget, s->size);
    s->charged = 0;
    s->users = true;
}

void cw_slab_retire(struct cw_slab *s)
{
    CW_GUARD(&s->pool->mutex);
    s->retired = true;
}

size_t cw_slab_trim(struct cw_slab_pool *p)
{
    size_t given = 0;
    CW_GUARD(&p->mutex);
    for (size_t i = 0; i < CW_COUNT_OF(p->backed); i++)
        while (p->backed[i]) {
            struct cw_slab *s = p->backed[i];
            p->backed[i] = s->next;
            slab_punch(s);
            s->charged = 0;
            cw_budget_give(p->budget, s->size);
            given += s->size;
            s->next = p->punched[i];
            p->punched[i] = s;
        }
    return given;
}
