/* --log and --quarantine: JSON lines; directories of results. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "session/report.h"

int cw_output_dir(const char *option, const char *dir, struct cw_error *err)
{
    struct stat st;
    int e = mkdir(dir, 0777) < 0 ? errno : 0;
    if (e == EEXIST)
        e = stat(dir, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (!e)
        return 0;
    cw_error_attribute(err, option, dir, "a directory that is there or can be made");
    return cw_error_errno(err, CW_E_OPTION, e, "--%s: can't make directory %s", option, dir);
}

int cw_log_open(struct cw_log *l, const char *path, struct cw_error *err)
{
    l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (l->fd < 0) {
        l->fd = 0;
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_OPTION, errno, "--log: can't open %s", path);
    }
    return 0;
}

void cw_log_close(struct cw_log *l)
{
    if (l->fd)
        close(l->fd);
    l->fd = 0;
}

/* Nobody should append to half a line: what was written of it goes, if nobody wrote behind it. */
static void take_back(int fd, size_t n)
{
    struct stat st;
    off_t end = lseek(fd, 0, SEEK_CUR);
    if (n && end >= (off_t)n && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == end &&
        ftruncate(fd, end - (off_t)n) < 0)
        fprintf(stderr, "cachew: --log: the last line is not complete: %s\n", strerror(errno));
}

static int write_line(int fd, const char *line, size_t size, struct cw_error *err)
{
    size_t written = 0;
    while (written < size) {
        ssize_t n = write(fd, line + written, size - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int e = n < 0 ? errno : EIO;
            take_back(fd, written);
            return cw_error_errno(err, CW_E_IO, e, "--log: can't write %zu bytes", size);
        }
        written += (size_t)n;
    }
    return 0;
}

int cw_log_batch(struct cw_log *l, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank,
                 struct cw_hash128 hash, struct cw_error *err)
{
    struct cw_text t = {0};
    struct timeval now;
    char text[128];
    int r = 0;
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
    if (t.failed)
        r = cw_error_nomem(err, t.capacity, "a log line");
    else
        r = write_line(l->fd, t.data, t.size, err);
    cw_text_deinit(&t);
    return r;
}

int cw_quarantine_open(const char *path, bool append, FILE **ret, struct cw_error *err)
{
    *ret = fopen(path, append ? "ae" : "we");
    if (*ret)
        return 0;
    int e = errno;
    cw_error_file(err, path);
    return cw_error_errno(err, CW_E_OPTION, e, "--quarantine: can't open %s", path);
}

int cw_quarantine_write(FILE *f, const char *path, const struct cw_compiled *c,
                        const struct cw_quarantined *list, struct cw_error *err)
{
    bool failed = false;
    for (const struct cw_quarantined *q = list; q; q = q->next) {
        json_t *o = cw_report_quarantined(c, q);
        failed |= !o || json_dumpf(o, f, JSON_COMPACT) < 0 || fputc('\n', f) < 0;
        json_decref(o);
    }
    failed |= fclose(f) != 0;
    return failed ? cw_error_errno(err, CW_E_IO, errno, "--quarantine: can't write %s", path) : 0;
}
