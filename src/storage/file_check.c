/* Checks that a file is unchanged since it was indexed: by its size and times, and by its content if only its
 * change time differs. */
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "storage/internal.h"

void cw_file_compare_by(struct cw_file *f, cw_file_same *same, const void *index, size_t i)
{
    f->same = same;
    f->index = index;
    f->number = i;
}

uint64_t cw_file_stamp(const struct cw_file *f)
{
    struct cw_key k = {0};
    cw_key_u64(&k, (uint64_t)f->was.mtime_ns);
    cw_key_u64(&k, (uint64_t)f->was.ctime_ns);
    return cw_key_hash(&k);
}

bool cw_file_unchanged(struct cw_file *f, uint64_t turn, bool strictly)
{
    struct cw_stat now, was = f->was;
    if (f->object) /* the run uses this version, whatever the server has now; each read checks it */
        return true;
    /* Strictly: the change time must be that of the index. Otherwise a later one is accepted, too, if the
     * content was compared at that time and was the same. */
    if (!strictly)
        was.ctime_ns = atomic_load_explicit(&f->ctime_ns, memory_order_relaxed);
    /* this turn (in practice: this epoch) has already found the file unchanged; 0 stands for no turn */
    if (atomic_load_explicit(&f->looked_at, memory_order_relaxed) == turn + 1)
        return true;
    if (cw_stat(f->path, &now, NULL) < 0 || !cw_stat_same(&now, &was))
        return false;
    atomic_store_explicit(&f->looked_at, turn + 1, memory_order_relaxed);
    return true;
}

static int check_other_time(const struct cw_file *f, const char *what, int64_t was_ns,
                            const struct timespec *is, struct cw_error *err)
{
    return cw_error_set(
        err, CW_E_DATA,
        "%s: changed since it was indexed: its %s was %" PRId64 ".%09d and is now %" PRId64 ".%09d", f->path,
        what, was_ns / 1000000000, (int)(was_ns % 1000000000), (int64_t)is->tv_sec, (int)is->tv_nsec);
}

/* Compares the content of a file whose change time differs with the index. Only one thread of the process
 * does this at a time, because the threads that wait usually want the same file. */
static int check_content(struct cw_file *f, int fd, struct cw_error *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct cw_file *again = NULL;
    struct cw_error why = {0};
    struct stat s;
    bool same = false;
    CW_GUARD(&mutex);
    int r = fstat(fd, &s);
    if (r == 0 && cw_settle(cw_timespec_ns(&s.st_ctim)))
        r = fstat(fd, &s);
    if (r < 0)
        r = cw_error_errno(&why, CW_E_IO, errno, "%s: fstat", f->path);
    else if (cw_timespec_ns(&s.st_ctim) == atomic_load(&f->ctime_ns))
        same = true; /* another thread has compared the content meanwhile */
    else if ((r = cw_file_duplicate(f, fd, &again, &why)) == 0)
        r = f->same(f->index, f->number, again, &same, &why);
    if (r == 0 && same)
        atomic_store(&f->ctime_ns, cw_timespec_ns(&s.st_ctim));
    cw_file_free(again);
    /* CW_E_DATA: the content is damaged. It was not damaged when the file was indexed, so it has changed. */
    if (r == CW_E_DATA || (r == 0 && !same))
        return cw_error_set(err, CW_E_DATA,
                            "%s: changed since it was indexed: its content differs, although its size "
                            "and modification time do not",
                            f->path);
    return r < 0 ? cw_error_copy(err, &why) : r;
}

int cw_file_check_fd(struct cw_file *f, int fd, bool nowait, struct cw_error *err)
{
    struct stat s;
    int r = 0;
    if (fstat(fd, &s) < 0)
        r = cw_error_errno(err, CW_E_IO, errno, "%s: fstat", f->path);
    else if (!S_ISREG(s.st_mode))
        r = cw_error_set(err, CW_E_DATA, "%s: changed since it was indexed: it is no longer a regular file",
                         f->path);
    else if ((uint64_t)s.st_size != f->was.size)
        r = cw_error_set(err, CW_E_DATA,
                         "%s: changed since it was indexed: its size was %" PRIu64
                         " bytes and is now %" PRIu64,
                         f->path, f->was.size, (uint64_t)s.st_size);
    else if (cw_timespec_ns(&s.st_mtim) != f->was.mtime_ns)
        r = check_other_time(f, "modification time", f->was.mtime_ns, &s.st_mtim, err);
    else if (f->was.ctime_ns != CW_ANY_TIME &&
             cw_timespec_ns(&s.st_ctim) != atomic_load_explicit(&f->ctime_ns, memory_order_relaxed))
        r = !f->same ? check_other_time(f, "change time (ctime: of content, name or permissions)",
                                        f->was.ctime_ns, &s.st_ctim, err)
            : nowait ? 1 /* comparing the content would have to read the file */
                     : check_content(f, fd, err);
    if (r < 0)
        cw_error_file(err, f->path);
    return r;
}

int cw_file_check(struct cw_file *f, uint64_t since_ns, bool nowait, struct cw_error *err)
{
    uint64_t now = cw_now_ns();
    int fd;
    bool own;
    if (f->object || atomic_load_explicit(&f->checked_ns, memory_order_relaxed) >= since_ns)
        return 0;
    int r = cw_file_acquire(f, nowait, &fd, &own, err);
    if (r != 0)
        return r;
    r = cw_file_check_fd(f, fd, nowait, err);
    cw_file_release(f, fd, own);
    if (r == 0)
        atomic_store_explicit(&f->checked_ns, now, memory_order_relaxed);
    return r;
}

int cw_file_verdict(struct cw_file *f, int r, struct cw_error *err)
{
    struct cw_error changed = {0};
    return cw_file_check(f, cw_now_ns(), false, &changed) < 0 ? cw_error_copy(err, &changed) : r;
}
