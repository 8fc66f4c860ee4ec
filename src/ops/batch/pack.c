/* The operator pack: rows of a fixed number of tokens, made from sequences of tokens. Elements are packed in
 * windows of consecutive elements. Each window lies in one block, and its rows depend on that window alone.
 * The rows of a window are delivered as results of the window's first element. Comments distinguish rows of
 * tokens, which are results, from rows of the block, which are the elements that arrive. */
#include <inttypes.h>
#include <string.h>

#include "data/convert.h"
#include "pipeline/pipeline.h"

/* Largest number of open rows: the search for a row is linear in it. */
#define PACK_BINS_MAX 1024

enum pack_algorithm { PACK_NEXT, PACK_FIRST_FIT, PACK_BEST_FIT }; /* in the order of `algorithms` */

struct pack {
    size_t length; /* tokens of a row */
    uint64_t window;
    enum pack_algorithm algorithm;
    size_t bins; /* number of rows that are open at the same time */
    bool split, separates, raises;
    _Alignas(uint64_t) uint8_t pad[8], separator[8]; /* in the component's dtype */
};

enum { PACK_TOKENS, PACK_SEGMENTS, PACK_POSITIONS }; /* output ports */

/* A row of tokens that has room left. */
struct pack_row {
    size_t number; /* counted from the window's first row */
    size_t used;   /* tokens */
    int32_t last;  /* number of its last segment */
};

/* The rows of tokens of a window. */
struct pack_rows {
    const struct pack *pack;
    size_t token_bytes;
    uint8_t *tokens; /* pack->length tokens per row; NULL: rows are only counted */
    int32_t *segments, *positions;
    size_t n; /* number of rows begun */
    size_t n_open;
    struct pack_row *open; /* pack->bins entries, in the order in which the rows were begun */
};

static struct pack_row pack_begin_row(struct pack_rows *r)
{
    const struct pack *p = r->pack;
    struct pack_row row = {.number = r->n++};
    if (!r->tokens)
        return row;
    size_t at = row.number * p->length;
    for (size_t i = at; i < at + p->length; i++)
        memcpy(r->tokens + i * r->token_bytes, p->pad, r->token_bytes);
    memset(r->segments + at, 0, p->length * sizeof(*r->segments));
    memset(r->positions + at, 0, p->length * sizeof(*r->positions));
    return row;
}

/* Appends n tokens to a row, which must have room for them. They continue the row's last segment; `before` is
 * the number of tokens that this segment already has. */
static void pack_add(const struct pack_rows *r, struct pack_row *row, const uint8_t *tokens, size_t n,
                     size_t before)
{
    size_t at = row->number * r->pack->length + row->used;
    row->used += n;
    if (!r->tokens || n == 0)
        return;
    memcpy(r->tokens + at * r->token_bytes, tokens, n * r->token_bytes);
    for (size_t i = 0; i < n; i++) {
        r->segments[at + i] = row->last;
        r->positions[at + i] = (int32_t)(before + i);
    }
}

/* Returns the number of the open row that the algorithm chooses for a segment of `need` tokens; r->n_open if
 * the segment fits in none. */
static size_t pack_choose(const struct pack_rows *r, size_t need)
{
    size_t found = r->n_open;
    for (size_t i = 0; i < r->n_open; i++) {
        if (r->pack->length - r->open[i].used < need)
            continue;
        if (r->pack->algorithm != PACK_BEST_FIT)
            return i;
        if (found == r->n_open || r->open[i].used > r->open[found].used)
            found = i;
    }
    return found;
}

static void pack_close_row(struct pack_rows *r, size_t i)
{
    r->n_open--;
    memmove(r->open + i, r->open + i + 1, (r->n_open - i) * sizeof(*r->open));
}

/* Closes the fullest open row; of several, the one that was begun first. */
static void pack_close_fullest(struct pack_rows *r)
{
    size_t fullest = 0;
    for (size_t i = 1; i < r->n_open; i++)
        if (r->open[i].used > r->open[fullest].used)
            fullest = i;
    pack_close_row(r, fullest);
}

