/* The operator pack: rows of a fixed number of tokens, made from sequences of tokens. Elements are packed in
 * windows of consecutive elements. Each window lies in one block, and its rows depend on that window alone.
 * The rows of a window are delivered as results of the window's first element. Comments distinguish rows of
 * tokens, which are results, from rows of the block, which are the elements that arrive. */
#include <inttypes.h>
#include <string.h>

#include "data/convert.h"
#include "pipeline/pipeline.h"

struct pack {
    size_t length; /* tokens of a row */
    uint64_t window;
    bool split, separates, raises;
    _Alignas(uint64_t) uint8_t pad[8], separator[8]; /* in the component's dtype */
};

enum { PACK_TOKENS, PACK_SEGMENTS, PACK_POSITIONS }; /* output ports */

/* Rows of tokens, which are filled one after the other. */
struct pack_rows {
    const struct pack *pack;
    size_t token_bytes;
    uint8_t *tokens; /* pack->length tokens per row; NULL: rows are only counted */
    int32_t *segments, *positions;
    size_t n;     /* number of rows begun */
    size_t used;  /* tokens in the last row */
    int32_t last; /* number of the last segment in the last row */
};

static void pack_begin_row(struct pack_rows *r)
{
    const struct pack *p = r->pack;
    size_t at = r->n++ * p->length;
    r->used = 0;
    r->last = 0;
    if (!r->tokens)
        return;
    for (size_t i = at; i < at + p->length; i++)
        memcpy(r->tokens + i * r->token_bytes, p->pad, r->token_bytes);
    memset(r->segments + at, 0, p->length * sizeof(*r->segments));
    memset(r->positions + at, 0, p->length * sizeof(*r->positions));
}

/* Appends n tokens to the last row, which must have room for them. They continue segment number r->last;
 * `before` is the number of tokens that the segment already has in this row. */
static void pack_add(struct pack_rows *r, const uint8_t *tokens, size_t n, size_t before)
{
    size_t at = (r->n - 1) * r->pack->length + r->used;
    r->used += n;
    if (!r->tokens || n == 0)
        return;
    memcpy(r->tokens + at * r->token_bytes, tokens, n * r->token_bytes);
    for (size_t i = 0; i < n; i++) {
        r->segments[at + i] = r->last;
        r->positions[at + i] = (int32_t)(before + i);
    }
}

/* Appends a sequence of n tokens and its separator. */
static void pack_sequence(struct pack_rows *r, const uint8_t *tokens, size_t n)
{
    const struct pack *p = r->pack;
    size_t all = n + p->separates, done = 0, length = p->length;
    while (done < all) {
        if (r->n == 0 || r->used == length || (!p->split && r->used + all > length))
            pack_begin_row(r);
        size_t m = CW_MIN(all - done, length - r->used), of_tokens = CW_MIN(m, n - CW_MIN(n, done));
        r->last++;
        pack_add(r, tokens + done * r->token_bytes, of_tokens, 0);
        pack_add(r, p->separator, m - of_tokens, of_tokens);
        done += m;
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
    r->used = r->pack->length; /* begins with a new row */
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
    if (!given)
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
                       .split = cw_attr_bool(op, "split"),
                       .separates = cw_attr_len(op, "separator") > 0,
                       .raises = cw_bind_pipeline(b)->on_error == CW_ON_ERROR_RAISE};
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

static const char *const algorithms[] = {"next", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "sequences of tokens: integers, one dimension"},
    {.name = "length", .kind = CW_ATTR_INT, .min = 1, .max = 1 << 24, .doc = "tokens per row"},
    {.name = "algorithm",
     .kind = CW_ATTR_STRING,
     .def = "\"next\"",
     .choices = algorithms,
     .doc = "next: put each sequence into the row that was begun last; if that row has no room, begin a new "
            "row"},
    {.name = "split",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: a sequence that does not fit continues in the next row; false: the whole sequence goes "
            "to the next row"},
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
    .doc = "`pack` fills rows with one sequence after the other. A row has `length` tokens in `component`, "
           "and two int32 components of the same length. A segment is a sequence, or the part of a sequence "
           "that lies in this row. `segment_ids` has the number of each token's segment in the row (from 1; "
           "0 is padding). `positions` counts the tokens of each segment from 0. Other components are "
           "dropped. The elements of the epoch, counted before any filter, are divided into windows of "
           "`window` consecutive elements. The rows of a window depend only on its own elements, so any "
           "worker can compute them. A larger window leaves less padding and takes more memory. The pipeline "
           "must have exactly one source, which must not be an `iterable`. `shuffle` and `repeat` must come "
           "before `pack`.",
    .kind = CW_OP_FLAT_MAP,
    .effects = {.count = CW_COUNT_ANY, .state = CW_STATE_WINDOWED},
    .attrs = attrs,
    .bind = pack_bind,
    .run = pack_run,
    .free_state = free,
};
