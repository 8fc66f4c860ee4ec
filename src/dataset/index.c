/* Finds, makes and saves the index segments of a list of files. The threads exist only during cw_index_open.
 */
#include "dataset/index.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"
#include "objects/object.h"
#include "storage/file.h"

#define MAX_THREADS 64 /* threads that read files: enough to keep any disk busy */

char *cw_index_path(const char *index_dir, const char *kind, const char *path, const char *variant)
{
    _cleanup_free_ char *absolute = realpath(path, NULL);
    char *ret, hex[33];
    const char *parts[] = {kind, absolute ? absolute : path, variant};
    XXH3_state_t x;
    XXH3_128bits_reset(&x);
    for (size_t i = 0; i < CW_COUNT_OF(parts); i++)
        XXH3_128bits_update(&x, parts[i], strlen(parts[i]) + 1);
    XXH128_hash_t d = XXH3_128bits_digest(&x);
    cw_hash128_print((struct cw_hash128){.lo = d.low64, .hi = d.high64}, hex);
    return asprintf(&ret, "%s/%s.cwx", index_dir, hex) < 0 ? NULL : ret;
}

bool cw_index_map(const char *path, const uint8_t **ret, size_t *ret_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    struct stat s;
    void *p = MAP_FAILED;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0)
        p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return false;
    *ret = p;
    *ret_size = (size_t)s.st_size;
    return true;
}

void cw_index_save(const char *index_dir, const char *path, const uint8_t *data, size_t size)
{
    if (cw_make_dirs(index_dir, NULL) < 0 || cw_put(path, data, size, NULL) < 0)
        return; /* the next run makes the index again */
}

static bool index_load(const char *index_path, const struct cw_stat *st, const struct cw_index_options *o,
                       struct cw_segment *ret)
{
    const uint8_t *base;
    size_t size;
    if (!cw_index_map(index_path, &base, &size))
        return false;
    struct cw_segment s;
    if (cw_segment_attach(base, size, &s) < 0 || !cw_stat_same(&s.file, st) || s.format != o->format ||
        (o->codec != CW_CODEC_AUTO && o->codec != s.codec)) {
        munmap((void *)base, size);
        return false;
    }
    *ret = s;
    ret->mapped = true;
    return true;
}

/* Gets the segment of one file from an index file (*ret_reused is true), or by reading the file, which may
 * take `memory` bytes to decompress (0: no limit). */
static int index_open_segment(const char *path, size_t prefix, const struct cw_index_options *o,
                              size_t memory, struct cw_segment *ret, bool *ret_reused, struct cw_error *err)
{
    static const char *const kinds[] = {"tfrecord", "lines",         "tar",     "csv",
                                        "csv-tab",  "csv-semicolon", "csv-pipe"};
    _Static_assert(CW_COUNT_OF(kinds) == CW_FORMATS, "a kind for each format");
    struct cw_stat st;
    const char *relative = path + prefix;
    int r = cw_stat_settled(path, &st, err);
    if (r < 0)
        return r;
    if (st.is_dir) {
        cw_error_file(err, path);
        return cw_error_set(err, CW_E_DATA, "%s is a directory, not a %s file", path,
                            cw_record_format_name(o->format));
    }
    bool remote = cw_object_is_address(path);
    _cleanup_free_ char *sidecar = NULL;
    _cleanup_free_ char *cached =
        o->index_dir ? cw_index_path(o->index_dir, kinds[o->format], path, cw_codec_name(o->codec)) : NULL;
    if (asprintf(&sidecar, "%s.cwx", path) < 0) {
        sidecar = NULL;
        return cw_error_nomem(err, strlen(path), "a file name");
    }
    *ret_reused = !o->rebuild && ((!remote && index_load(sidecar, &st, o, ret)) ||
                                  (!o->write_sidecar && cached && index_load(cached, &st, o, ret)));
    if (*ret_reused) {
        ret->remote = remote;
        if (strcmp(ret->relative_path, relative) != 0) /* indexed under another pattern */
            ret->file_key = cw_segment_file_key(ret, relative);
        return 0;
    }
    struct cw_segment_input in = {
        .format = o->format,
        .path = path,
        .relative_path = relative,
        .file = st,
        .codec = o->codec,
        .memory = memory,
        .cancelled = o->cancelled,
        .cancel_arg = o->cancel_arg,
    };
    r = cw_segment_build(&in, ret, err);
    if (r < 0)
        return r;
    ret->remote = remote;
    if (o->write_sidecar)
        r = cw_put(sidecar, ret->base, ret->size, err);
    else if (cached)
        cw_index_save(o->index_dir, cached, ret->base, ret->size);
    if (r < 0)
        cw_segment_deinit(ret);
    return r;
}