/* Packs a sequence of n tokens and its separator. */
static void pack_sequence(struct pack_rows *r, const uint8_t *tokens, size_t n)
{
    const struct pack *p = r->pack;
    size_t all = n + p->separates, done = 0;
    while (done < all) {
        size_t rest = all - done;
        size_t i = pack_choose(r, p->algorithm == PACK_NEXT && p->split ? 1 : CW_MIN(rest, p->length));
        bool begins = i == r->n_open;
        struct pack_row row = begins ? pack_begin_row(r) : r->open[i];
        size_t m = CW_MIN(rest, p->length - row.used), of_tokens = CW_MIN(m, n - CW_MIN(n, done));
        row.last++;
        pack_add(r, &row, tokens + done * r->token_bytes, of_tokens, 0);
        pack_add(r, &row, p->separator, m - of_tokens, of_tokens);
        done += m;
        bool full = row.used == p->length;
        /* `next` closes a row when it begins another one; elsewhere a row that is full at once takes no bin
         */
        if (begins && r->n_open == p->bins && (!full || p->algorithm == PACK_NEXT))
            pack_close_fullest(r);
        if (!begins && full)
            pack_close_row(r, i);
        else if (!full)
            r->open[begins ? r->n_open++ : i] = row;
    }
}

static struct cw_tensor pack_tokens(const struct cw_op *op, const struct cw_block *b, size_t row)
{
    return cw_in(op, b, 0, row);
}

/* Fails the rows of the block whose sequences can't be packed. */
static void pack_check(const struct cw_op *op, struct cw_block *b)
{
    const struct pack *p = op->state;
    size_t bytes = cw_dtype_size(op->in[0].type.dtype);
    CW_ROWS_OK(i, b, true)
    {
        struct cw_tensor t = pack_tokens(op, b, i);
        size_t n = t.size / bytes + p->separates;
        if (t.ndim != 1)
            cw_block_fail(b, i, "pack", "%s has %d dimensions: expected 1", cw_attr_string(op, "component"),
                          t.ndim);
        else if (!p->split && n > p->length)
            cw_block_fail(
                b, i, "pack", "%s has %zu tokens%s: expected at most length, %zu, because split is false",
                cw_attr_string(op, "component"), n, p->separates ? " with the separator" : "", p->length);
    }
}

static uint64_t pack_window_of(const struct pack *p, const struct cw_block *b, size_t row)
{
    return (b->origin ? b->origin[row] : row) / p->window;
}

/* Returns the end of the window that begins with row `from` of the block: the first row of the next window.
 * *ret: whether a row of the window has failed and on_error is "raise", so that the run will end. */
static size_t pack_window_end(const struct pack *p, const struct cw_block *b, size_t from, bool *ret)
{
    size_t end = from;
    *ret = false;
    for (; end < b->n && pack_window_of(p, b, end) == pack_window_of(p, b, from); end++)
        *ret |= p->raises && b->status[end] == CW_ROW_FAILED;
    return end;
}

/* Packs a window, rows [from, end) of the block. A window begins with a new row of tokens. */
static void pack_window(const struct cw_op *op, const struct cw_block *b, size_t from, size_t end,
                        struct pack_rows *r)
{
    r->n_open = 0;
    for (size_t i = from; i < end; i++) {
        struct cw_tensor t = pack_tokens(op, b, i);
        if (b->status[i] == CW_ROW_OK)
            pack_sequence(r, t.data, t.size / r->token_bytes);
    }
}

/* Returns the number of rows that the result has for a row of the block. If rows of tokens were made, that is
 * given[row]. Otherwise it is 1 (a row without tokens) for the first row of each window, for failed rows of a
 * block with faults, and for other rows of a block with notes, so that faults and notes are reported; else 0.
 */
static size_t pack_rows_of(const struct pack *p, const struct cw_block *b, const uint32_t *given, size_t row)
{
    bool first = row == 0 || pack_window_of(p, b, row - 1) != pack_window_of(p, b, row);
    bool named = b->status[row] == CW_ROW_OK ? b->noted : b->failed || b->faults;
    return given[row] ? given[row] : first || named;
}

/* Allocates the result (expansion): for each row of the block, pack_rows_of rows. given: for each row of the
 * block, its number of rows of tokens. */
