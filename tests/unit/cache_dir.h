/* A cache in a directory of its own, and what is put there and read again: what comes back is compared byte
 * by byte. Include after cmocka.h. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cost_clock.h"
#include "cache/admin.h"
#include "cache/internal.h"
#include "cache/set.h"
#include "data/budget.h"

static const struct cw_hash128 KEY = {.lo = 1, .hi = 2};
static char *dir;

static inline int make_dir(void **state)
{
    (void)state;
    char name[] = "/tmp/cachew-test-XXXXXX";
    dir = strdup(mkdtemp(name));
    cw_cost_model("modelled"); /* storage is waited for, however slow it is */
    return 0;
}

static inline int remove_dir(void **state)
{
    (void)state;
    struct cw_cache_list l;
    struct cw_error err = {0};
    char lock[64];
    cw_cost_model(NULL);
    assert_int_equal(cw_cache_list(dir, NULL, &l, &err), 0);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(cw_cache_remove(dir, &l.sets[i], &err), 0);
    cw_cache_list_deinit(&l);
    snprintf(lock, sizeof(lock), "%s/lock", dir);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(dir), 0);
    free(dir);
    return 0;
}

static inline struct cw_cache *open_cache(uint64_t quota, size_t queue)
{
    const struct cw_cache_options o = {.dir = dir, .quota = quota, .queue_bytes = queue};
    struct cw_cache *c = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_open(&o, &c, &err), 0);
    return c;
}

static inline struct cw_cache_set *open_other(struct cw_cache *c, struct cw_hash128 key)
{
    struct cw_cache_set *s = NULL;
    struct cw_error err = {0};
    assert_int_equal(cw_cache_set_open(c, key, "{}", &s, &err), 0);
    return s;
}

static inline struct cw_cache_set *open_set(struct cw_cache *c)
{
    return open_other(c, KEY);
}

static inline void flush(struct cw_cache *c)
{
    struct cw_error err = {0};
    assert_int_equal(cw_cache_flush(c, &err), 0);
}

/* Nothing that can be compressed. */
static inline uint8_t byte_of(uint64_t row, size_t i)
{
    uint64_t x = (row << 32 | i) * UINT64_C(0xff51afd7ed558ccd);
    return (uint8_t)((x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53) >> 56);
}

static inline bool put(struct cw_cache_set *s, uint64_t row, size_t bytes, uint64_t cost_ns)
{
    const struct cw_cache_key key = {.file_key = 9, .row = row};
    struct cw_cache_slot slot;
    uint8_t *to = cw_cache_reserve(s, &key, bytes, false, cost_ns, &slot);
    if (!to)
        return false;
    for (size_t i = 0; i < bytes; i++)
        to[i] = byte_of(row, i);
    cw_cache_commit(&slot);
    return true;
}

/* 0: it is there, and right; else what cw_cache_read said, or -1: it is not there. */
static inline int get_within(struct cw_cache_set *s, uint64_t row, size_t bytes, uint64_t patience_ns)
{
    struct cw_cache_get g = {.key = {.file_key = 9, .row = row}};
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_error err = {0};
    if (cw_cache_find(s, &g.key, 1, &g.place) == 0)
        return -1;
    assert_int_equal(g.place.length, bytes);
    uint8_t *data = malloc(bytes + 1);
    struct iovec v[2] = {{.iov_base = data, .iov_len = bytes / 3},
                         {.iov_base = data + bytes / 3, .iov_len = bytes - bytes / 3}};
    g.v = v;
    g.n_v = 2;
    cw_budget_init(&budget, 1 << 20);
    cw_arena_init(&arena, &budget);
    int r = cw_cache_read(s, &g, 1, &arena, patience_ns, &err);
    for (size_t i = 0; r == 0 && i < bytes; i++)
        assert_int_equal(data[i], byte_of(row, i));
    cw_arena_deinit(&arena);
    free(data);
    return r;
}

static inline int get(struct cw_cache_set *s, uint64_t row, size_t bytes)
{
    return get_within(s, row, bytes, CW_CACHE_FOREVER);
}
