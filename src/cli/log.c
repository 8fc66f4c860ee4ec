/* --log and --quarantine: JSON lines. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "client/report.h"

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

int cw_log_batch(struct cw_log *l, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank, struct cw_hash128 hash, struct cw_error *err)
{
    struct cw_text t = {0};
    struct timeval now;
    char text[128];
    int r = 0;
    gettimeofday(&now, NULL);
    cw_text_add(&t, "{\"epoch\":%" PRIu64 ",\"g\":%" PRIu64 ",\"rank\":%u,\"split\":%" PRIu64 ",\"index\":%" PRIu64 ",\"n\":%u,\"flags\":[", b->epoch, b->g, rank,
                b->split, b->index, b->n);
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
    for (size_t at = 0; r >= 0 && at < t.size;) { /* a full disk takes a part, and says why only at the next attempt */
        ssize_t n = write(l->fd, t.data + at, t.size - at);
        if (n < 0 && errno != EINTR)
            r = cw_error_errno(err, CW_E_IO, errno, "--log: can't write %zu bytes", t.size);
        at += n > 0 ? (size_t)n : 0;
    }
    cw_text_deinit(&t);
    return r;
}

int cw_quarantine_write(const char *path, const struct cw_compiled *c, const struct cw_quarantined *list, struct cw_error *err)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return cw_error_errno(err, CW_E_OPTION, errno, "--quarantine: can't open %s", path);
    for (const struct cw_quarantined *q = list; q; q = q->next) {
        json_t *o = cw_report_quarantined(c, q);
        json_dumpf(o, f, JSON_COMPACT);
        fputc('\n', f);
        json_decref(o);
    }
    bool failed = ferror(f);
    int e = errno;
    if (fclose(f) != 0) {
        failed = true;
        e = errno;
    }
    return failed ? cw_error_errno(err, CW_E_IO, e, "--quarantine: can't write %s", path) : 0;
}
