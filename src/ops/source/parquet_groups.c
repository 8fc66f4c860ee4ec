/*
 * Loads rows of row groups. A column of a row group is decoded as a whole, by one thread, and kept in bounded
 * memory for the rows that other calls want of it. The lock guards the list of entries; values of an entry
 * that is ready are immutable.
 */
#include "ops/source/parquet_groups.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "storage/file.h"

/* ---- entries ---- */

static void entry_free(struct parquet_entry *e)
{
    if (e->kept)
        cw_budget_give(e->budget, e->values.bytes);
    cw_parquet_values_deinit(&e->values);
    free(e);
}

/* Frees entries that no thread uses: of this budget, or (budget NULL) the least recently used ones beyond
 * keep_bytes, and those that are not kept. */
static void entries_free(struct parquet_source *s, const struct cw_budget *budget)
{
    size_t kept = 0;
    for (struct parquet_entry **at = &s->entries; *at;) {
        struct parquet_entry *e = *at;
        bool drop = budget ? e->budget == budget
                           : !e->kept || (e->refs == 0 && kept + e->values.bytes > s->keep_bytes);
        if (e->ready && e->refs == 0 && drop) {
            *at = e->next;
            entry_free(e);
            continue;
        }
        kept += e->kept ? e->values.bytes : 0;
        at = &e->next;
    }
}

void parquet_trim(struct cw_source *base, struct cw_budget *budget)
{
    struct parquet_source *s = (struct parquet_source *)base;
    CW_GUARD(&s->mutex);
    entries_free(s, budget);
}

/* Puts the defaults of attribute `nulls` in place of nulls. */
static void entry_fill_nulls(const struct cw_table_column *c, struct cw_parquet_values *v)
{
    uint64_t bad = 0;
    bool list = c->type.ndim == 1;
    if (v->element_valid) { /* a list with a null element that has no default can't be delivered */
        bool filled = c->has_default && !c->default_is_list;
        if (!filled && !v->valid && (v->valid = malloc(v->n_rows + 1))) {
            memset(v->valid, 1, v->n_rows);
            v->bytes += v->n_rows;
        }
        for (uint64_t row = 0, at = 0; row < v->n_rows; row++)
            for (uint64_t n = v->slices[row].size / v->item; n > 0; n--, at++)
                if (!v->element_valid[at] && filled)
                    memcpy(v->numbers + at * v->item, c->def, v->item);
                else if (!v->element_valid[at] && v->valid)
                    v->valid[row] = 2;
    }
    for (uint64_t row = 0; v->valid && row < v->n_rows; row++) {
        if (v->valid[row] == 0 && c->has_default) {
            v->valid[row] = 1;
            if (c->type.dtype == CW_BYTES)
                v->slices[row] = (struct cw_parquet_slice){(const uint8_t *)c->text, c->text_size};
            else if (list)
                v->slices[row] = (struct cw_parquet_slice){c->def,
                                                           c->default_is_list ? c->n_default * v->item : 0};
            else
                memcpy(v->numbers + row * v->item, c->def, v->item);
        }
        bad += v->valid[row] != 1;
    }
    if (v->valid && bad == 0) {
        free(CW_STEAL(v->valid));
        v->bytes -= v->n_rows;
    }
}

/* Reads and decodes a column of a row group into e->values. */
static int entry_decode(const struct parquet_source *s, struct parquet_entry *e, struct cw_arena *arena,
                        struct cw_error *err)
{
    const struct parquet_group *g = &s->groups[e->group];
    const struct parquet_file *f = &s->files[g->file];
    const struct cw_parquet_column *c = &f->meta.columns[f->column[e->column]];
    const struct cw_parquet_group *group = &f->meta.groups[g->number];
    const struct cw_parquet_chunk *k = &group->chunks[f->column[e->column]];
    size_t bytes = (size_t)k->size + cw_parquet_decode_bytes(c, k, group->n_rows);
    char why[CW_PARQUET_WHY] = "";
    int r = cw_arena_reserve(arena, bytes, "a row group of a Parquet file", err);
    if (r < 0)
        return r;
    uint8_t *data = malloc(k->size + CW_PARQUET_SLACK);
    uint64_t start_ns = cw_now_ns();
    r = data ? cw_file_read(f->file, k->offset, data, (size_t)k->size, false, err) : CW_E_MEMORY;
    if (r == 0)
        r = cw_file_check(f->file, start_ns, false, err);
    if (r == 0) {
        memset(data + k->size, 0, CW_PARQUET_SLACK);
        r = cw_parquet_decode(c, k, group->n_rows, &data, &e->values, why);
    }
    if (r == CW_E_MEMORY)
        r = cw_error_nomem(err, bytes, "a row group of a Parquet file");
    else if (r == CW_E_DATA && why[0])
        r = cw_error_at_file(err, r, cw_file_path(f->file), 0, "%s: row group %zu, column \"%.80s\": %s",
                             cw_file_path(f->file), g->number, c->name, why);
    free(data);
    cw_arena_unreserve(arena, bytes);
    return r;
}

