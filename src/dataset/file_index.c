/* The index of a data set with one file per record. The threads exist only during cw_file_index_open. */
#include "dataset/file_index.h"

#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "dataset/index.h"
#include "storage/file.h"

#define BATCH 16 /* files that a thread takes at a time */

struct body {
    uint64_t n, names_size;
};

#define HEAD (sizeof(struct cw_index_header) + sizeof(struct body))
#define ROW_BYTES 48

void cw_file_index_deinit(struct cw_file_index *x)
{
    free((void *)x->base);
    *x = (struct cw_file_index){0};
}

int cw_file_index_attach(const uint8_t *base, size_t size, struct cw_file_index *ret)
{
    struct body b;
    if (size < HEAD || !cw_index_sound(base, size, CW_INDEX_FILES))
        return -1;
    memcpy(&b, base + sizeof(struct cw_index_header), sizeof(b));
    if (b.n > (size - HEAD) / ROW_BYTES || b.names_size != size - HEAD - b.n * ROW_BYTES)
        return -1;
    const uint64_t *columns = (const void *)(base + HEAD);
    struct cw_file_index x = {
        .n = b.n,
        .sizes = columns,
        .mtimes_ns = (const int64_t *)(columns + b.n),
        .ctimes_ns = (const int64_t *)(columns + 2 * b.n),
        .keys = columns + 3 * b.n,
        .name_at = columns + 4 * b.n,
        .prefixes = columns + 5 * b.n,
        .names = (const char *)(columns + 6 * b.n),
        .base = base,
        .size = size,
    };
    for (size_t i = 0, at = 0; i < x.n; i++) { /* the names follow one another and fill the column */
        if (x.name_at[i] != at || at >= b.names_size)
            return -1;
        size_t length = strnlen(x.names + at, b.names_size - at);
        if (length == b.names_size - at || x.prefixes[i] > length ||
            (i + 1 == x.n && at + length + 1 != b.names_size) ||
            __builtin_add_overflow(x.total_bytes, x.sizes[i], &x.total_bytes))
            return -1;
        at += length + 1;
    }
    if (x.n == 0 && b.names_size != 0)
        return -1;
    *ret = x;
    return 0;
}

/* ---- the files of an earlier index, by path ---- */

struct known {
    struct cw_file_index index;
    uint64_t *slots; /* a hash table with open addressing; 0: free, else the file's number + 1 */
    size_t mask;
};

static void file_index_known_load(struct known *k, const char *path)
{
    const uint8_t *base;
    size_t size;
    if (k->slots || !path || !cw_index_map(path, &base, &size))
        return;
    uint8_t *copy = malloc(size); /* a copy, because the index file is small and may soon be replaced */
    if (copy)
        memcpy(copy, base, size);
    munmap((void *)base, size);
    if (!copy || cw_file_index_attach(copy, size, &k->index) < 0) {
        free(copy);
        return;
    }
    size_t capacity = 16;
    while (capacity < 2 * k->index.n)
        capacity *= 2;
    k->mask = capacity - 1;
    k->slots = calloc(capacity, sizeof(*k->slots));
    if (!k->slots) {
        cw_file_index_deinit(&k->index);
        return;
    }
    for (size_t i = 0; i < k->index.n; i++) {
        const char *name = cw_file_index_path(&k->index, i);
        size_t at = cw_hash64(name, strlen(name)) & k->mask;
        while (k->slots[at])
            at = (at + 1) & k->mask;
        k->slots[at] = i + 1;
    }
}

static void file_index_known_deinit(struct known *k)
{
    free(k->slots);
    cw_file_index_deinit(&k->index);
}

static bool file_index_known_key(const struct known *k, const char *path, size_t prefix,
                                 const struct cw_stat *st, uint64_t *ret)
{
    if (!k->slots)
        return false;
    for (size_t at = cw_hash64(path, strlen(path)) & k->mask; k->slots[at]; at = (at + 1) & k->mask) {
        size_t i = k->slots[at] - 1;
        if (strcmp(cw_file_index_path(&k->index, i), path) != 0 || k->index.prefixes[i] != prefix)
            continue;
        *ret = k->index.keys[i];
        struct cw_stat was = cw_file_index_stat(&k->index, i);
        return cw_stat_same(&was, st);
    }
    return false;
}

/* ---- reading ---- */

/* Computes the key of a file: the hash of (relative path, 0, size, the content's ends). Of an object of a
 * server, its version stands for the content, which is not read. buffer: 2 * CW_KEY_EDGE_BYTES. */
static int file_key(struct cw_file *file, const char *relative, uint8_t *buffer, uint64_t *ret,
                    struct cw_error *err)
{
    uint64_t all = cw_file_size(file);
    size_t n = (size_t)CW_MIN(all, (uint64_t)(2 * CW_KEY_EDGE_BYTES)),
           first = n < 2 * CW_KEY_EDGE_BYTES ? n : CW_KEY_EDGE_BYTES;
    bool remote = cw_file_is_remote(file);
    uint64_t version = cw_file_stamp(file);
    if (remote) {
        n = sizeof(version);
        memcpy(buffer, &version, n);
    }
    int r = remote ? 0 : cw_file_read(file, 0, buffer, first, false, err);
    if (r == 0 && !remote && n > first)
        r = cw_file_read(file, all - CW_KEY_EDGE_BYTES, buffer + first, n - first, false, err);
    r = cw_file_verdict(file, r, err);
    if (r < 0)
        return r;
    struct cw_key size = {0};
    cw_key_u64(&size, all);
    XXH3_state_t x;
    XXH3_64bits_reset(&x);
    XXH3_64bits_update(&x, relative, strlen(relative) + 1);
    XXH3_64bits_update(&x, size.bytes, size.size);
    XXH3_64bits_update(&x, buffer, n);
    *ret = XXH3_64bits_digest(&x);
    return 0;
}

