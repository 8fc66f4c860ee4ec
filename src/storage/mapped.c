/*
 * If a page of a mapped file can't be read, the kernel sends SIGBUS, which would end the process. The signal
 * handler here replaces the mapping by zeros instead, and the file is not copied from any more. The handler
 * finds the file in a table without locks. It passes any other SIGBUS to the handler that was installed
 * before.
 */
#include "storage/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macro.h"

#define MAX_FILES 4096 /* files mapped at a time; further files are read with read(2) */
#define MAX_PAGES 4096 /* pages checked together, with a byte for each on the stack */
#define CLAIMED ((uintptr_t)1)

struct cw_mapped { /* an entry of the table */
    atomic_uintptr_t
        from; /* address of the mapping; 0: the entry is free; CLAIMED: it is being filled or freed */
    atomic_size_t size;
    atomic_bool failed; /* the mapping was replaced by zeros */
};

static struct cw_mapped table[MAX_FILES];
static struct sigaction before;
static size_t page_bytes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/*
 * Replaces the whole mapping of the file at this address by zeros; a part would be one more mapping, whose
 * number is limited. False: no file of the table is mapped at this address. Async-signal-safe.
 */
static bool mapped_put_zeros(uintptr_t at)
{
    for (size_t i = 0; i < MAX_FILES; i++) {
        uintptr_t from = atomic_load(&table[i].from);
        size_t size = atomic_load(&table[i].size);
        /* `from` is loaded twice: if it changed, `size` may belong to another file */
        if (from <= CLAIMED || at < from || at - from >= size || atomic_load(&table[i].from) != from)
            continue;
        atomic_store(&table[i].failed, true);
        /* NOLINT(performance-no-int-to-ptr): it is one */
        return mmap((void *)from, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
               MAP_FAILED;
    }
    return false;
}

/* Does what would happen without this handler. The signals that the previous handler wants blocked are
 * blocked already (mapped_install). */
static void mapped_pass_on(int signal, siginfo_t *info, void *context)
{
    static const struct sigaction none = {.sa_handler = SIG_DFL};
    bool sent = info->si_code <=
                0; /* sent by a process; else the fault repeats as soon as this handler returns */
    if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && !sent)) {
        (void)sigaction(signal, &none, NULL);
        if (sent)
            (void)raise(signal);
    } else if (before.sa_handler != SIG_IGN) {
        if (before.sa_flags &
            SA_RESETHAND) /* such a handler may rely on the next SIGBUS ending the process */
            (void)sigaction(signal, &none, NULL);
        if (before.sa_flags & SA_SIGINFO)
            before.sa_sigaction(signal, info, context);
        else
            before.sa_handler(signal);
    }
}

static void mapped_on_bus_error(int signal, siginfo_t *info, void *context)
{
    int e = errno;
    if (info->si_code <= 0 || !mapped_put_zeros((uintptr_t)info->si_addr))
        mapped_pass_on(signal, info, context);
    errno = e;
}

/* A forked child has none of the mappings. The entries of the table stay CLAIMED in the child, so that
 * freeing an entry does not unmap memory that is mapped at its address later. */
static void mapped_in_child(void)
{
    for (size_t i = 0; i < MAX_FILES; i++)
        if (atomic_load(&table[i].from) != 0)
            atomic_store(&table[i].from, CLAIMED);
}

static void mapped_install(void)
{
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    (void)sigaction(SIGBUS, NULL, &before);
    struct sigaction a = {.sa_sigaction = mapped_on_bus_error,
                          .sa_mask = before.sa_mask,
                          .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | (before.sa_flags & SA_NODEFER)};
    (void)sigaction(SIGBUS, &a, NULL);
    /* fails only if memory is short: then a forked child's table stays as it is */
    (void)pthread_atfork(NULL, NULL, mapped_in_child);
}

/* Returns whether the handler is still in place; the program or another library may have replaced it. */
static bool mapped_is_guarded(void)
{
    struct sigaction a;
    return sigaction(SIGBUS, NULL, &a) == 0 && (a.sa_flags & SA_SIGINFO) &&
           a.sa_sigaction == mapped_on_bus_error;
}