static struct parquet_entry **entries_find(struct parquet_source *s, size_t group, unsigned column,
                                           const struct cw_budget *budget)
{
    struct parquet_entry **at = &s->entries;
    while (*at && ((*at)->group != group || (*at)->column != column || (*at)->budget != budget))
        at = &(*at)->next;
    return at;
}

/* Returns a column of a row group, decoded, in *ret; the caller passes it to entry_release. 1: another thread
 * is decoding it, and `wait` is false. */
static int entry_acquire(struct parquet_source *s, size_t group, unsigned column, struct cw_arena *arena,
                         bool wait, struct parquet_entry **ret, struct cw_error *err)
{
    struct parquet_entry *e = NULL;
    CW_WITH (&s->mutex) {
        struct parquet_entry **at = entries_find(s, group, column, arena->budget);
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
            *e = (struct parquet_entry){
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
        return cw_error_nomem(err, sizeof(*e), "a row group");
    int r = entry_decode(s, e, arena, err);
    if (r == 0)
        entry_fill_nulls(&s->table->columns[column], &e->values);
    CW_WITH (&s->mutex) {
        e->ready = true;
        e->kept = r == 0 && cw_budget_take(e->budget, e->values.bytes, "a row group", NULL) == 0;
        if (r < 0) {
            *entries_find(s, group, column, arena->budget) = e->next;
            free(e);
        }
        pthread_cond_broadcast(&s->decoded);
    }
    return r;
}

static void entry_release(struct parquet_source *s, struct parquet_entry *e)
{
    CW_GUARD(&s->mutex);
    e->refs--;
    entries_free(s, NULL);
}

/* ---- rows ---- */

struct wanted { /* a row to load, and its index in the caller's list */
    uint64_t row;
    size_t place;
};

static int wanted_by_row(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    return x->row != y->row ? (x->row < y->row ? -1 : 1) : (x->place > y->place) - (x->place < y->place);
}

#define SCATTER(type) \
    for (size_t i = 0; i < n; i++) \
    memcpy(out + w[i].place * sizeof(type), numbers + (w[i].row - first) * sizeof(type), sizeof(type))

static void gather_numbers(const uint8_t *numbers, size_t item, const struct wanted *w, size_t n,
                           uint64_t first, uint8_t *out)
{
    if (w[n - 1].row - w[0].row == n - 1 && w[n - 1].place - w[0].place == n - 1 &&
        w[0].place + n / 2 == w[n / 2].place)
        memcpy(out + w[0].place * item, numbers + (w[0].row - first) * item, n * item);
    else if (item == 8)
        SCATTER(uint64_t);
    else if (item == 4)
        SCATTER(uint32_t);
    else if (item == 2)
        SCATTER(uint16_t);
    else
        SCATTER(uint8_t);
}

/* Copies the values of the rows w[0..n), of one row group, to their places in a column of n_rows rows. */
static int gather(const struct cw_parquet_values *v, const struct wanted *w, size_t n, uint64_t first,
                  struct parquet_rows_column *out, size_t n_rows, struct cw_arena *arena,
                  struct cw_error *err)
{
    if (v->valid && !out->valid) {
        if (!(out->valid = cw_arena_alloc(arena, n_rows, err)))
            return err->status;
        memset(out->valid, 1, n_rows);
    }
    for (size_t i = 0; v->valid && i < n; i++)
        out->valid[w[i].place] = v->valid[w[i].row - first];
    if (!v->slices) {
        gather_numbers(v->numbers, v->item, w, n, first, out->numbers);
        return 0;
    }
    size_t align = CW_MAX(v->item, (size_t)1), total = 0;
    for (size_t i = 0; i < n; i++)
        total += v->slices[w[i].row - first].size;
    uint8_t *to = cw_arena_alloc(arena, total + align, err);
    if (!to)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        struct cw_parquet_slice from = v->slices[w[i].row - first];
        out->slices[w[i].place] = (struct cw_parquet_slice){to, from.size};
        if (from.size)
            memcpy(to, from.data, from.size);
        to += from.size;
    }
    return 0;
}

static bool parquet_reads(const struct parquet_source *s, unsigned column)
{
    return s->op->out[s->table->columns[column].port].live;
}

/* Allocates the columns for n rows. */
static struct parquet_rows *rows_new(const struct parquet_source *s, size_t n, struct cw_arena *arena,
                                     struct cw_error *err)
{
    struct parquet_rows *rows = cw_arena_alloc(arena, sizeof(*rows), err);
    if (!rows)
        return NULL;
    memset(rows, 0, sizeof(*rows));
    for (unsigned c = 0; c < s->table->n; c++) {
        struct parquet_rows_column *out = &rows->columns[c];
        const struct cw_type *type = &s->table->columns[c].type;
        if (!parquet_reads(s, c))
            continue;
        if (cw_type_fixed(type))
            out->numbers = cw_arena_alloc(arena, n * cw_dtype_size(type->dtype), err);
        else
            out->slices = cw_arena_alloc(arena, n * sizeof(*out->slices), err);
        if (!out->numbers && !out->slices)
            return NULL;
    }
    return rows;
}

/* Loads the rows w[0..n) of a row group. Columns that another thread is decoding come last. */
static int parquet_load_group(struct parquet_source *s, size_t group, const struct wanted *w, size_t n,
                              struct parquet_rows *rows, size_t n_rows, struct cw_arena *arena,
                              struct cw_error *err)
{
    bool done[CW_OP_MAX_PORTS] = {false};
    int r = 0;
    for (int wait = 0; r >= 0 && wait < 2; wait++)
        for (unsigned c = 0; r >= 0 && c < s->table->n; c++) {
            struct parquet_entry *e = NULL;
            if (done[c] || !parquet_reads(s, c))
                continue;
            r = entry_acquire(s, group, c, arena, wait, &e, err);
            if (r != 0)
                continue;
            r = gather(&e->values, w, n, s->groups[group].first, &rows->columns[c], n_rows, arena, err);
            entry_release(s, e);
            done[c] = true;
        }
    return CW_MIN(r, 0);
}

int parquet_load(const struct cw_source *base, const struct cw_load *l, struct cw_tensor *raw,
                 struct cw_error *err)
{
    struct parquet_source *s = (struct parquet_source *)(uintptr_t)base; /* the entries have a lock */
    struct cw_error local = {0};
    err = err ? err : &local;
    struct parquet_rows *rows = rows_new(s, l->n, l->arena, err);
    struct wanted *w = rows ? cw_arena_alloc(l->arena, l->n * sizeof(*w), err) : NULL;
    if (!w)
        return err->status;
    bool sorted = true;
    for (size_t i = 0; i < l->n; i++) {
        w[i] = (struct wanted){.row = l->rows[i], .place = i};
        raw[i] = (struct cw_tensor){.data = rows, .size = i};
        sorted &= i == 0 || w[i].row >= w[i - 1].row;
    }
    if (!sorted)
        qsort(w, l->n, sizeof(*w), wanted_by_row);
    int r = 0;
    for (size_t i = 0, end; r == 0 && i < l->n; i = end) {
        size_t group = CW_FIRST(g, 0, s->n_groups, s->chunk_ends[g] > w[i].row);
        for (end = i + 1; end < l->n && w[end].row < s->chunk_ends[group];)
            end++;
        r = parquet_load_group(s, group, w + i, end - i, rows, l->n, l->arena, err);
    }
    return r;
}
