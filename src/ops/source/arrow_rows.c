/*
 * Copies rows of a column of a record batch, from memory, from the mapped file, or with reads of the file. No
 * number of the file is trusted: what is fetched lies within its buffer, and a number is read only once,
 * because a mapped file may change.
 */
#include "ops/source/arrow_rows.h"

#include <inttypes.h>
#include <string.h>

#include "storage/file.h"
#include "storage/mapped.h"

/* Rows that are read together if the file is not mapped: they are at most so many rows apart. */
#define NEAR_ROWS 512

struct gather {
    const struct cw_arrow_file *f;
    const struct cw_arrow_batch *batch;
    const struct cw_arrow_column *c;
    const struct cw_arrow_array *a;
    const struct cw_table_column *table;
    const struct row_group_wanted *w; /* n rows in ascending order */
    size_t n;
    struct row_group_column *out;
    size_t n_rows; /* of out */
    struct cw_arena *arena;
    struct cw_error *err;
};

#define damaged(g, ...) cw_arrow_damaged((g)->f, (g)->batch, (g)->c->name, (g)->err, __VA_ARGS__)

/* Returns bytes of a buffer; NULL: g->err says why not. */
static const uint8_t *gather_fetch(const struct gather *g, const struct cw_arrow_buffer *b, uint64_t offset,
                                   uint64_t size)
{
    static const uint8_t none[8];
    if (offset > b->size || size > b->size - offset) {
        (void)damaged(g, "a buffer has %" PRIu64 " bytes: expected at least %" PRIu64, b->size,
                      offset + size);
        return NULL;
    }
    if (size == 0)
        return none;
    if (b->memory)
        return b->memory + offset;
    if (g->f->mapped)
        return g->f->mapped + b->offset + offset;
    uint8_t *to = cw_arena_alloc(g->arena, (size_t)size, g->err);
    return to && cw_file_read(g->f->file, b->offset + offset, to, (size_t)size, false, g->err) == 0 ? to
                                                                                                    : NULL;
}

/* Returns whether bytes of a buffer stay where they are until the rows are used. */
static bool gather_stays(const struct gather *g, const struct cw_arrow_buffer *b)
{
    return !b->memory && !g->f->mapped; /* they were read into the arena */
}

static bool gather_bit(const uint8_t *bits, uint64_t i)
{
    return bits[i >> 3] >> (i & 7) & 1;
}

static int64_t gather_offset(const uint8_t *p, uint64_t i, uint32_t width)
{
    int32_t narrow = 0;
    int64_t wide = 0;
    if (width == 8)
        memcpy(&wide, p + 8 * i, sizeof(wide));
    else
        memcpy(&narrow, p + 4 * i, sizeof(narrow));
    return width == 8 ? wide : narrow;
}

/* ---- nulls ---- */

/* Marks a row as null, unless there is a default. */
static int gather_put_null(const struct gather *g, size_t i)
{
    const struct cw_table_column *t = g->table;
    size_t place = g->w[i].place, item = cw_dtype_size(t->type.dtype);
    struct row_group_column *out = g->out;
    if (out->slices)
        out->slices[place] = (struct cw_slice){(const uint8_t *)"", 0};
    if (!t->has_default) {
        if (!row_groups_valid(out, g->n_rows, g->arena, g->err))
            return CW_E_MEMORY;
        out->valid[place] = 0;
    }
    if (out->numbers) {
        size_t row = cw_type_bytes(&t->type);
        uint8_t *to = out->numbers + place * row;
        if (!t->has_default)
            memset(to, 0, row);
        for (size_t k = 0; t->has_default && k < row / item; k++)
            memcpy(to + k * item, (const uint8_t *)t->def + (t->default_is_list ? k * item : 0), item);
    } else if (t->has_default && t->type.dtype == CW_BYTES) {
        out->slices[place] = (struct cw_slice){(const uint8_t *)t->text, t->text_size};
    } else if (t->has_default && t->default_is_list) {
        out->slices[place] = (struct cw_slice){t->def, t->n_default * item};
    }
    return 0;
}

