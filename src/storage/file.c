/*
 * Reading ranges of files. A cw_file owns at most one descriptor, opened at the first read. One table of the
 * process lists all open files. When the table is full, a file that was not used lately is closed, as the
 * clock algorithm chooses it. Any thread may read; a read of an open file takes no lock.
 */
#include "storage/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/thread.h"

/* Enough for the files that concurrent reads use at a time, and far below the usual limit of 1,024 open
 * files. */
#define MAX_OPEN 256
/* A read of more bytes than this is announced to the kernel as a whole, because the kernel's read-ahead
 * usually covers only 128 KiB. */
#define ADVISE_BYTES ((size_t)256 << 10)

enum { CLOSED = -1 };

static struct {
    pthread_mutex_t mutex;
    struct cw_file *open[MAX_OPEN]; /* guarded by mutex; NULL: a free place */
    unsigned n, hand, limit;        /* guarded by mutex; limit 0: not yet known */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int cw_file_new(const char *path, const struct cw_stat *was, struct cw_file **ret, struct cw_error *err)
{
    size_t length = strlen(path) + 1;
    struct cw_file *f = malloc(sizeof(*f) + length);
    if (!f)
        return cw_error_nomem(err, sizeof(*f) + length, "a file");
    *f = (struct cw_file){.was = *was, .fd = -1, .ctime_ns = was->ctime_ns, .pins = CLOSED};
    memcpy(f->path, path, length);
    if (cw_object_is_address(path)) {
        const struct cw_object_stat version = {.size = was->size, .version = was->ctime_ns};
        int r = cw_object_new(f->path, &version, &f->object, err);
        if (r < 0) {
            free(f);
            return r;
        }
    }
    *ret = f;
    return 0;
}

const char *cw_file_path(const struct cw_file *f)
{
    return f->path;
}

uint64_t cw_file_size(const struct cw_file *f)
{
    return f->was.size;
}

struct cw_file *cw_file_free(struct cw_file *f)
{
    if (!f)
        return NULL;
    int fd = -1;
    CW_WITH (&table.mutex) {
        if (atomic_load(&f->pins) != CLOSED) {
            fd = f->fd;
            for (unsigned i = 0; i < MAX_OPEN; i++)
                if (table.open[i] == f) {
                    table.open[i] = NULL;
                    table.n--;
                }
        }
    }
    if (fd >= 0)
        close(fd);
    cw_object_free(f->object);
    free(f);
    return NULL;
}

static void table_before_fork(void)
{
    pthread_mutex_lock(&table.mutex);
}

static void table_in_parent(void)
{
    pthread_mutex_unlock(&table.mutex);
}

/* Closes all files in a forked child, because open descriptors would keep the disk space of removed files.
 * The child opens the files that it reads again. */
static void table_in_child(void)
{
    for (unsigned i = 0; i < MAX_OPEN; i++) {
        struct cw_file *f = table.open[i];
        if (!f)
            continue;
        close(f->fd);
        atomic_store(&f->pins, CLOSED); /* the threads that pinned it do not exist here */
        table.open[i] = NULL;
    }
    table.n = 0;
    pthread_mutex_unlock(&table.mutex);
}

/* Returns the limit of the table: MAX_OPEN, or a quarter of the descriptors that the process may open, which
 * leaves room for sockets and memfds. The caller holds table.mutex. */
static unsigned table_limit(void)
{
    if (!table.limit) {
        struct rlimit r;
        /* fails only if memory is short: then a forked child keeps the descriptors open */
        (void)pthread_atfork(table_before_fork, table_in_parent, table_in_child);
        table.limit = MAX_OPEN;
        if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
            table.limit = (unsigned)CW_MIN((rlim_t)MAX_OPEN, CW_MAX(r.rlim_cur / 4, (rlim_t)4));
    }
    return table.limit;
}

/* Takes an open file that no read uses out of the table. Returns its descriptor; -1: all files are in use.
 * The caller holds table.mutex. */
static int table_evict(void)
{
    for (unsigned step = 0; step < 2 * MAX_OPEN; step++) {
        struct cw_file **at = &table.open[table.hand++ % MAX_OPEN];
        int idle = 0;
        if (!*at || atomic_exchange_explicit(&(*at)->recent, 0, memory_order_relaxed))
            continue;
        int fd = (*at)->fd;
        if (!atomic_compare_exchange_strong(&(*at)->pins, &idle, CLOSED))
            continue;
        *at = NULL;
        table.n--;
        return fd;
    }
    return -1;
}

static bool table_make_room(void)
{
    int fd = CW_LOCKED(&table.mutex, table_evict());
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Opens a file without blocking, because a pipe may have replaced it. nowait: fails with EAGAIN unless the
 * kernel's cache of names knows the file. */
static int file_open_path(const char *path, bool nowait)
{
    if (nowait) {
        struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC, .resolve = RESOLVE_CACHED};
        int fd = (int)syscall(__NR_openat2, AT_FDCWD, path, &how, sizeof(how));
        if (fd >= 0 || (errno != ENOSYS && errno != EINVAL && errno != EPERM && errno != EOPNOTSUPP))
            return fd;
    }
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

int cw_file_duplicate(const struct cw_file *f, int fd, struct cw_file **ret, struct cw_error *err)
{
    struct cw_stat any = f->was;
    any.ctime_ns = CW_ANY_TIME;
    int r = cw_file_new(f->path, &any, ret, err);
    if (r < 0)
        return r;
    (*ret)->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    atomic_store(&(*ret)->pins, 1);
    return (*ret)->fd < 0 ? cw_error_errno(err, CW_E_IO, errno, "%s: dup", f->path) : 0;
}

/* Opens the file and checks that it is unchanged since it was indexed. 1: with nowait, this would have to
 * wait. */
static int file_open(struct cw_file *f, bool nowait, int *ret_fd, struct cw_error *err)
{
    int fd;
    do {
        fd = file_open_path(f->path, nowait);
    } while (fd < 0 && (errno == EINTR || ((errno == EMFILE || errno == ENFILE) && table_make_room())));
    if (fd < 0) {
        if (nowait && errno == EAGAIN)
            return 1;
        if (errno == ENOENT || errno == ENOTDIR)
            return cw_error_at_file(err, CW_E_DATA, f->path, 0, "%s: was deleted since it was indexed",
                                    f->path);
        return cw_error_at_file(err, CW_E_IO, f->path, errno, "%s: can't be opened", f->path);
    }
    int r = cw_file_check_fd(f, fd, nowait, err);
    if (r != 0) {
        close(fd);
        return r;
    }
    *ret_fd = fd;
    return 0;
}

static bool file_pin(struct cw_file *f)
{
    int n = atomic_load(&f->pins);
    while (n != CLOSED)
        if (atomic_compare_exchange_weak(&f->pins, &n, n + 1)) {
            if (!atomic_load_explicit(&f->recent, memory_order_relaxed))
                atomic_store_explicit(&f->recent, 1, memory_order_relaxed);
            return true;
        }
    return false;
}

int cw_file_acquire(struct cw_file *f, bool nowait, int *ret_fd, bool *ret_own, struct cw_error *err)
{
    *ret_own = false;
    if (file_pin(f)) {
        *ret_fd = f->fd;
        return 0;
    }
    int fd = -1, stale = -1;
    int r = file_open(f, nowait, &fd, err);
    if (r != 0)
        return r;
    CW_WITH (&table.mutex) {
        if (file_pin(f)) { /* another thread was quicker */
            stale = fd;
            fd = f->fd;
        } else {
            if (table.n >= table_limit())
                stale = table_evict();
            if (table.n < table_limit()) {
                unsigned i = 0;
                while (table.open[i])
                    i++;
                table.open[i] = f;
                table.n++;
                f->fd = fd;
                atomic_store_explicit(&f->recent, 1, memory_order_relaxed);
                atomic_store(&f->pins, 1);
            } else {
                *ret_own = true;
            }
        }
    }
    if (stale >= 0)
        close(stale);
    *ret_fd = fd;
    return 0;
}

/* Reads only from the page cache. 1: some bytes are not in it, or the file system can't tell. */
static int file_read_nowait(struct cw_file *f, int fd, uint64_t offset, const struct iovec *v, int n_v,
                            size_t length)
{
    ssize_t n;
    do {
        n = preadv2(fd, v, n_v, (off_t)offset, RWF_NOWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
        atomic_store_explicit(&f->no_nowait, 1, memory_order_relaxed);
    return n >= 0 && (size_t)n == length ? 0 : 1;
}

/* Returns the piece of v that holds its byte number `done`, from that byte on. */
static struct iovec iovec_rest(const struct iovec *v, size_t done)
{
    for (; done >= v->iov_len; v++)
        done -= v->iov_len;
    return (struct iovec){.iov_base = (uint8_t *)v->iov_base + done, .iov_len = v->iov_len - done};
}

static int file_read_wait(struct cw_file *f, int fd, uint64_t offset, const struct iovec *v, int n_v,
                          size_t length, struct cw_error *err)
{
    if (length > ADVISE_BYTES)
        (void)posix_fadvise(fd, (off_t)offset, (off_t)length, POSIX_FADV_WILLNEED);
    for (size_t done = 0; done < length;) {
        struct iovec rest = done ? iovec_rest(v, done) : (struct iovec){0};
        ssize_t n = done ? pread(fd, rest.iov_base, rest.iov_len, (off_t)(offset + done))
                         : preadv(fd, v, n_v, (off_t)offset);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            return cw_error_at_file(err, CW_E_DATA, f->path, 0,
                                    "%s: changed since it was indexed: it ends at byte %" PRIu64
                                    ", and its size was %" PRIu64 " bytes",
                                    f->path, offset + done, f->was.size);
        } else if (errno != EINTR) {
            return cw_error_at_file(err, CW_E_IO, f->path, errno, "%s: can't read %zu bytes at byte %" PRIu64,
                                    f->path, length, offset);
        }
    }
    return 0;
}

void cw_file_release(struct cw_file *f, int fd, bool own)
{
    if (own)
        close(fd);
    else
        atomic_fetch_sub(&f->pins, 1);
}

int cw_file_read(struct cw_file *f, uint64_t offset, void *buffer, size_t length, bool nowait,
                 struct cw_error *err)
{
    const struct iovec v = {.iov_base = buffer, .iov_len = length};
    return cw_file_readv(f, offset, &v, 1, nowait, err);
}

int cw_file_readv(struct cw_file *f, uint64_t offset, const struct iovec *v, int n_v, bool nowait,
                  struct cw_error *err)
{
    size_t length = 0;
    for (int i = 0; i < n_v; i++)
        length += v[i].iov_len;
    if (offset > f->was.size || length > f->was.size - offset) {
        return cw_error_at_file(err, CW_E_DATA, f->path, 0,
                                "%s: can't read %zu bytes at byte %" PRIu64 ": the file ends at byte %" PRIu64
                                "",
                                f->path, length, offset, f->was.size);
    }
    if (nowait && (f->object || atomic_load_explicit(&f->no_nowait, memory_order_relaxed)))
        return 1;
    if (f->object)
        return cw_object_readv(f->object, offset, v, n_v, err);
    int fd;
    bool own;
    int r = cw_file_acquire(f, nowait, &fd, &own, err);
    if (r != 0)
        return r;
    r = nowait ? file_read_nowait(f, fd, offset, v, n_v, length)
               : file_read_wait(f, fd, offset, v, n_v, length, err);
    cw_file_release(f, fd, own);
    return r;
}

bool cw_file_is_remote(const struct cw_file *f)
{
    return f->object != NULL;
}

bool cw_file_tells_residency(const struct cw_file *f)
{
    return !f->object && !atomic_load_explicit(&f->no_nowait, memory_order_relaxed);
}
