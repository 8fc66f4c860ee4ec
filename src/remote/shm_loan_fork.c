/* Batches in shared memory when this process forks. The child gets the batches that the user has, as they are
 * at the fork, as it does with the process's own memory (data/slab_fork.c). The child can't share this memory
 * with its parent: the worker writes to it again once the parent has returned it. So these batches are copied
 * before the fork, and the child finds the copies at the same addresses. Other batches do not exist in the
 * child (shm_loan.c). */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"
#include "remote/shm_loan.h"

/* No other mutex is taken with it. Held during a fork, so that no loan is returned in that time. */
static pthread_mutex_t users_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct cw_link users = {
    &users, &users}; /* loans whose batches users have, of all jobs; guarded by users_mutex */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Returns the size of the pages that contain a loan's memory, and sets *ret to their begin. Slabs are
 * multiples of 64 KiB; with larger pages, other slabs may be in the same pages. */
static size_t loan_pages(const struct cw_memory *m, uint8_t **ret)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)m->data % page;
    *ret = m->data - before;
    return CW_ALIGN_UP(before + m->size, page);
}

/* Sets *ret to a copy of the pages; NULL: out of memory, and the child will not have the batch. Whole pages
 * are copied, because the copy of another batch may be moved to the same pages later, and must contain this
 * batch, too. */
static void loan_copy(struct cw_memory *m, uint8_t **ret)
{
    uint8_t *at;
    size_t size = loan_pages(m, &at);
    uint8_t *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *ret = to == MAP_FAILED ? NULL : memcpy(to, at, size);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&users_mutex);
    CW_LIST_EACH_OF (l, struct shm_loan, users_link, &users)
        for (unsigned i = 0; i < l->n; i++)
            loan_copy(&l->memory[i], &l->copies[i]);
}

static void fork_parent(void)
{
    uint8_t *at;
    CW_LIST_EACH_OF (l, struct shm_loan, users_link, &users)
        for (unsigned i = 0; i < l->n; i++)
            if (l->copies[i])
                munmap(l->copies[i], loan_pages(&l->memory[i], &at));
    pthread_mutex_unlock(&users_mutex);
}

/* In the child no thread of the engine runs, and no loan is returned. */
static void fork_child(void)
{
    uint8_t *at;
    CW_LIST_EACH_OF (l, struct shm_loan, users_link, &users)
        for (unsigned i = 0; i < l->n; i++) {
            size_t size = loan_pages(&l->memory[i], &at);
            if (l->copies[i])
                (void)mremap(l->copies[i], size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at);
        }
    cw_list_init(&users);
    pthread_mutex_unlock(&users_mutex);
}

/* If this fails for lack of memory, children have no batches in shared memory. */
static void fork_install(void)
{
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void cw_shm_loan_users_add(struct shm_loan *l)
{
    if (!l)
        return;
    pthread_once(&fork_once, fork_install);
    CW_GUARD(&users_mutex);
    cw_list_add(&users, &l->users_link);
}

void cw_shm_loan_users_remove(struct shm_loan *l)
{
    if (!l)
        return;
    CW_GUARD(&users_mutex);
    cw_link_out(&l->users_link);
}
