/*
 * Loads rows of groups. A column of a group is decoded as a whole, by one thread, and kept in bounded memory
 * for the rows that other calls want of it; rows of groups that need no decoding are read in place. The lock
 * guards the list of entries; values of an entry that is ready are immutable.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ops/source/row_groups.h"
#include "storage/file.h"

/* ---- entries ---- */

static void entry_free(const struct row_groups *s, struct row_group_entry *e)
{
    if (e->kept)
        cw_budget_give(e->budget, e->bytes);
    if (e->values)
        s->format->free_values(e->values);
    free(e);
}

/* Frees entries that no thread uses: of this budget, or (budget NULL) the least recently used ones beyond
 * keep_bytes, and those that are not kept. */
static void entries_free(struct row_groups *s, const struct cw_budget *budget)
{
    size_t kept = 0;
    for (struct row_group_entry **at = &s->entries; *at;) {
        struct row_group_entry *e = *at;
        bool drop = budget ? e->budget == budget
                           : !e->kept || (e->refs == 0 && kept + e->bytes > s->keep_bytes);
        if (e->ready && e->refs == 0 && drop) {
            *at = e->next;
            entry_free(s, e);
            continue;
        }
        kept += e->kept ? e->bytes : 0;
        at = &e->next;
    }
}

void row_groups_trim(struct cw_source *base, struct cw_budget *budget)
{
    struct row_groups *s = (struct row_groups *)base;
    CW_GUARD(&s->mutex);
    entries_free(s, budget);
}

static struct row_group_at groups_at(const struct row_groups *s, size_t group, unsigned column)
{
    const struct row_group *g = &s->groups[group];
    const struct row_group_file *f = &s->files[g->file];
    return (struct row_group_at){.file = f->file,
                                 .meta = f->meta,
                                 .number = g->number,
                                 .column = f->column[column],
                                 .table = &s->table->columns[column]};
}

/* Reads and decodes a column of a group into e->values. */
static int entry_decode(const struct row_groups *s, struct row_group_entry *e, struct cw_arena *arena,
                        struct cw_error *err)
{
    const struct row_group_at at = groups_at(s, e->group, e->column);
    uint64_t start_ns = cw_now_ns();
    int r = s->format->decode(&at, arena, &e->values, &e->bytes, err);
    if (r == 0)
        r = cw_file_check(at.file, start_ns, false, err);
    else if (r == CW_E_DATA)
        r = cw_file_verdict(at.file, r, err);
    return r;
}

static struct row_group_entry **entries_find(struct row_groups *s, size_t group, unsigned column,
                                             const struct cw_budget *budget)
{
    struct row_group_entry **at = &s->entries;
    while (*at && ((*at)->group != group || (*at)->column != column || (*at)->budget != budget))
        at = &(*at)->next;
    return at;
}

/* Returns a column of a group, decoded, in *ret; the caller passes it to entry_release. 1: another thread is
 * decoding it, and `wait` is false. */
static int entry_acquire(struct row_groups *s, size_t group, unsigned column, struct cw_arena *arena,
                         bool wait, struct row_group_entry **ret, struct cw_error *err)
{
    struct row_group_entry *e = NULL;
    CW_WITH (&s->mutex) {
        struct row_group_entry **at = entries_find(s, group, column, arena->budget);
        while (wait && *at && !(*at)->ready) {
            pthread_cond_wait(&s->decoded, &s->mutex);
            at = entries_find(s, group, column, arena->budget);
        }
        if ((e = *at)) {
            if (e->ready) { /* to the front */
                *at = e->next;
                e->next = s->entries;
                s->entries = e;
                e->refs++;
            }
        } else if ((e = *ret = calloc(1, sizeof(*e)))) {
            *e = (struct row_group_entry){
                .next = s->entries, .group = group, .column = column, .refs = 1, .budget = arena->budget};
            s->entries = e;
        }
        if (e && *ret != e) {
            int r = e->ready ? 0 : 1;
            *ret = e;
            return r;
        }
    }
    if (!e)
        return cw_error_nomem(err, sizeof(*e), "a group of rows");
    int r = entry_decode(s, e, arena, err);
    CW_WITH (&s->mutex) {
        e->ready = true;
        e->kept = r == 0 && cw_budget_take(e->budget, e->bytes, "a group of rows", NULL) == 0;
        if (r < 0) {
            *entries_find(s, group, column, arena->budget) = e->next;
            entry_free(s, e);
        }
        pthread_cond_broadcast(&s->decoded);
    }
    return r;
}

static void entry_release(struct row_groups *s, struct row_group_entry *e)
{
    CW_GUARD(&s->mutex);
    e->refs--;
    entries_free(s, NULL);
}