struct opening {
    char *const *paths;
    const size_t *prefixes;
    const struct cw_index_options *options;
    struct cw_segment *segments;
    atomic_size_t next, reused;
    size_t n_threads;
    pthread_rwlock_t alone; /* locked for writing while a file is read that takes more than its share */
    struct cw_file_threads threads;
};

void cw_file_threads_run(struct cw_file_threads *t, size_t n_threads, void *(*work)(void *arg), void *arg)
{
    pthread_t threads[MAX_THREADS];
    size_t wanted = CW_MIN(n_threads, (size_t)MAX_THREADS), running = 0;
    pthread_mutex_init(&t->mutex, NULL);
    atomic_init(&t->failed, t->n);
    while (running + 1 < wanted && pthread_create(&threads[running], NULL, work, arg) == 0)
        running++;
    work(arg); /* this thread works, too, and does all the work if no other could be started */
    for (size_t i = 0; i < running; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&t->mutex);
}

void cw_file_threads_fail(struct cw_file_threads *t, size_t i, int status, const struct cw_error *error)
{
    CW_GUARD(&t->mutex);
    if (i >= atomic_load(&t->failed))
        return;
    atomic_store(&t->failed, i);
    t->error = *error;
    t->status = status;
}

/* The files that are read at a time share the memory budget. A file that takes more than its share is read
 * again, alone and with the whole budget. */
static int index_open_file(struct opening *o, size_t i, bool *ret_reused, struct cw_error *err)
{
    size_t memory = o->options->memory, share = memory ? CW_MAX(memory / o->n_threads, (size_t)1) : 0;
    pthread_rwlock_rdlock(&o->alone);
    int r = index_open_segment(o->paths[i], o->prefixes[i], o->options, share, &o->segments[i], ret_reused,
                               err);
    pthread_rwlock_unlock(&o->alone);
    if (r != CW_E_BUDGET || share == memory)
        return r;
    *err = (struct cw_error){0};
    pthread_rwlock_wrlock(&o->alone);
    r = index_open_segment(o->paths[i], o->prefixes[i], o->options, memory, &o->segments[i], ret_reused, err);
    pthread_rwlock_unlock(&o->alone);
    return r;
}

static void *index_open_files(void *arg)
{
    struct opening *o = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&o->next, 1);
        if (i >= o->threads.n || i > atomic_load(&o->threads.failed))
            return NULL;
        struct cw_error error = {0};
        bool reused = false;
        int r = index_open_file(o, i, &reused, &error);
        if (r == 0)
            atomic_fetch_add(&o->reused, reused);
        else
            cw_file_threads_fail(&o->threads, i, r, &error);
    }
}

int cw_index_open(char *const *paths, const size_t *prefixes, size_t n,
                  const struct cw_index_options *options, struct cw_index *ret, struct cw_error *err)
{
    uint64_t start_ns = cw_now_ns();
    struct opening o = {.paths = paths, .prefixes = prefixes, .options = options, .threads.n = n};
    struct cw_index x = {.n = n, .segments = calloc(n ? n : 1, sizeof(*x.segments))};
    if (!x.segments)
        return cw_error_nomem(err, n * sizeof(*x.segments), "an index");
    o.segments = x.segments;
    o.n_threads = CW_MIN(CW_MAX(n, (size_t)1), (size_t)CW_MAX(options->threads, 1));
    pthread_rwlock_init(&o.alone, NULL);
    cw_file_threads_run(&o.threads, o.n_threads, index_open_files, &o);
    pthread_rwlock_destroy(&o.alone);
    if (o.threads.status < 0) {
        if (err)
            *err = o.threads.error;
        cw_index_deinit(&x);
        return o.threads.status;
    }
    x.report.n_files = n;
    x.report.n_reused = atomic_load(&o.reused);
    for (size_t i = 0; i < n; i++) {
        x.report.n_records += x.segments[i].n_records;
        x.report.data_bytes += x.segments[i].data_bytes;
        x.report.file_bytes += x.segments[i].file.size;
    }
    x.report.seconds = (double)(cw_now_ns() - start_ns) * 1e-9;
    *ret = x;
    return 0;
}

void cw_index_deinit(struct cw_index *x)
{
    for (size_t i = 0; i < x->n; i++)
        cw_segment_deinit(&x->segments[i]);
    free(x->segments);
    *x = (struct cw_index){0};
}