int cw_file_index_same(const void *index, size_t i, struct cw_file *file, bool *ret, struct cw_error *err)
{
    const struct cw_file_index *was = index;
    uint64_t key = 0;
    _cleanup_free_ uint8_t *buffer = malloc(2 * CW_KEY_EDGE_BYTES);
    int r = buffer ? file_key(file, cw_file_index_relative(was, i), buffer, &key, err)
                   : cw_error_nomem(err, 2 * CW_KEY_EDGE_BYTES, "a read buffer");
    *ret = r == 0 && key == was->keys[i];
    return r;
}

struct hashing {
    char *const *paths;
    const size_t *prefixes;
    const struct cw_file_index_options *options;
    const struct known *known;
    uint64_t *sizes, *keys;
    int64_t *mtimes, *ctimes;
    atomic_size_t next, reused;
    struct cw_file_threads threads;
};

static int file_index_hash_one(struct hashing *h, size_t i, uint8_t *buffer, struct cw_error *err)
{
    struct cw_stat st;
    struct cw_file *file;
    const char *path = h->paths[i];
    int r = cw_stat_settled(path, &st, err);
    if (r < 0)
        return r;
    h->sizes[i] = st.size;
    h->mtimes[i] = st.mtime_ns;
    h->ctimes[i] = st.ctime_ns;
    if (file_index_known_key(h->known, path, h->prefixes[i], &st, &h->keys[i])) {
        atomic_fetch_add(&h->reused, 1);
        return 0;
    }
    if (h->options->cancelled && h->options->cancelled(h->options->cancel_arg))
        return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
    r = cw_file_new(path, &st, &file, err);
    if (r < 0)
        return r;
    r = file_key(file, path + h->prefixes[i], buffer, &h->keys[i], err);
    cw_file_free(file);
    return r;
}

static void *file_index_hash_files(void *arg)
{
    struct hashing *h = arg;
    _cleanup_free_ uint8_t *buffer = malloc(2 * CW_KEY_EDGE_BYTES);
    for (;;) {
        size_t begin = atomic_fetch_add(&h->next, BATCH), end = CW_MIN(begin + BATCH, h->threads.n);
        if (begin >= h->threads.n || begin > atomic_load(&h->threads.failed))
            return NULL;
        for (size_t i = begin; i < end; i++) {
            struct cw_error error = {0};
            int r = buffer ? file_index_hash_one(h, i, buffer, &error)
                           : cw_error_nomem(&error, 2 * CW_KEY_EDGE_BYTES, "a read buffer");
            if (r == 0)
                continue;
            cw_file_threads_fail(&h->threads, i, r, &error);
            break;
        }
    }
}

int cw_file_index_open(char *const *paths, const size_t *prefixes, size_t n,
                       const struct cw_file_index_options *options, struct cw_file_index *ret,
                       struct cw_error *err)
{
    struct body body = {.n = n};
    for (size_t i = 0; i < n; i++)
        body.names_size += strlen(paths[i]) + 1;
    size_t size = HEAD + n * ROW_BYTES + body.names_size;
    uint8_t *base = malloc(size);
    if (!base)
        return cw_error_nomem(err, size, "an index");
    memcpy(base + sizeof(struct cw_index_header), &body, sizeof(body));
    uint64_t *columns = (void *)(base + HEAD);
    char *names = (char *)(columns + 6 * n);
    for (size_t i = 0, at = 0; i < n; i++) {
        size_t length = strlen(paths[i]) + 1;
        memcpy(names + at, paths[i], length);
        columns[4 * n + i] = at;
        columns[5 * n + i] = prefixes[i];
        at += length;
    }
    struct known known = {0};
    file_index_known_load(&known, options->sidecar);
    file_index_known_load(&known, options->index_path);
    struct hashing h = {
        .paths = paths,
        .prefixes = prefixes,
        .threads.n = n,
        .options = options,
        .known = &known,
        .sizes = columns,
        .mtimes = (int64_t *)(columns + n),
        .ctimes = (int64_t *)(columns + 2 * n),
        .keys = columns + 3 * n,
    };
    cw_file_threads_run(&h.threads, CW_MIN(n / BATCH + 1, (size_t)CW_MAX(options->threads, 1)),
                        file_index_hash_files, &h);
    size_t reused = atomic_load(&h.reused);
    bool same = reused == n && known.index.n == n;
    file_index_known_deinit(&known);
    int r = h.threads.status;
    if (r < 0 && err)
        *err = h.threads.error;
    if (r == 0) {
        cw_index_seal(base, size, CW_INDEX_FILES);
        if (cw_file_index_attach(base, size, ret) < 0)
            r = cw_error_set(
                err, CW_E_BUG,
                "the index that was built is inconsistent; this is a defect of Cachew, please report it");
    }
    if (r < 0) {
        free(base);
        return r;
    }
    ret->n_reused = reused;
    if (!same && options->index_path && options->index_dir)
        cw_index_save(options->index_dir, options->index_path, base, size);
    return 0;
}
