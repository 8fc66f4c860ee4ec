/* The file of a trace: lines are collected in a buffer and written whole. */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"

#define BUFFER ((size_t)64 << 10)
/* a killed process loses the lines of this time at most, or those in a full buffer */
#define FLUSH_NS UINT64_C(1000000000)
#define LINE 512 /* bytes; no line is longer */

struct cw_trace {
    /* immutable */
    int fd, pid;
    /* ns from cw_now_ns to the time of day, so that files of several processes can be joined */
    uint64_t offset_ns;
    uint64_t limit;
    pthread_mutex_t mutex;
    /* guarded by mutex: */
    uint64_t written, n_dropped;
    int errnum; /* error number of the write that failed; after it nothing more is written */
    uint64_t flushed_ns;
    size_t size;
    char buffer[BUFFER]; /* whole lines */
};

/* Writes the buffer. Mutex held. */
static void trace_flush(struct cw_trace *t)
{
    size_t done = 0;
    while (done < t->size && !t->errnum) {
        ssize_t n = write(t->fd, t->buffer + done, t->size - done);
        if (n < 0 && errno != EINTR)
            t->errnum = errno;
        done += n > 0 ? (size_t)n : 0;
    }
    t->written += t->errnum ? 0 : t->size;
    t->size = 0;
    t->flushed_ns = cw_now_ns();
    if (t->errnum && done && ftruncate(t->fd, (off_t)t->written) < 0)
        return; /* half a line was written; `cachew trace` leaves it out */
}

/* Adds a line to the buffer, or counts it as dropped. Mutex held. */
static void trace_add_line(struct cw_trace *t, const char *line, size_t size, uint64_t now_ns)
{
    if (t->size + size > BUFFER || now_ns > t->flushed_ns + FLUSH_NS)
        trace_flush(t);
    if (t->errnum || t->written + t->size + size > t->limit) {
        t->n_dropped++;
        return;
    }
    memcpy(t->buffer + t->size, line, size);
    t->size += size;
}

int cw_trace_open(const char *path, const char *process, uint64_t limit, struct cw_trace **ret,
                  struct cw_error *err)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return cw_error_at_file(err, CW_E_OPTION, path, errno, "--trace: can't open %s", path);
    struct cw_trace *t = malloc(sizeof(*t));
    if (!t)
        return cw_error_nomem(err, sizeof(*t), "a trace");
    *t = (struct cw_trace){.fd = CW_STEAL_FD(fd),
                           .pid = (int)getpid(),
                           .limit = limit,
                           .mutex = PTHREAD_MUTEX_INITIALIZER,
                           .offset_ns = cw_clock_ns(CLOCK_REALTIME) - cw_now_ns()};
    t->size = (size_t)snprintf(t->buffer, LINE,
                               "[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":1,\"ts\":0,"
                               "\"args\":{\"name\":\"%.200s %d\"}},\n",
                               t->pid, process, t->pid);
    trace_flush(t); /* write the head, so that the file is a valid trace from now on */
    *ret = t;
    return 0;
}

static int trace_print_event(const struct cw_trace *t, char phase, const char *name,
                             const struct cw_traced *what, uint64_t ns, char line[LINE])
{
    uint64_t at = ns + t->offset_ns;
    const uint8_t *s = what->stream;
    char batch[40] = "";
    bool range = what->batch == CW_TRACE_RANGE;
    if (!range)
        snprintf(batch, sizeof(batch), what->key ? "/%" PRIu64 ".%u" : "/%" PRIu64, what->batch, what->key);
    return snprintf(line, LINE,
                    "{\"ph\":\"%c\",\"cat\":\"%s\",\"name\":\"%s\",\"id\":\"%02x%02x%02x%02x:%" PRIu64
                    "/%" PRIu64 "%s\",\"pid\":%d,\"tid\":1,\"ts\":%" PRIu64 ".%03u},\n",
                    phase, range ? "range" : "batch", name, s[0], s[1], s[2], s[3], what->epoch, what->begin,
                    batch, t->pid, at / 1000, (unsigned)(at % 1000));
}

void cw_trace_span(struct cw_trace *t, const char *name, const struct cw_traced *what, uint64_t from_ns,
                   uint64_t to_ns)
{
    char lines[2 * LINE]; /* the begin and the end of a span are added together or not at all */
    if (!t)
        return;
    int n = trace_print_event(t, 'b', name, what, from_ns, lines);
    n += trace_print_event(t, 'e', name, what, to_ns, lines + n);
    CW_GUARD(&t->mutex);
    trace_add_line(t, lines, (size_t)n, to_ns);
}

int cw_trace_close(struct cw_trace *t, struct cw_error *err)
{
    char line[LINE];
    if (!t)
        return 0;
    int n = snprintf(line, sizeof(line),
                     "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":%d,\"tid\":1,\"ts\":0,\"args\":{"
                     "\"labels\":\"%" PRIu64 " spans left out\"}}\n]\n",
                     t->pid, t->n_dropped);
    t->limit = UINT64_MAX; /* so that the end of the file always has room */
    trace_add_line(t, line, (size_t)n, 0);
    trace_flush(t);
    int e = t->errnum ? t->errnum : close(t->fd) < 0 ? errno : 0;
    if (t->errnum)
        close(t->fd);
    pthread_mutex_destroy(&t->mutex);
    free(t);
    return e ? cw_error_errno(err, CW_E_IO, e, "--trace: can't be written") : 0;
}