/* Sets null[i] for each row that is null, or in a struct that is. Returns 1 if there is one, 0, or a status.
 */
static int gather_nulls(const struct gather *g, uint8_t *null)
{
    uint64_t first = g->w[0].row, last = g->w[g->n - 1].row;
    uint8_t any = 0;
    memset(null, 0, g->n);
    for (uint32_t k = 0; k <= g->c->n_above; k++) {
        const struct cw_arrow_buffer *b = &g->a->slots[k];
        if (b->size == 0)
            continue;
        const uint8_t *bits = gather_fetch(g, b, first >> 3, (last >> 3) - (first >> 3) + 1);
        if (!bits)
            return g->err->status;
        for (size_t i = 0; i < g->n; i++)
            any |= null[i] |= !gather_bit(bits, g->w[i].row - (first & ~UINT64_C(7)));
    }
    return any;
}

/* ---- numbers ---- */

#define SCATTER(type) \
    for (size_t i = 0; i < n; i++) \
    memcpy(out + w[i].place * sizeof(type), from + (w[i].row - first) * sizeof(type), sizeof(type))

/* Copies one item for each row. from: that of the first row. */
static void gather_items(const struct row_group_wanted *w, size_t n, const uint8_t *from, size_t item,
                         uint8_t *out)
{
    uint64_t first = w[0].row;
    if (w[n - 1].row - first == n - 1 && w[n - 1].place - w[0].place == n - 1 &&
        w[0].place + n / 2 == w[n / 2].place)
        memcpy(out + w[0].place * item, from, n * item);
    else if (item == 8)
        SCATTER(uint64_t);
    else if (item == 4)
        SCATTER(uint32_t);
    else if (item == 2)
        SCATTER(uint16_t);
    else
        for (size_t i = 0; i < n; i++)
            memcpy(out + w[i].place * item, from + (w[i].row - first) * item, item);
}

/* Puts the default in place of nulls in a row's numbers x .. x + n - 1, which are at `to`, or marks the row.
 */
static int gather_inner(const struct gather *g, size_t i, uint64_t x, uint64_t n, uint8_t *to)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_table_column *t = g->table;
    size_t item = cw_dtype_size(t->type.dtype);
    uint32_t slot = c->n_above + 1 + (c->list_width > 0);
    for (uint32_t k = 0; k < c->n_inner && n > 0; k++) {
        const struct cw_arrow_buffer *b = &g->a->slots[slot + k];
        uint64_t each = c->inner_numbers[k], from = x / each, upto = (x + n) / each;
        if (b->size == 0)
            continue;
        const uint8_t *bits = gather_fetch(g, b, from >> 3, ((upto - 1) >> 3) - (from >> 3) + 1);
        if (!bits)
            return g->err->status;
        for (uint64_t e = from; e < upto; e++) {
            if (gather_bit(bits, e - (from & ~UINT64_C(7))))
                continue;
            if (t->has_default && !t->default_is_list) {
                for (uint64_t m = 0; m < each; m++)
                    memcpy(to + ((e - from) * each + m) * item, t->def, item);
                continue;
            }
            if (!row_groups_valid(g->out, g->n_rows, g->arena, g->err))
                return CW_E_MEMORY;
            g->out->valid[g->w[i].place] = 2;
        }
    }
    return 0;
}

