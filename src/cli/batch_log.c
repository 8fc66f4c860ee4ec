#include "cli/batch_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/text.h"

int cli_batch_log_open(const char *path, int *ret_fd, struct cw_error *err)
{
    *ret_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return *ret_fd < 0 ? cw_error_at_file(err, CW_E_OPTION, path, errno, "--log: can't open %s", path) : 0;
}

/* Removes the n bytes of a partial line, unless another process has appended to the file since. */
static void log_remove_partial(int fd, size_t n)
{
    struct stat st;
    off_t end = lseek(fd, 0, SEEK_CUR);
    if (n && end >= (off_t)n && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == end &&
        ftruncate(fd, end - (off_t)n) < 0)
        fprintf(stderr, "cachew: --log: the last line is not complete: %s\n", strerror(errno));
}

static int log_write(int fd, const char *line, size_t size, struct cw_error *err)
{
    size_t written = 0;
    while (written < size) {
        ssize_t n = write(fd, line + written, size - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int e = n < 0 ? errno : EIO;
            log_remove_partial(fd, written);
            return cw_error_errno(err, CW_E_IO, e, "--log: can't write %zu bytes", size);
        }
        written += (size_t)n;
    }
    return 0;
}

int cli_batch_log_add(int fd, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank,
                      struct cw_hash128 hash, struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text t = {0};
    struct timeval now;
    char text[128];
    gettimeofday(&now, NULL);
    cw_text_add(&t, "{\"epoch\":%" PRIu64 ",\"g\":%" PRIu64 ",\"rank\":%u,\"n\":%u,\"flags\":[", b->epoch,
                b->g, rank, b->n);
    for (uint32_t i = 0; i < b->n; i++)
        cw_text_add(&t, "%s%u", i ? "," : "", b->ids[i].flags);
    cw_text_add(&t, "],\"records\":[");
    for (uint32_t i = 0; i < b->n; i++) {
        cw_record_print(&c->programs[b->ids[i].leaf], &b->ids[i], text);
        cw_text_add(&t, "%s\"%s\"", i ? "," : "", text);
    }
    cw_hash128_print(hash, text);
    cw_text_add(&t, "],\"hash\":\"%s\",\"t\":%lld.%06ld}\n", text, (long long)now.tv_sec, (long)now.tv_usec);
    return t.failed ? cw_error_nomem(err, t.capacity, "a log line") : log_write(fd, t.data, t.size, err);
}