/* ---- rows ---- */

static int wanted_by_row(const void *a, const void *b)
{
    const struct row_group_wanted *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

static bool groups_read(const struct row_groups *s, unsigned column)
{
    return s->op->out[s->table->columns[column].port].live;
}

uint8_t *row_groups_valid(struct row_group_column *out, size_t n_rows, struct cw_arena *arena,
                          struct cw_error *err)
{
    if (!out->valid && (out->valid = cw_arena_alloc(arena, n_rows, err)))
        memset(out->valid, 1, n_rows);
    return out->valid;
}

/* Allocates the columns for n rows. */
static struct row_group_rows *rows_new(const struct row_groups *s, size_t n, struct cw_arena *arena,
                                       struct cw_error *err)
{
    struct row_group_rows *rows = cw_arena_alloc(arena, sizeof(*rows), err);
    if (!rows)
        return NULL;
    memset(rows, 0, sizeof(*rows));
    for (unsigned c = 0; c < s->table->n; c++) {
        struct row_group_column *out = &rows->columns[c];
        const struct cw_type *type = &s->table->columns[c].type;
        if (!groups_read(s, c))
            continue;
        if (cw_type_fixed(type))
            out->numbers = cw_arena_alloc(arena, n * cw_type_bytes(type), err);
        else
            out->slices = cw_arena_alloc(arena, n * sizeof(*out->slices), err);
        if (!out->numbers && !out->slices)
            return NULL;
    }
    return rows;
}

static int load_in_place(const struct row_group_at *at, const struct row_groups *s,
                         const struct row_group_wanted *w, size_t n, struct row_group_column *out,
                         size_t n_rows, struct cw_arena *arena, struct cw_error *err)
{
    uint64_t start_ns = cw_now_ns();
    int r = s->format->gather(at, NULL, w, n, out, n_rows, arena, err);
    if (r == 0)
        return cw_file_check(at->file, start_ns, false, err);
    return r == CW_E_DATA ? cw_file_verdict(at->file, r, err) : r;
}

/* Loads the rows w[0..n) of a group. Columns that another thread is decoding come last. */
static int load_group(struct row_groups *s, size_t group, const struct row_group_wanted *w, size_t n,
                      struct row_group_rows *rows, size_t n_rows, struct cw_arena *arena,
                      struct cw_error *err)
{
    bool done[CW_OP_MAX_PORTS] = {false};
    const struct row_group_format *format = s->format;
    int r = 0;
    for (int wait = 0; r >= 0 && wait < 2; wait++)
        for (unsigned c = 0; r >= 0 && c < s->table->n; c++) {
            struct row_group_entry *e = NULL;
            const struct row_group_at at = groups_at(s, group, c);
            if (done[c] || !groups_read(s, c))
                continue;
            bool in_place = format->in_place && format->in_place(at.meta, at.number, at.column);
            r = in_place ? load_in_place(&at, s, w, n, &rows->columns[c], n_rows, arena, err)
                         : entry_acquire(s, group, c, arena, wait, &e, err);
            done[c] = r == 0;
            if (r != 0 || in_place)
                continue;
            r = format->gather(&at, e->values, w, n, &rows->columns[c], n_rows, arena, err);
            entry_release(s, e);
        }
    return CW_MIN(r, 0);
}

int row_groups_load(const struct cw_source *base, const struct cw_load *l, struct cw_tensor *raw,
                    struct cw_error *err)
{
    struct row_groups *s = (struct row_groups *)(uintptr_t)base; /* the entries have a lock */
    struct cw_error local = {0};
    err = err ? err : &local;
    struct row_group_rows *rows = rows_new(s, l->n, l->arena, err);
    struct row_group_wanted *w = rows ? cw_arena_alloc(l->arena, l->n * sizeof(*w), err) : NULL;
    if (!w)
        return err->status;
    bool sorted = true;
    for (size_t i = 0; i < l->n; i++) {
        w[i] = (struct row_group_wanted){.row = l->rows[i], .place = i};
        raw[i] = (struct cw_tensor){.data = rows, .size = i};
        sorted &= i == 0 || w[i].row >= w[i - 1].row;
    }
    if (!sorted)
        qsort(w, l->n, sizeof(*w), wanted_by_row);
    int r = 0;
    for (size_t i = 0, end; r == 0 && i < l->n; i = end) {
        size_t group = CW_FIRST(g, 0, s->n_groups, s->chunk_ends[g] > w[i].row);
        uint64_t first = s->groups[group].first;
        for (end = i; end < l->n && w[end].row < s->chunk_ends[group]; end++)
            w[end].row -= first;
        r = load_group(s, group, w + i, end - i, rows, l->n, l->arena, err);
    }
    return r;
}