/* Numbers and bools, one or a fixed number of them in a row. */
static int gather_fixed(const struct gather *g, const uint8_t *null)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_arrow_buffer *b = &g->a->slots[c->n_slots - 1];
    uint64_t first = g->w[0].row, rows = g->w[g->n - 1].row - first + 1, per = c->per_row;
    bool bits = c->kind == CW_ARROW_BOOLS;
    uint64_t most = b->size / c->width * (bits ? 8 : 1) / per;
    size_t item = (size_t)(per * c->width);
    if (first + rows > most)
        return damaged(g, "its values have %" PRIu64 " bytes, too few for row %" PRIu64, b->size,
                       first + rows - 1);
    uint64_t at = bits ? first * per >> 3 : first * item,
             size = bits ? ((first + rows) * per + 7) / 8 - at : rows * item;
    const uint8_t *from = gather_fetch(g, b, at, size);
    int r = from ? 0 : g->err->status;
    if (r == 0 && !bits)
        gather_items(g->w, g->n, from, item, g->out->numbers);
    for (size_t i = 0; r == 0 && bits && i < g->n; i++)
        for (uint64_t k = 0; k < per; k++)
            g->out->numbers[g->w[i].place * per + k] = gather_bit(from, g->w[i].row * per + k - 8 * at);
    for (size_t i = 0; r == 0 && c->n_inner > 0 && i < g->n; i++)
        if (!null[i])
            r = gather_inner(g, i, g->w[i].row * per, per, g->out->numbers + g->w[i].place * item);
    return r;
}

/* Lists of numbers whose length varies. */
static int gather_lists(const struct gather *g, const uint8_t *null)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_arrow_buffer *b = &g->a->slots[c->n_slots - 1];
    uint64_t first = g->w[0].row, rows = g->w[g->n - 1].row - first + 1, total = 0, low = UINT64_MAX,
             high = 0;
    bool bits = c->kind == CW_ARROW_BOOLS;
    uint64_t most = b->size / c->width * (bits ? 8 : 1) / c->per_row;
    const uint8_t *offsets = gather_fetch(g, &g->a->slots[c->n_above + 1], first * c->list_width,
                                          (rows + 1) * c->list_width);

    struct range {
        uint64_t from, n;
    } *ranges = offsets ? cw_arena_alloc(g->arena, g->n * sizeof(*ranges), g->err) : NULL;

    if (!ranges)
        return g->err->status;
    for (size_t i = 0; i < g->n; i++) {
        int64_t from = gather_offset(offsets, g->w[i].row - first, c->list_width),
                upto = gather_offset(offsets, g->w[i].row - first + 1, c->list_width);
        if (from < 0 || upto < from || (uint64_t)upto > most)
            return damaged(g, "row %" PRIu64 " has values %" PRId64 " to %" PRId64 " of %" PRIu64,
                           g->w[i].row, from, upto, most);
        ranges[i] = (struct range){(uint64_t)from * c->per_row,
                                   null[i] ? 0 : (uint64_t)(upto - from) * c->per_row};
        if (ranges[i].n == 0)
            continue;
        low = CW_MIN(low, ranges[i].from);
        high = CW_MAX(high, ranges[i].from + ranges[i].n);
        total += ranges[i].n;
    }
    low = CW_MIN(low, high);
    uint64_t at = bits ? low >> 3 : low * c->width, end = bits ? (high + 7) / 8 : high * c->width;
    const uint8_t *from = gather_fetch(g, b, at, end - at);
    uint8_t *to = from ? cw_arena_alloc(g->arena, (size_t)(total + 1) * c->width, g->err) : NULL;
    int r = to ? 0 : g->err->status;
    for (size_t i = 0; r == 0 && i < g->n; i++) {
        struct range x = ranges[i];
        size_t size = (size_t)(x.n * c->width);
        if (!bits && size)
            memcpy(to, from + x.from * c->width - at, size);
        for (uint64_t k = 0; bits && k < x.n; k++)
            to[k] = gather_bit(from, x.from + k - 8 * at);
        g->out->slices[g->w[i].place] = (struct cw_slice){to, size};
        r = gather_inner(g, i, x.from, x.n, to);
        to += size;
    }
    return r;
}

/* ---- strings ---- */

