/* The model of slow storage: when it is free again, and which bytes are in memory. */
#include "storage/throttle.h"

#ifdef CW_CRASH_POINTS

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cost_clock.h"
#include "base/macro.h"
#include "base/thread.h"

#define HANG_NS UINT64_C(10000000) /* between two reads of the speeds' file while the storage hangs */
#define MEMORY_NS UINT64_C(1)      /* cost of a byte that is in memory, on the modelled clock */
#define PAGE_BYTES UINT64_C(4096)

struct speed {                                         /* from the file of the environment variable */
    double bytes_per_s[2], reads_per_s, read_s, keeps; /* bytes: reading, writing */
};

struct kept { /* the pages of a file that were read */
    struct kept *next;
    uint64_t n_pages;
    uint8_t *pages; /* a byte for each page; 1: it is in memory */
    char path[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* guarded by mutex: when the storage has served all accesses so far; reading, writing */
static uint64_t free_ns[CW_N_THROTTLES][2];
static struct kept *all_kept; /* guarded by mutex */
static atomic_uint n_waiting;

static struct speed throttle_speed(enum cw_throttle of)
{
    static const char *const names[] = {[CW_THROTTLE_STORE] = "CACHEW_STORE",
                                        [CW_THROTTLE_STORE_DIR] = "CACHEW_STORE_DIR",
                                        [CW_THROTTLE_FILES] = "CACHEW_FILES"};
    const char *path = getenv(names[of]);
    FILE *f = path ? fopen(path, "re") : NULL;
    struct speed s = {0};
    if (f && fscanf(f, "%lf %lf %lf %lf %lf", &s.bytes_per_s[0], &s.bytes_per_s[1], &s.reads_per_s, &s.read_s,
                    &s.keeps) < 2)
        s = (struct speed){0};
    if (f)
        fclose(f);
    return s;
}

static void throttle_wait_until(uint64_t ns)
{
    const struct timespec at = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        ;
}

static void throttle_access(enum cw_throttle of, int which, size_t bytes)
{
    struct speed s;
    while ((s = throttle_speed(of)).bytes_per_s[which] < 0)
        throttle_wait_until(cw_now_ns() + HANG_NS);
    double busy_s = s.bytes_per_s[which] > 0 ? (double)bytes / s.bytes_per_s[which] : 0,
           least_s = which == 0 ? s.read_s : 0;
    busy_s += which == 0 && s.reads_per_s > 0 ? 1 / s.reads_per_s : 0;
    if (!(busy_s > 0) && !(least_s > 0)) {
        cw_cost_compute(which == 0 ? bytes * MEMORY_NS : 0);
        return;
    }
    cw_cost_wait((uint64_t)((busy_s > 0 ? busy_s : least_s) * 1e9));
    if (!cw_cost_sleeps())
        return;
    uint64_t now = cw_now_ns(),
             until = CW_LOCKED(&mutex, free_ns[of][which] = CW_MAX(free_ns[of][which], now) +
                                                            (uint64_t)(busy_s * 1e9));
    throttle_wait_until(CW_MAX(until, now + (uint64_t)(least_s * 1e9)));
}

static bool throttle_is_slow(const struct speed *s, int which)
{
    return s->bytes_per_s[which] != 0 || (which == 0 && (s->reads_per_s > 0 || s->read_s > 0));
}

bool cw_throttle_read_at_once(enum cw_throttle of, size_t bytes)
{
    const struct speed s = throttle_speed(of);
    bool slow = throttle_is_slow(&s, 0);
    if (!slow)
        cw_cost_compute(bytes * MEMORY_NS);
    return !slow;
}

void cw_throttle_read(enum cw_throttle of, size_t bytes)
{
    throttle_access(of, 0, bytes);
}

void cw_throttle_write(enum cw_throttle of, size_t bytes)
{
    throttle_access(of, 1, bytes);
}

/* ---- pages that were read ---- */

/* Returns the record of the pages of a file. put: makes it if need be, for at least the pages up to offset
 * `end`. NULL: out of memory or, without put, no page was read yet. The mutex is held. */
static struct kept *kept_pages(const char *path, uint64_t end, bool put)
{
    struct kept *k = all_kept;
    while (k && strcmp(k->path, path) != 0)
        k = k->next;
    if (!put)
        return k;
    if (!k && (k = calloc(1, sizeof(*k) + strlen(path) + 1))) {
        memcpy(k->path, path, strlen(path) + 1);
        k->next = all_kept;
        all_kept = k;
    }
    uint64_t n = (end + PAGE_BYTES - 1) / PAGE_BYTES;
    if (k && n > k->n_pages) {
        uint8_t *larger = realloc(k->pages, 2 * n);
        if (!larger)
            return NULL;
        memset(larger + k->n_pages, 0, 2 * n - k->n_pages);
        k->pages = larger;
        k->n_pages = 2 * n;
    }
    return k;
}

static bool kept_has(const char *path, uint64_t offset, size_t length)
{
    CW_GUARD(&mutex);
    const struct kept *k = kept_pages(path, offset + length, false);
    bool all = k != NULL;
    for (uint64_t i = offset / PAGE_BYTES; all && i * PAGE_BYTES < offset + length; i++)
        all = i < k->n_pages && k->pages[i];
    return all;
}

static void kept_add(const char *path, uint64_t offset, size_t length)
{
    CW_GUARD(&mutex);
    struct kept *k = kept_pages(path, offset + length, true);
    for (uint64_t i = offset / PAGE_BYTES; k && i * PAGE_BYTES < offset + length; i++)
        k->pages[i] = 1;
}

bool cw_throttle_absent(const char *path, uint64_t offset, size_t length)
{
    const struct speed s = throttle_speed(CW_THROTTLE_FILES);
    return throttle_is_slow(&s, 0) && !(s.keeps > 0 && kept_has(path, offset, length));
}

bool cw_throttle_range(const char *path, uint64_t offset, size_t length, bool nowait)
{
    const struct speed s = throttle_speed(CW_THROTTLE_FILES);
    if (!throttle_is_slow(&s, 0) || (s.keeps > 0 && kept_has(path, offset, length))) {
        cw_cost_compute(length * MEMORY_NS);
        return true;
    }
    if (nowait)
        return false;
    atomic_fetch_add(&n_waiting, 1);
    throttle_access(CW_THROTTLE_FILES, 0, length);
    atomic_fetch_sub(&n_waiting, 1);
    if (s.keeps > 0)
        kept_add(path, offset, length);
    return true;
}

unsigned cw_throttle_waiting(void)
{
    return atomic_load(&n_waiting);
}

#endif