static int pack_expand(const struct cw_op *op, struct cw_block *b, const uint32_t *given,
                       struct cw_expansion **ret, struct cw_error *err)
{
    const struct pack *p = op->state;
    size_t n = 0;
    for (size_t row = 0; row < b->n; row++)
        n += pack_rows_of(p, b, given, row);
    if (n > UINT32_MAX)
        return cw_error_set(err, CW_E_DATA,
                            "%zu rows of tokens would be made from %zu elements: expected at most 2^32 - 1; "
                            "set a larger length",
                            n, b->n);
    struct cw_expansion *e = cw_block_alloc(b, sizeof(*e), err);
    uint32_t *origin = cw_block_alloc(b, n * sizeof(*origin), err);
    uint8_t *status = cw_block_alloc(b, n, err);
    struct cw_column *columns = cw_block_alloc(b, b->n_values * sizeof(*columns), err);
    if (!e || !origin || !status || !columns)
        return err->status;
    memset(columns, 0, b->n_values * sizeof(*columns));
    for (size_t row = 0, at = 0; row < b->n; row++)
        for (size_t i = pack_rows_of(p, b, given, row); i > 0; i--, at++) {
            origin[at] = (uint32_t)row;
            status[at] = given[row]                    ? CW_ROW_OK
                         : b->status[row] == CW_ROW_OK ? CW_ROW_DROPPED
                                                       : b->status[row];
        }
    *e = (struct cw_expansion){.n = n, .origin = origin, .status = status, .columns = columns};
    struct cw_block to = {.n = n, .arena = b->arena, .columns = columns};
    int r = 0;
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        r = cw_block_dense(&to, op->out[k].value, &op->out[k].type, err);
    *ret = e;
    return r;
}

static int pack_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct pack *p = op->state;
    struct pack_rows r = {.pack = p, .token_bytes = cw_dtype_size(op->in[0].type.dtype)};
    struct cw_error local = {0};
    struct cw_expansion *e = NULL;
    err = err ? err : &local;
    uint32_t *given = cw_block_alloc(b, b->n * sizeof(*given), err);
    r.open = cw_block_alloc(b, p->bins * sizeof(*r.open), err);
    if (!given || !r.open)
        return err->status;
    memset(given, 0, b->n * sizeof(*given));
    pack_check(op, b);
    bool failed;
    for (size_t from = 0, end; from < b->n; from = end) {
        end = pack_window_end(p, b, from, &failed);
        size_t before = r.n;
        if (!failed)
            pack_window(op, b, from, end, &r);
        given[from] = (uint32_t)CW_MIN(r.n - before, UINT32_MAX);
    }
    int status = pack_expand(op, b, given, &e, err);
    if (status < 0)
        return status;
    for (size_t from = 0, end, at = 0; from < b->n; from = end) {
        end = pack_window_end(p, b, from, &failed);
        r.n = 0;
        r.tokens = e->columns[op->out[PACK_TOKENS].value].data + at * p->length * r.token_bytes;
        r.segments = (int32_t *)(void *)e->columns[op->out[PACK_SEGMENTS].value].data + at * p->length;
        r.positions = (int32_t *)(void *)e->columns[op->out[PACK_POSITIONS].value].data + at * p->length;
        if (!failed)
            pack_window(op, b, from, end, &r);
        for (size_t row = from; row < end; row++)
            at += pack_rows_of(p, b, given, row);
    }
    b->expansion = e;
    return 0;
}

/* Converts the attribute `name`, one integer, to the component's dtype. */
static int pack_bind_token(const struct cw_op *op, const char *name, enum cw_dtype dtype, uint8_t ret[8],
                           struct cw_error *err)
{
    int64_t value = cw_attr_int_at(op, name, 0), back = 0;
    cw_convert(CW_INT64, dtype, ret, &value, 1);
    cw_convert(dtype, CW_INT64, &back, ret, 1);
    return back == value && (value >= 0 || cw_dtype_is_signed(dtype))
               ? 0
               : cw_attr_error(op, name, err, "a value of %s", cw_dtype_name(dtype));
}

static const char *const algorithms[] = {"next", "first_fit", "best_fit", NULL};

static enum pack_algorithm pack_algorithm_of(const char *name)
{
    enum pack_algorithm a = PACK_NEXT;
    while (strcmp(algorithms[a], name) != 0)
        a++;
    return a;
}

