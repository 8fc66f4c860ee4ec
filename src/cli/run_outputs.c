/* The optional outputs of `run`: hashes, a log, .npz files, contact sheets, and the list of quarantined
 * records (those that failed and were skipped or replaced). Owns the open files. */
#include "cli/run_outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/contact_sheet.h"
#include "cli/npz.h"
#include "session/report.h"

/* ---- the log: a JSON line per batch, written with one write(2) unless the system takes only a part of the
 * line ---- */

/* Removes the last n bytes of the log, a partial line, unless another process has appended to the file since.
 */
static void log_remove_partial(int fd, size_t n)
{
    struct stat st;
    off_t end = lseek(fd, 0, SEEK_CUR);
    if (n && end >= (off_t)n && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == end &&
        ftruncate(fd, end - (off_t)n) < 0)
        fprintf(stderr, "cachew: --log: the last line of the file is incomplete, and can't be removed: %s\n",
                strerror(errno));
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
            return cw_error_errno(err, CW_E_IO, e, "--log: can't write a line of %zu bytes", size);
        }
        written += (size_t)n;
    }
    return 0;
}

/* Appends the line of a batch. If only a part of the line can be written, removes that part. */
static int log_add(int fd, const struct cw_compiled *c, const struct cw_batch *b, unsigned rank,
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

/* ---- all outputs ---- */

/* Makes the directory that an option names, if it does not exist. Its parent must exist. */
static int output_make_dir(const char *option, const char *dir, struct cw_error *err)
{
    struct stat st;
    int e = mkdir(dir, 0777) < 0 ? errno : 0;
    if (e == EEXIST)
        e = stat(dir, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (!e)
        return 0;
    cw_error_attribute(err, option, dir, "a directory that exists or can be made");
    return cw_error_errno(err, CW_E_OPTION, e, "--%s: can't make directory %s", option, dir);
}

int cli_outputs_open(struct cli_outputs *o, bool resumed, struct cw_error *err)
{
    int r = o->dump ? output_make_dir("dump", o->dump, err) : 0;
    if (r >= 0 && o->save)
        r = output_make_dir("save", o->save, err);
    if (r >= 0 && o->log && (o->log_fd = open(o->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0)
        r = cw_error_at_file(err, CW_E_OPTION, o->log, errno, "--log: can't open %s", o->log);
    if (r < 0 || !o->quarantine)
        return r;
    o->quarantine_file = fopen(o->quarantine, resumed ? "ae" : "we");
    return o->quarantine_file ? 0
                              : cw_error_at_file(err, CW_E_OPTION, o->quarantine, errno,
                                                 "--quarantine: can't open %s", o->quarantine);
}

int cli_outputs_add(struct cli_outputs *o, const struct cw_compiled *c, const struct cw_batch *b,
                    unsigned rank, uint64_t nth, struct cw_error *err)
{
    struct cw_hash128 hash = o->digest || o->log ? cw_batch_hash(b) : (struct cw_hash128){0, 0};
    if (o->digest && !(b->flags & CW_RECORD_PADDING)) {
        o->sum = cw_hash128_add(o->sum, hash);
        o->set_sum = cw_hash128_add(o->set_sum, cw_batch_set_hash(b));
    }
    int r = o->log ? log_add(o->log_fd, c, b, rank, hash, err) : 0;
    if (r >= 0 && o->dump)
        r = cli_npz_write(o->dump, c, b, err);
    if (r >= 0 && o->save)
        r = cli_contact_sheet_write(o->save, b, nth, err);
    return r;
}

int cli_outputs_quarantine(struct cli_outputs *o, const struct cw_local *local, struct cw_error *err)
{
    uint64_t skipped, replaced;
    bool failed = false;
    const struct cw_quarantined *q = cw_iterator_quarantined(local->iterator, &skipped, &replaced);
    if (skipped + replaced)
        fprintf(stderr,
                "cachew: %" PRIu64 " records that failed were skipped, %" PRIu64 " replaced by others%s%s\n",
                skipped, replaced, o->quarantine ? "; listed in " : "",
                o->quarantine ? o->quarantine : " (--quarantine FILE lists them with reasons)");
    if (!o->quarantine_file)
        return 0;
    for (; q; q = q->next) {
        json_auto_t *line = cw_report_quarantined(local->compiled, q);
        failed |= !line || json_dumpf(line, o->quarantine_file, JSON_COMPACT) < 0 ||
                  fputc('\n', o->quarantine_file) < 0;
    }
    failed |= fclose(CW_STEAL(o->quarantine_file)) != 0;
    return failed ? cw_error_errno(err, CW_E_IO, errno, "--quarantine: can't write %s", o->quarantine) : 0;
}

void cli_outputs_close(struct cli_outputs *o)
{
    if (o->log_fd > 0)
        close(o->log_fd);
    if (o->quarantine_file)
        fclose(CW_STEAL(o->quarantine_file));
}
