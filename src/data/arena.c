/* The chunks of an arena: mapping, charging and reusing them. */
#include "data/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Chunks grow from 64 KiB (a few cheap columns) by doubling to 1 MiB (a decoded photograph); larger requests
 * get a separate chunk. */
#define CHUNK_MIN ((size_t)64 << 10)
#define CHUNK_MAX ((size_t)1 << 20)

/* Limit of the address space of the single chunk of an arena with `exact`. */
#define SPAN_MAX ((size_t)1 << 40)

struct cw_arena_chunk {
    struct cw_arena_chunk *next;
    size_t size;   /* usable bytes, which are charged */
    size_t mapped; /* bytes of address space; the bytes after `size` have no pages yet */
    uint8_t *data;
};

void cw_arena_init(struct cw_arena *a, struct cw_budget *budget)
{
    *a = (struct cw_arena){.budget = budget};
}

static void arena_chunk_free(struct cw_arena *a, struct cw_arena_chunk *c)
{
    cw_budget_give(a->budget, c->size);
    munmap(c->data, c->mapped);
    free(c);
}

/* Maps *size bytes of address space or, if the system refuses, `least` bytes, and sets *size. NULL: the
 * system refuses that, too. */
static void *arena_map(size_t *size, size_t least)
{
    void *data = mmap(NULL, *size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | (*size > least ? MAP_NORESERVE : 0), -1, 0);
    if (data == MAP_FAILED && *size > least)
        data = mmap(NULL, *size = least, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

static struct cw_arena_chunk *arena_chunk_new(struct cw_arena *a, size_t bytes, struct cw_error *err)
{
    size_t size = a->current ? CW_MIN(a->current->size * 2, CHUNK_MAX) : CHUNK_MIN,
           least = CW_ALIGN_UP(bytes, 4096);
    size = a->exact ? least : CW_MAX(CW_ALIGN_UP(size, 4096), least);
    if (cw_budget_take(a->budget, size, "scratch memory", size > least ? NULL : err) < 0) {
        /* the budget has no room for a larger chunk: take only the bytes that are needed */
        if (size == least || cw_budget_take(a->budget, least, "scratch memory", err) < 0)
            return NULL;
        size = least;
    }
    struct cw_arena_chunk *c = malloc(sizeof(*c));
    /* Mapped directly, so that freeing returns the memory to the system: malloc would keep it, and it would
     * not be charged. */
    size_t mapped = a->exact ? CW_MAX(CW_MIN(CW_ALIGN_UP(a->budget->limit, 4096), SPAN_MAX), size) : size;
    void *data = c ? arena_map(&mapped, size) : NULL;
    if (!data) {
        free(c);
        cw_budget_give(a->budget, size);
        cw_error_nomem(err, size, "scratch memory");
        return NULL;
    }
    *c = (struct cw_arena_chunk){.size = size, .mapped = mapped, .data = data};
    return c;
}

/* Grows the chunk of an exact arena in place. 1: it can't grow. */
static int arena_extend(struct cw_arena *a, size_t bytes, struct cw_error *err)
{
    struct cw_arena_chunk *c = a->current;
    size_t size = CW_ALIGN_UP(a->used + bytes, 4096);
    if (!a->exact || !c || c->next || size > c->mapped)
        return 1;
    int r = cw_budget_take(a->budget, size - c->size, "scratch memory", err);
    if (r >= 0)
        c->size = size;
    return r;
}

void *cw_arena_alloc(struct cw_arena *a, size_t bytes, struct cw_error *err)
{
    if (bytes > SIZE_MAX / 4) {
        cw_error_nomem(err, bytes, "scratch memory");
        return NULL;
    }
    bytes = CW_ALIGN_UP(CW_MAX(bytes, 1), 64);
    while (!a->current || a->used + bytes > a->current->size) {
        int r = arena_extend(a, bytes, err);
        if (r == 0)
            break;
        struct cw_arena_chunk **next = a->current ? &a->current->next : &a->first;
        if (r < 0 || (!*next && !(*next = arena_chunk_new(a, bytes, err))))
            return NULL;
        a->current = *next; /* if this chunk is too small, the one after it was made for that reason */
        a->used = 0;
    }
    void *p = a->current->data + a->used;
    a->used += bytes;
    return p;
}

int cw_arena_reserve(struct cw_arena *a, size_t bytes, const char *what, struct cw_error *err)
{
    int r = cw_budget_take(a->budget, bytes, what, err);
    if (r < 0)
        return r;
    a->reserved += bytes;
    return 0;
}

void cw_arena_unreserve(struct cw_arena *a, size_t bytes)
{
    a->reserved -= bytes;
    cw_budget_give(a->budget, bytes);
}

struct cw_arena_mark cw_arena_mark(const struct cw_arena *a)
{
    return (struct cw_arena_mark){a->current, a->used};
}

void cw_arena_release(struct cw_arena *a, struct cw_arena_mark m)
{
    a->current = m.chunk;
    a->used = m.used;
}

void cw_arena_reset(struct cw_arena *a, size_t keep_bytes)
{
    struct cw_arena_chunk **at = &a->first;
    size_t kept = 0;
    while (*at) {
        struct cw_arena_chunk *c = *at;
        if (kept + c->size <= keep_bytes) {
            kept += c->size;
            at = &c->next;
        } else {
            *at = c->next;
            arena_chunk_free(a, c);
        }
    }
    a->current = NULL;
    a->used = 0;
    if (a->reserved)
        cw_arena_unreserve(a, a->reserved);
}

void cw_arena_deinit(struct cw_arena *a)
{
    cw_arena_reset(a, 0);
}