/* Copies the strings of all rows to the arena, if they do not stay where they are. */
static int gather_copy_strings(const struct gather *g, const uint8_t *null, bool stays)
{
    size_t total = 0;
    for (size_t i = 0; i < g->n; i++) {
        struct cw_slice *s = &g->out->slices[g->w[i].place];
        if (null[i])
            *s = (struct cw_slice){0};
        total += s->size;
    }
    uint8_t *to = stays ? NULL : cw_arena_alloc(g->arena, total + 1, g->err);
    if (!stays && !to)
        return g->err->status;
    for (size_t i = 0; to && i < g->n; i++) {
        struct cw_slice *s = &g->out->slices[g->w[i].place];
        if (s->size)
            memcpy(to, s->data, s->size);
        s->data = to;
        to += s->size;
    }
    return 0;
}

static int gather_strings(const struct gather *g, const uint8_t *null)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_arrow_buffer *b = &g->a->slots[c->n_slots - 1];
    uint64_t first = g->w[0].row, rows = g->w[g->n - 1].row - first + 1, low = UINT64_MAX, high = 0;
    const uint8_t *offsets = gather_fetch(g, b - 1, first * c->width, (rows + 1) * c->width);
    if (!offsets)
        return g->err->status;
    for (size_t i = 0; i < g->n; i++) {
        int64_t from = gather_offset(offsets, g->w[i].row - first, c->width),
                upto = gather_offset(offsets, g->w[i].row - first + 1, c->width);
        if (from < 0 || upto < from || (uint64_t)upto > b->size)
            return damaged(g, "row %" PRIu64 " has the bytes %" PRId64 " to %" PRId64 " of %" PRIu64,
                           g->w[i].row, from, upto, b->size);
        low = CW_MIN(low, (uint64_t)from);
        high = CW_MAX(high, (uint64_t)upto);
        /* an offset, until the bytes are fetched */
        g->out->slices[g->w[i].place] = (struct cw_slice){(const uint8_t *)(uintptr_t)from, /* NOLINT */
                                                          (size_t)(upto - from)};
    }
    const uint8_t *from = gather_fetch(g, b, low, high - low);
    if (!from)
        return g->err->status;
    for (size_t i = 0; i < g->n; i++) {
        struct cw_slice *s = &g->out->slices[g->w[i].place];
        s->data = s->size ? from + ((uintptr_t)s->data - low) : from;
    }
    return gather_copy_strings(g, null, gather_stays(g, b));
}

static int gather_fixed_strings(const struct gather *g, const uint8_t *null)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_arrow_buffer *b = &g->a->slots[c->n_slots - 1];
    uint64_t first = g->w[0].row, rows = g->w[g->n - 1].row - first + 1;
    if (first + rows > b->size / c->width)
        return damaged(g, "its values have %" PRIu64 " bytes, too few for row %" PRIu64, b->size,
                       first + rows - 1);
    const uint8_t *from = gather_fetch(g, b, first * c->width, rows * c->width);
    if (!from)
        return g->err->status;
    for (size_t i = 0; i < g->n; i++)
        g->out->slices[g->w[i].place] = (struct cw_slice){from + (g->w[i].row - first) * c->width, c->width};
    return gather_copy_strings(g, null, gather_stays(g, b));
}

/* The string of a view: 4 bytes of length, then up to 12 bytes of the string; or a prefix of 4 bytes, the
 * number of a buffer, and an offset in it. */
static int gather_view(const struct gather *g, const struct cw_arrow_array *a, const uint8_t *view,
                       struct cw_slice *ret)
{
    int32_t size, buffer, offset;
    memcpy(&size, view, 4);
    if (size < 0)
        return damaged(g, "a string has %" PRId32 " bytes", size);
    if (size <= 12) {
        *ret = (struct cw_slice){view + 4, (size_t)size};
        return 0;
    }
    memcpy(&buffer, view + 8, 4);
    memcpy(&offset, view + 12, 4);
    if (buffer < 0 || (size_t)buffer >= a->n_slots - a->c->n_slots || offset < 0)
        return damaged(g, "a string lies in buffer %" PRId32 " at byte %" PRId32, buffer, offset);
    const uint8_t *from = gather_fetch(g, &a->slots[a->c->n_slots + (size_t)buffer], (uint64_t)offset,
                                       (uint64_t)size);
    *ret = (struct cw_slice){from, (size_t)size};
    return from ? 0 : g->err->status;
}

