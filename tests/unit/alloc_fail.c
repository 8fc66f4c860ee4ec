#include "alloc_fail.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The allocator below: glibc's, or that of AddressSanitizer, which goes on looking for leaks and misuse. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(WITH_ASAN)
#define REAL(name) __interceptor_##name
#define REAL_IS_ASAN 1
#else
#define REAL(name) __libc_##name
#endif
void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t n, size_t size);
void *REAL(realloc)(void *p, size_t size);
void *REAL(memalign)(size_t alignment, size_t size);
void REAL(free)(void *p);

static _Atomic bool armed, happened;
static _Atomic uint64_t calls, fail_at;
static _Atomic int64_t live;
static const char *volatile what;

void alloc_fail_arm(uint64_t n)
{
    calls = 0;
    fail_at = n;
    happened = false;
    what = "";
    armed = true;
}

uint64_t alloc_fail_disarm(void)
{
    armed = false;
    return calls;
}

bool alloc_fail_happened(void)
{
    return happened;
}

const char *alloc_fail_what(void)
{
    return what;
}
#ifdef REAL_IS_ASAN
/* its strdup and the like do not come by here; it finds leaks itself */
int64_t alloc_fail_live(void)
{
    return 0;
}
#else
int64_t alloc_fail_live(void)
{
    return live;
}
#endif

static _Thread_local bool exempt;

static bool fails(const char *name)
{
    if (!armed || exempt || ++calls != fail_at)
        return false;
    happened = true;
    what = name;
    errno = ENOMEM;
    return true;
}

#ifdef REAL_IS_ASAN
/* Which it calls in each new thread, and can't do without. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    int (*real)(pthread_t, pthread_attr_t *);
    exempt = true;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_getattr_np");
    int r = real(thread, attr);
    exempt = false;
    return r;
}
#endif

static void *counted(void *p)
{
    live += p != NULL;
    return p;
}

void *malloc(size_t size)
{
    return fails("malloc") ? NULL : counted(REAL(malloc)(size));
}

void *calloc(size_t n, size_t size)
{
    return fails("calloc") ? NULL : counted(REAL(calloc)(n, size));
}

void *memalign(size_t alignment, size_t size)
{
    return fails("memalign") ? NULL : counted(REAL(memalign)(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails("aligned_alloc") ? NULL : counted(REAL(memalign)(alignment, size));
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *p = fails("posix_memalign") ? NULL : counted(REAL(memalign)(alignment, size));
    if (!p)
        return ENOMEM;
    *ret = p;
    return 0;
}

void *realloc(void *p, size_t size)
{
    if (fails("realloc"))
        return NULL;
    void *q = REAL(realloc)(p, size);
    live += (p == NULL && q) - (p && size == 0 && !q);
    return q;
}

void free(void *p)
{
    live -= p != NULL;
    REAL(free)(p);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (fails("mmap"))
        return MAP_FAILED;
    /* NOLINT: the kernel returns an address */
    void *p = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    live += p != MAP_FAILED;
    return p;
}

int munmap(void *p, size_t length)
{
    live--;
    return (int)syscall(SYS_munmap, p, length);
}

int memfd_create(const char *name, unsigned flags)
{
    return fails("memfd_create") ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}