static struct cw_mapped *mapped_claim(void)
{
    for (size_t i = 0; i < MAX_FILES; i++) {
        uintptr_t free_one = 0;
        if (atomic_load(&table[i].from) == 0 &&
            atomic_compare_exchange_strong(&table[i].from, &free_one, CLAIMED))
            return &table[i];
    }
    return NULL;
}

/* Returns whether address space is unlimited. With a limit, mapped files could take the room of batches. */
static bool mapped_has_address_space(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur == RLIM_INFINITY;
}

struct cw_mapped *cw_mapped_new(int fd, uint64_t size)
{
    struct stat st;
    pthread_once(&once, mapped_install);
    /* For another user's file, mincore(2) reports all pages as in memory. */
    if (size == 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || (uint64_t)st.st_size != size ||
        !mapped_has_address_space())
        return NULL;
    struct cw_mapped *m = mapped_claim();
    if (!m)
        return NULL;
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        /* a forked child's mapping would keep the disk space of a removed file */
        (void)madvise(at, size, MADV_DONTFORK);
    atomic_store(&m->size, size);
    atomic_store(&m->failed, false);
    atomic_store(&m->from, at == MAP_FAILED ? 0 : (uintptr_t)at);
    return at == MAP_FAILED ? NULL : m;
}

struct cw_mapped *cw_mapped_free(struct cw_mapped *m)
{
    uintptr_t from = m ? atomic_load(&m->from) : 0;
    if (from > CLAIMED) {
        atomic_store(&m->from, CLAIMED); /* after munmap, another mapping may get this address */
        (void)munmap((void *)from, atomic_load(&m->size)); /* NOLINT(performance-no-int-to-ptr): it is one */
        atomic_store(&m->from, 0);
    }
    return NULL;
}

static bool mapped_in_memory(uintptr_t at, size_t length)
{
    unsigned char there[MAX_PAGES], all = 1;
    size_t before_it = at % page_bytes, pages = (before_it + length + page_bytes - 1) / page_bytes;
    void *first = (void *)(at - before_it); /* NOLINT(performance-no-int-to-ptr): within a mapping */
    if (pages > MAX_PAGES || mincore(first, pages * page_bytes, there) < 0)
        return false;
    for (size_t i = 0; i < pages; i++)
        all &= there[i];
    return all & 1;
}

/* Returns the address of these bytes; 0: they can't be copied. */
static uintptr_t mapped_at(struct cw_mapped *m, uint64_t offset, size_t length)
{
    size_t size = atomic_load_explicit(&m->size, memory_order_relaxed);
    uintptr_t from = atomic_load_explicit(&m->from, memory_order_relaxed);
    bool sound = from > CLAIMED && !atomic_load_explicit(&m->failed, memory_order_relaxed) &&
                 offset <= size && length <= size - offset;
    return sound ? from + offset : 0;
}

bool cw_mapped_resident(struct cw_mapped *m, uint64_t offset, size_t length)
{
    uintptr_t first = mapped_at(m, offset, length);
    return first && mapped_is_guarded() && mapped_in_memory(first, length);
}

bool cw_mapped_copy(struct cw_mapped *m, uint64_t offset, const struct iovec *v, int n_v, size_t length)
{
    /* NOLINT(performance-no-int-to-ptr): it is one */
    const uint8_t *from = (const uint8_t *)mapped_at(m, offset, length);
    for (int i = 0; i < n_v && from; from += v[i++].iov_len)
        if (v[i].iov_len)
            memcpy(v[i].iov_base, from, v[i].iov_len);
    return from;
}

const uint8_t *cw_mapped_bytes(const struct cw_mapped *m)
{
    uintptr_t from = atomic_load(&m->from);
    if (from <= CLAIMED || !mapped_is_guarded() || cw_mapped_failed(m))
        return NULL;
    return (const uint8_t *)from; /* NOLINT(performance-no-int-to-ptr): it is one */
}

bool cw_mapped_failed(const struct cw_mapped *m)
{
    return atomic_load(&m->failed);
}