static int gather_views(const struct gather *g, const uint8_t *null)
{
    const struct cw_arrow_buffer *b = &g->a->slots[g->c->n_slots - 1];
    int r = 0;
    for (size_t i = 0; r == 0 && i < g->n; i++) {
        struct cw_slice *s = &g->out->slices[g->w[i].place];
        const uint8_t *in = null[i] ? NULL : gather_fetch(g, b, g->w[i].row * 16, 16);
        uint8_t *view = in ? cw_arena_alloc(g->arena, 16, g->err) : NULL;
        *s = (struct cw_slice){0};
        if (view) { /* a copy, which does not change */
            memcpy(view, in, 16);
            r = gather_view(g, g->a, view, s);
        } else if (!null[i]) {
            r = g->err->status;
        }
    }
    return r < 0 ? r : gather_copy_strings(g, null, false);
}

/* ---- dictionaries ---- */

/* The value of an entry of a dictionary: of bytes the string in *ret, else the number in `number`. Returns 1
 * if it is null. */
static int gather_entry(const struct gather *g, const struct cw_arrow_array *part, uint64_t entry,
                        struct cw_slice *ret, uint8_t *number)
{
    const struct cw_arrow_column *c = part->c;
    const struct cw_arrow_buffer *slots = part->slots;
    const uint8_t *p = slots[0].size ? gather_fetch(g, &slots[0], entry >> 3, 1) : (const uint8_t *)"\xff";
    if (p && !gather_bit(p, entry & 7))
        return 1;
    switch (p ? c->kind : CW_ARROW_NUMBERS) {
    case CW_ARROW_NUMBERS:
        if ((p = p ? gather_fetch(g, &slots[1], entry * c->width, c->width) : NULL))
            memcpy(number, p, c->width);
        break;
    case CW_ARROW_BOOLS:
        if ((p = gather_fetch(g, &slots[1], entry >> 3, 1)))
            *number = gather_bit(p, entry & 7);
        break;
    case CW_ARROW_FIXED:
        p = gather_fetch(g, &slots[1], entry * c->width, c->width);
        *ret = (struct cw_slice){p, c->width};
        break;
    case CW_ARROW_STRINGS:
        if ((p = gather_fetch(g, &slots[1], entry * c->width, 2 * (uint64_t)c->width))) {
            int64_t from = gather_offset(p, 0, c->width), upto = gather_offset(p, 1, c->width);
            if (from < 0 || upto < from)
                return damaged(g, "entry %" PRIu64 " of its dictionary has the bytes %" PRId64 " to %" PRId64,
                               entry, from, upto);
            p = gather_fetch(g, &slots[2], (uint64_t)from, (uint64_t)(upto - from));
            *ret = (struct cw_slice){p, (size_t)(upto - from)};
        }
        break;
    case CW_ARROW_VIEWS:
        if ((p = gather_fetch(g, &slots[1], entry * 16, 16)))
            return gather_view(g, part, p, ret);
    }
    return p ? 0 : g->err->status;
}

static int64_t gather_index(const uint8_t *p, uint32_t width, bool is_signed)
{
    uint64_t v = 0;
    memcpy(&v, p, width);
    unsigned unused = 64 - 8 * width;
    return is_signed ? (int64_t)(v << unused) >> unused : (int64_t)v;
}

