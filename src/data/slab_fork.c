/*
 * Handles private slabs when the process forks. The child gets the slabs that are in users' hands, as a copy
 * on write, so that it does not see later changes by the parent. It gets none of the other slabs, which may
 * be most of the memory. This code runs in the thread that forks, which holds no lock of the engine except
 * possibly that of a runner.
 */
#include "data/slab.h"

#include <sys/mman.h>

#include "base/thread.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* locked before the mutex of a pool */
static struct cw_slab_pool *pools;                        /* guarded by mutex */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void slab_fork_each_users(int advice)
{
    for (struct cw_slab_pool *p = pools; p; p = p->next)
        for (struct cw_slab *s = p->made; s; s = s->made)
            if (s->users)
                /* fails if the process would have over 65,530 mappings (vm.max_map_count) */
                (void)madvise(s->data, s->size, advice);
}

static void slab_fork_unlock_all(void)
{
    for (struct cw_slab_pool *p = pools; p; p = p->next)
        pthread_mutex_unlock(&p->mutex);
    pthread_mutex_unlock(&mutex);
}

static void slab_fork_before(void)
{
    pthread_mutex_lock(&mutex);
    for (struct cw_slab_pool *p = pools; p; p = p->next)
        pthread_mutex_lock(&p->mutex);
    slab_fork_each_users(MADV_DOFORK);
}

static void slab_fork_in_parent(void)
{
    slab_fork_each_users(MADV_DONTFORK);
    slab_fork_unlock_all();
}

/* Empties the list of pools in the child: the engine does not run there, and no slab is given back. */
static void slab_fork_in_child(void)
{
    slab_fork_unlock_all();
    pools = NULL;
}

static void slab_fork_install(void)
{
    (void)pthread_atfork(slab_fork_before, slab_fork_in_parent,
                         slab_fork_in_child); /* fails only if memory is short: then a child has no batches */
}

void cw_slab_fork_add(struct cw_slab_pool *p)
{
    pthread_once(&once, slab_fork_install);
    CW_GUARD(&mutex);
    p->next = pools;
    pools = p;
}

void cw_slab_fork_remove(struct cw_slab_pool *p)
{
    CW_GUARD(&mutex);
    struct cw_slab_pool **at = &pools;
    while (*at && *at != p) /* in a child, a pool of the parent is not in the list */
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}
