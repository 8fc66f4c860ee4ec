/*
 * Fuzzes a cache directory that other processes wrote to. The first byte chooses what the rest is: 0: a
 * segment file as it is; 1: a segment whose table gets correct checksums; 2: a segment whose entries get
 * them, too; 3: a profile with the measurements of earlier runs. Every entry that is found must lie in the
 * file, and its data must be those of the file.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/admin.h"
#include "cache/cache.h"
#include "cache/files.h"
#include "cache/format.h"
#include "cache/set.h"
#include "cache/sum.h"
#include "data/budget.h"
#include "engine/cache_stats.h"

#define KEY \
    "0000000000000002" \
    "0000000000000001"
#define BUDGET ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct cw_hash128 key = {.hi = 2, .lo = 1};
static struct cw_cache *cache;
static char dir[64], path[128];

static void clean(void)
{
    struct cw_cache_list l;
    struct cw_error err = {0};
    cw_cache_close(cache);
    if (cw_cache_list(dir, NULL, &l, &err) == 0)
        (void)!cw_cache_remove(dir, &l.sets[0], &err);
    cw_cache_list_deinit(&l);
    char lock[96];
    snprintf(lock, sizeof(lock), "%s/lock", dir);
    (void)unlink(lock);
    (void)rmdir(dir);
}

static void prepare(void)
{
    struct cw_error err = {0};
    /* in memory, if possible */
    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cachew-fuzz-XXXXXX" : "/tmp/cachew-fuzz-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    const struct cw_cache_options o = {.dir = dir, .quota = 1 << 20};
    struct cw_cache_set *s;
    if (cw_cache_open(&o, &cache, &err) < 0 || cw_cache_set_open(cache, key, "{}", &s, &err) < 0)
        abort();
    cw_cache_set_unref(s);
    snprintf(path, sizeof(path), "%s/" KEY "/0-1" CW_CACHE_SUFFIX, dir);
    atexit(clean);
}

/* Gives the entry that a row of the table points to a correct header and checksum, if it lies before `end`.
 */
static void mend_entry(uint8_t *file, uint64_t end, const struct cw_cache_row *row)
{
    struct cw_cache_entry e = {
        .magic = CW_CACHE_ENTRY_MAGIC, .key = row->key, .length = row->length, .stored = row->stored};
    if (row->offset > end || cw_cache_entry_bytes(row->stored) > end - row->offset)
        return;
    memcpy(file + row->offset, &e, sizeof(e));
    e.hash = cw_sum(file + row->offset + sizeof(e.hash), sizeof(e) - sizeof(e.hash) + e.stored);
    memcpy(file + row->offset, &e, sizeof(e));
}

static void mend(uint8_t *file, size_t size, bool entries)
{
    const struct cw_cache_header h = {.magic = CW_CACHE_MAGIC, .version = CW_CACHE_VERSION, .set = key};
    struct cw_cache_trailer t;
    struct cw_cache_row row;
    if (size < sizeof(h) + sizeof(t))
        return;
    memcpy(file, &h, sizeof(h));
    memcpy(&t, file + size - sizeof(t), sizeof(t));
    t.n %= (size - sizeof(h) - sizeof(t)) / sizeof(row) + 1;
    t.table_offset = size - sizeof(t) - t.n * sizeof(row);
    for (uint64_t i = 0; entries && i < t.n; i++) {
        uint8_t *at = file + t.table_offset + i * sizeof(row);
        memcpy(&row, at, sizeof(row));
        row.offset = sizeof(h) + row.offset % (t.table_offset - sizeof(h) + 1);
        row.length &= 0xffff;
        row.stored = CW_MIN(row.stored & 0x3ff, row.length);
        memcpy(at, &row, sizeof(row));
        mend_entry(file, t.table_offset, &row);
    }
    t.table_hash = cw_hash64(file + t.table_offset, t.n * sizeof(row));
    t.magic = CW_CACHE_TRAILER_MAGIC;
    t.hash = cw_hash64(&t, offsetof(struct cw_cache_trailer, hash));
    memcpy(file + size - sizeof(t), &t, sizeof(t));
}

/* Reads an entry that the table lists, and checks it. */
static void read_entry(struct cw_cache_set *s, struct cw_arena *arena, struct cw_cache_get g,
                       const uint8_t *file, size_t size)
{
    struct cw_error err = {0};
    if (g.place.length > BUDGET) /* too large for the budget */
        return;
    if (g.place.offset > size || cw_cache_entry_bytes(g.place.stored) > size - g.place.offset)
        abort();
    uint8_t *to = malloc(g.place.length + 1);
    struct iovec v[2] = {
        {.iov_base = to, .iov_len = g.place.length / 2},
        {.iov_base = to + g.place.length / 2, .iov_len = g.place.length - g.place.length / 2}};
    g.v = v;
    g.n_v = 2;
    if (cw_cache_read(s, &g, 1, arena, CW_CACHE_FOREVER, &err) == 0 && g.place.stored == g.place.length &&
        memcmp(to, file + g.place.offset + sizeof(struct cw_cache_entry), g.place.length) != 0)
        abort();
    cw_arena_reset(arena, 0);
    free(to);
}

static void read_all(struct cw_cache_set *s, const uint8_t *file, size_t size)
{
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_cache_trailer t;
    if (!s->index.n_used) /* the table lists nothing */
        return;
    cw_budget_init(&budget, BUDGET);
    cw_arena_init(&arena, &budget);
    memcpy(&t, file + size - sizeof(t), sizeof(t));
    for (uint64_t i = 0; i < t.n; i++) {
        struct cw_cache_row row;
        struct cw_cache_get g;
        memcpy(&row, file + t.table_offset + i * sizeof(row), sizeof(row));
        g.key = row.key;
        if (cw_cache_find(s, &row.key, 1, &g.place))
            read_entry(s, &arena, g, file, size);
    }
    cw_arena_deinit(&arena);
}

static void use_segment(const uint8_t *file, size_t size)
{
    struct cw_error err = {0};
    struct cw_cache_list l;
    struct cw_cache_verified v = {0};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || cw_cache_write_at(fd, 0, file, size) < 0)
        abort();
    close(fd);
    struct cw_cache_set *s = cw_cache_set_new(cache, key, "{}", &err);
    if (!s || cw_cache_set_enter(s) < 0)
        abort();
    read_all(s, file, size);
    cw_cache_set_free(s);
    if (cw_cache_list(dir, NULL, &l, &err) < 0 || cw_cache_verify(&l.sets[0], false, &v, &err) < 0)
        abort();
    cw_cache_list_deinit(&l);
}

static void use_profile(const uint8_t *data, size_t size)
{
    struct cache_variant none = {0}, c = {0};
    char *text = strndup((const char *)data, size);
    cw_cache_variant_recall(&none, &c, text);
    const struct pace *paces[] = {&none.computed, &c.computed, &c.hit};
    for (size_t i = 0; i < CW_COUNT_OF(paces); i++)
        if (!isfinite(paces[i]->rows) || !isfinite(paces[i]->ns) || !isfinite(paces[i]->cold_ns) ||
            paces[i]->ns < 0 || paces[i]->cold_ns < 0)
            abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cache)
        prepare();
    if (size == 0)
        return 0;
    unsigned kind = data[0] & 3;
    if (kind == 3) {
        use_profile(data + 1, size - 1);
        return 0;
    }
    uint8_t *file = malloc(size); /* a heap block, so that ASan finds reads past its end */
    memcpy(file, data + 1, size - 1);
    if (kind)
        mend(file, size - 1, kind == 2);
    use_segment(file, size - 1);
    free(file);
    return 0;
}