static int gather_dictionary(const struct gather *g, uint8_t *null)
{
    const struct cw_arrow_column *c = g->c;
    const struct cw_arrow_array *parts = g->a->dictionary;
    uint64_t first = g->w[0].row, rows = g->w[g->n - 1].row - first + 1;
    size_t item = g->out->numbers ? cw_dtype_size(c->type.dtype) : 0;
    const uint8_t *p = gather_fetch(g, &g->a->slots[c->n_slots - 1], first * c->width, rows * c->width);
    int r = p ? 0 : g->err->status;
    for (size_t i = 0; r >= 0 && i < g->n; i++) {
        size_t place = g->w[i].place, part = 0;
        struct cw_slice none, *s = g->out->slices ? &g->out->slices[place] : &none;
        *s = (struct cw_slice){0};
        if (null[i])
            continue;
        int64_t index = gather_index(p + (g->w[i].row - first) * c->width, c->width, c->is_signed);
        uint64_t entry = (uint64_t)index;
        while (part < g->a->n_parts && entry >= parts[part].n_rows)
            entry -= parts[part++].n_rows;
        if (part == g->a->n_parts)
            return damaged(g, "row %" PRIu64 " has entry %" PRId64 " of its dictionary, which has fewer",
                           g->w[i].row, index);
        uint8_t number[8];
        r = gather_entry(g, &parts[part], entry, s, number);
        if (r == 0 && item)
            memcpy(g->out->numbers + place * item, number, item);
        null[i] = r == 1;
    }
    return r < 0 || item ? CW_MIN(r, 0) : gather_copy_strings(g, null, false);
}

/* ---- rows ---- */

/* Gathers rows whose values are fetched together. */
static int gather_run(const struct gather *g)
{
    uint8_t *null = cw_arena_alloc(g->arena, g->n, g->err);
    int r = null ? gather_nulls(g, null) : g->err->status;
    if (r < 0)
        return r;
    if (g->c->has_dictionary)
        r = gather_dictionary(g, null);
    else if (g->c->list_width)
        r = gather_lists(g, null);
    else if (g->c->kind == CW_ARROW_STRINGS)
        r = gather_strings(g, null);
    else if (g->c->kind == CW_ARROW_FIXED)
        r = gather_fixed_strings(g, null);
    else if (g->c->kind == CW_ARROW_VIEWS)
        r = gather_views(g, null);
    else
        r = gather_fixed(g, null);
    for (size_t i = 0; r == 0 && i < g->n; i++)
        if (null[i])
            r = gather_put_null(g, i);
    return r;
}

int arrow_gather(const struct row_group_at *at, const void *values, const struct row_group_wanted *w,
                 size_t n, struct row_group_column *out, size_t n_rows, struct cw_arena *arena,
                 struct cw_error *err)
{
    const struct cw_arrow_file *f = at->meta;
    struct cw_error local = {0};
    struct cw_arrow_array located;
    struct gather g = {.f = f,
                       .batch = &f->batches[at->number],
                       .c = &f->columns[at->column],
                       .table = at->table,
                       .out = out,
                       .n_rows = n_rows,
                       .arena = arena,
                       .err = err ? err : &local};
    int r = 0;
    if (values)
        g.a = ((const struct arrow_values *)values)->array;
    else if ((r = cw_arrow_locate(f, g.c, g.batch, arena, &located, g.err)) == 0)
        g.a = &located;
    bool apart = !values && !f->mapped; /* each run is read */
    for (size_t i = 0, end; r == 0 && i < n; i = end) {
        for (end = i + 1; end < n && (!apart || w[end].row - w[end - 1].row <= NEAR_ROWS);)
            end++;
        g.w = w + i;
        g.n = end - i;
        r = gather_run(&g);
    }
    if (r >= 0 && f->mapped && !values && cw_mapped_failed(f->map)) {
        const char *path = cw_file_path(at->file);
        r = cw_error_at_file(g.err, CW_E_DATA, path, 0,
                             "%s: it can't be read any more: its storage failed, or it was truncated", path);
    }
    return r;
}
