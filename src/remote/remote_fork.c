/*
 * What becomes of lent batches when the process forks: the child gets those that users have, as they are at
 * the fork, as it does of memory of our own (data/slab_fork.c). It can't share this memory with its parent:
 * the worker writes to it again once the parent gives it back. So what users have is copied before the fork,
 * and the child finds the copies in its place; of all else that is lent it gets nothing (remote_lent.c).
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "remote/remote_impl.h"

/* taken alone; held during a fork, so that nothing is given back meanwhile */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cw_link users = {&users, &users}; /* guarded by mutex: what users have of all remotes */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The pages that lent memory lies in. Where pages are larger than the pieces that memory is lent in (64 KiB),
 * others' may lie there too. */
static size_t pages(const struct cw_memory *m, uint8_t **ret)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)m->data % page;
    *ret = m->data - before;
    return CW_ALIGN_UP(before + m->size, page);
}

static void copy(struct cw_memory *m, uint8_t **ret)
{
    uint8_t *at;
    size_t size = pages(m, &at);
    uint8_t *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *ret = to == MAP_FAILED ? NULL : to; /* without memory the child has no such batch */
    if (*ret)
        /* whole pages: the copy of another batch may come to the same place, and must have what users have of
         * this one */
        memcpy(to, at, size);
}

static void before(void)
{
    pthread_mutex_lock(&mutex);
    CW_LIST_EACH (link, &users) {
        struct remote_batch *b = CW_CONTAINER(link, struct remote_batch, users_link);
        for (unsigned i = 0; i < b->n_lent; i++)
            copy(&b->memory[i], &b->copies[i]);
    }
}

static void in_parent(void)
{
    uint8_t *at;
    CW_LIST_EACH (link, &users) {
        const struct remote_batch *b = CW_CONTAINER(link, struct remote_batch, users_link);
        for (unsigned i = 0; i < b->n_lent; i++)
            if (b->copies[i])
                munmap(b->copies[i], pages(&b->memory[i], &at));
    }
    pthread_mutex_unlock(&mutex);
}

/* Nothing of the engine runs here, and nothing is given back. */
static void in_child(void)
{
    uint8_t *at;
    CW_LIST_EACH (link, &users) {
        const struct remote_batch *b = CW_CONTAINER(link, struct remote_batch, users_link);
        for (unsigned i = 0; i < b->n_lent; i++) {
            size_t size = pages(&b->memory[i], &at);
            if (b->copies[i])
                (void)mremap(b->copies[i], size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
        }
    }
    cw_list_init(&users);
    pthread_mutex_unlock(&mutex);
}

static void install(void)
{
    (void)pthread_atfork(before, in_parent,
                         in_child); /* fails without memory: then a child has no lent batches */
}

void cw_remote_users_add(struct remote_batch *b)
{
    if (!b->n_lent)
        return;
    pthread_once(&once, install);
    CW_GUARD(&mutex);
    b->users = true;
    cw_list_add(&users, &b->users_link);
}

void cw_remote_users_remove(struct remote_batch *b)
{
    if (!b->users)
        return;
    CW_GUARD(&mutex);
    cw_link_out(&b->users_link);
}