static int pack_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *component = cw_attr_string(op, "component");
    struct cw_type type;
    int r = cw_bind_read(b, component, &type, err);
    if (r < 0)
        return r;
    if (!cw_dtype_is_integer(type.dtype) || (type.ndim >= 0 && type.ndim != 1)) {
        char shown[160];
        return cw_attr_error(op, "component", err, "integers with one dimension; \"%.60s\" is %s", component,
                             cw_type_print(&type, shown));
    }
    struct pack *p = op->state = calloc(1, sizeof(*p));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "pack");
    *p = (struct pack){.length = (size_t)cw_attr_int(op, "length"),
                       .window = (uint64_t)cw_attr_int(op, "window"),
                       .algorithm = pack_algorithm_of(cw_attr_string(op, "algorithm")),
                       .split = cw_attr_bool(op, "split"),
                       .separates = cw_attr_len(op, "separator") > 0,
                       .raises = cw_bind_pipeline(b)->on_error == CW_ON_ERROR_RAISE};
    p->bins = p->algorithm == PACK_NEXT ? 1 : (size_t)cw_attr_int(op, "bins");
    r = pack_bind_token(op, "pad", type.dtype, p->pad, err);
    if (r >= 0 && p->separates)
        r = pack_bind_token(op, "separator", type.dtype, p->separator, err);
    while (r >= 0 && cw_bind_count(b) > 0)
        r = cw_bind_remove(b, cw_bind_name(b, 0, NULL), err);
    struct cw_type row = {.dtype = type.dtype, .ndim = 1, .dims = {(int64_t)p->length}},
                   numbers = {.dtype = CW_INT32, .ndim = 1, .dims = {(int64_t)p->length}};
    if (strcmp(component, "segment_ids") == 0 || strcmp(component, "positions") == 0)
        return cw_attr_error(
            op, "component", err,
            "a component with another name, because pack adds components named segment_ids and positions");
    if (r >= 0)
        r = cw_bind_write(b, component, &row, err);
    if (r >= 0)
        r = cw_bind_write(b, "segment_ids", &numbers, err);
    if (r >= 0)
        r = cw_bind_write(b, "positions", &numbers, err);
    return CW_MIN(r, 0);
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "sequences of tokens: integers, one dimension"},
    {.name = "length", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 24, .doc = "tokens per row"},
    {.name = "algorithm",
     .kind = CW_ATTR_STRING,
     .def = "\"next\"",
     .choices = algorithms,
     .doc =
         "which open row takes a sequence: `next`, the row that was begun last; `first_fit`, the first row "
         "that has room for all of it; `best_fit`, the row with the least room that is enough. If no row "
         "has room, a new one begins"},
    {.name = "bins",
     .kind = CW_ATTR_INT,
     .def = "16",
     .min = 1,
     .max = PACK_BINS_MAX,
     .doc = "for first_fit and best_fit, the number of open rows: when one more is needed, the fullest is "
            "closed; `next` has one"},
    {.name = "split",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: with `next`, a sequence that does not fit continues in the next row; with first_fit and "
            "best_fit, a sequence longer than a row is cut into full rows and a rest, which is packed like a "
            "sequence. false: sequences are never cut, and longer ones fail"},
    {.name = "separator",
     .kind = CW_ATTR_INTS,
     .def = "[]",
     .len_min = 0,
     .len_max = 1,
     .scalar_too = true,
     .doc = "a token appended to each sequence, counted as one of its tokens; []: none"},
    {.name = "pad", .kind = CW_ATTR_INT, .def = "0", .doc = "the token that fills the rest of a row"},
    {.name = "window",
     .kind = CW_ATTR_INT,
     .def = "1024",
     .min = 1,
     .max = 1 << 16,
     .doc = "number of consecutive elements that are packed together; the last row of each window is "
            "padded"},
    {0},
};

const struct cw_op_desc cw_op_pack = {
    .name = "pack",
    .summary = "packs sequences of tokens into rows of a fixed length",
    .doc =
        "`pack` fills rows with sequences. A row has `length` tokens in `component`, "
        "and two int32 components of the same length. A segment is a sequence, or the part of a sequence "
        "that lies in this row. `segment_ids` has the number of each token's segment in the row (from 1; "
        "0 is padding). `positions` counts the tokens of each segment from 0. Other components are "
        "dropped. The elements of the epoch, counted before any filter, are divided into windows of "
        "`window` consecutive elements. The rows of a window depend only on its own elements, so any "
        "worker can compute them. A larger window leaves less padding and takes more memory. The pipeline's "
        "sources may be joined by `concat` or `mix`, if none of them is an `iterable` or has `flat_map`, "
        "`window` or `enumerate` before that. `shuffle` and `repeat` must come before `pack`.",
    .kind = CW_OP_FLAT_MAP,
    .effects = {.count = CW_COUNT_ANY, .state = CW_STATE_WINDOWED},
    .attrs = attrs,
    .bind = pack_bind,
    .run = pack_run,
    .free_state = free,
};
