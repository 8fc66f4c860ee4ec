/* Requests and answers in shared memory, in the layout of docs/hosts.md. */
#include "host/exchange.h"

#include <string.h>

/* Requests and answers consist of words of eight bytes. Each begins with HEAD words, and COLUMN words for
 * each column. All other parts lie at offsets that these words name, which are multiples of ALIGN bytes. */
#define HEAD 16
#define COLUMN 4
#define ALIGN 64
#define TABLE_ROW 8 /* words per row in the table of a ragged column: offset, ndim, dims */

enum request_word {
    REQUEST_ROWS,
    REQUEST_COLUMNS,
    REQUEST_KEYS,
    REQUEST_CHECK,
    REQUEST_FROM,
    REQUEST_LEAST,
    REQUEST_KEEP,
    REQUEST_PROGRESS = 15
};

enum answer_word {
    ANSWER_ROWS,
    ANSWER_STATUS,
    ANSWER_COUNTS,
    ANSWER_ERRORS,
    ANSWER_ERRORS_SIZE,
    ANSWER_COLUMNS
};

enum column_word { COLUMN_KIND, COLUMN_DATA, COLUMN_TABLE, COLUMN_ITEM };

enum column_kind { KIND_DENSE, KIND_RAGGED, KIND_BYTES, KIND_WHOLE };

_Static_assert(CW_MAX_NDIM + 2 <= TABLE_ROW, "the dims of a row fit in its entry");
_Static_assert(HEAD * sizeof(uint64_t) == CW_EXCHANGE_PULL_BYTES, "such a request is a head");

/* Returns the offset of the next part, which has `bytes` bytes, and moves *at to its end. */
static size_t exchange_place(size_t *at, size_t bytes)
{
    size_t here = CW_ALIGN_UP(*at, (size_t)ALIGN);
    *at = here + bytes;
    return here;
}

static enum column_kind column_kind_of(const struct cw_type *type)
{
    return type->dtype == CW_BYTES ? KIND_BYTES : cw_type_fixed(type) ? KIND_DENSE : KIND_RAGGED;
}

/* ---- requests ---- */

/* Writes the words of column k. */
static void request_put_words(uint8_t *to, unsigned k, uint64_t kind, size_t data, size_t table, size_t item)
{
    const uint64_t words[COLUMN] = {
        [COLUMN_KIND] = kind, [COLUMN_DATA] = data, [COLUMN_TABLE] = table, [COLUMN_ITEM] = item};
    memcpy(to + (HEAD + (size_t)k * COLUMN) * sizeof(uint64_t), words, sizeof(words));
}

/* Writes column k; to NULL: only measures it. Returns the offset of its end. One function does both, so that
 * they can't differ. */
static size_t request_put_column(const struct cw_exchange_request *q, unsigned k, size_t at, uint8_t *to)
{
    const struct cw_exchange_column *c = &q->columns[k];
    const struct cw_column *column = &q->block->columns[c->value];
    enum column_kind kind = column_kind_of(c->type);
    size_t item = kind == KIND_DENSE ? cw_type_bytes(c->type) : 0, table = 0, data;
    if (kind != KIND_DENSE)
        table = exchange_place(&at, kind == KIND_BYTES ? (q->n + 1) * sizeof(uint64_t)
                                                       : q->n * TABLE_ROW * sizeof(uint64_t));
    data = exchange_place(&at, kind == KIND_DENSE ? q->n * item : 0);
    uint64_t *entries = to ? (uint64_t *)(void *)(to + table) : NULL;
    for (size_t i = 0; i < q->n; i++) {
        if (kind == KIND_DENSE && column->dense) {
            if (to)
                memcpy(to + data + i * item, column->data + q->rows[i] * column->stride, item);
            continue;
        }
        struct cw_tensor t = cw_block_row(q->block, c->value, q->rows[i]);
        size_t here = kind == KIND_DENSE   ? data + i * item
                      : kind == KIND_BYTES ? at
                                           : CW_ALIGN_UP(at, (size_t)ALIGN);
        if (kind != KIND_DENSE)
            at = here + t.size;
        if (!to)
            continue;
        if (kind == KIND_BYTES) {
            entries[i] = here - data;
        } else if (kind == KIND_RAGGED) {
            entries[i * TABLE_ROW] = here;
            entries[i * TABLE_ROW + 1] = (uint64_t)t.ndim;
            for (int d = 0; d < CW_MAX_NDIM; d++)
                entries[i * TABLE_ROW + 2 + (size_t)d] = d < t.ndim ? (uint64_t)t.dims[d] : 0;
        }
        if (t.size)
            memcpy(to + here, t.data, t.size);
    }
    if (to && kind == KIND_BYTES)
        entries[q->n] = at - data;
    if (to)
        request_put_words(to, k, kind, data, table, item);
    return at;
}

/* Writes the head, and the keys and check bytes of n_marked rows or batches unless they are NULL. Returns the
 * bytes of these parts; to NULL: only measures them. */
static size_t request_put_head(uint8_t *to, size_t n, unsigned n_columns, const uint64_t *keys,
                               const uint8_t *check, size_t n_marked)
{
    size_t at = (HEAD + (size_t)n_columns * COLUMN) * sizeof(uint64_t),
           keys_bytes = 2 * n_marked * sizeof(*keys), keys_at = keys ? exchange_place(&at, keys_bytes) : 0,
           check_at = check ? exchange_place(&at, n_marked) : 0;
    const uint64_t head[HEAD] = {[REQUEST_ROWS] = n,
                                 [REQUEST_COLUMNS] = n_columns,
                                 [REQUEST_KEYS] = keys_at,
                                 [REQUEST_CHECK] = check_at};
    if (to)
        memcpy(to, head, sizeof(head));
    if (to && keys)
        memcpy(to + keys_at, keys, keys_bytes);
    if (to && check)
        memcpy(to + check_at, check, n_marked);
    return at;
}

size_t cw_exchange_write(const struct cw_exchange_request *q, uint8_t *to)
{
    size_t at = request_put_head(to, q->n, q->n_columns, q->keys, q->check, q->n);
    for (unsigned k = 0; k < q->n_columns; k++)
        at = request_put_column(q, k, at, to);
    return at;
}

size_t cw_exchange_whole_write(const struct cw_batch *batch, const uint64_t keys[2], bool check, uint8_t *to)
{
    const uint8_t checks[] = {check};
    size_t at = request_put_head(to, batch->n, batch->n_components, keys, checks, 1);
    for (unsigned k = 0; k < batch->n_components; k++) {
        const struct cw_batch_component *c = &batch->components[k];
        size_t entries = c->dtype == CW_BYTES ? batch->n + (size_t)1 : TABLE_ROW,
               table = exchange_place(&at, entries * sizeof(uint64_t)), data = exchange_place(&at, c->size);
        if (!to)
            continue;
        uint64_t *entry = (uint64_t *)(void *)(to + table);
        request_put_words(to, k, c->dtype == CW_BYTES ? KIND_BYTES : KIND_WHOLE, data, table, 0);
        if (c->dtype == CW_BYTES) {
            entry[0] = 0;
            for (size_t i = 0; i < batch->n; i++)
                entry[i + 1] = entry[i] + c->lengths[i];
        } else {
            entry[0] = (uint64_t)c->ndim;
            for (int d = 0; d < TABLE_ROW - 1; d++)
                entry[1 + d] = d < c->ndim ? (uint64_t)c->dims[d] : 0;
        }
        if (c->size)
            memcpy(to + data, c->data, c->size);
    }
    return at;
}

void cw_exchange_pull_write(const struct cw_exchange_pull *q, uint8_t *to)
{
    const uint64_t head[HEAD] = {[REQUEST_ROWS] = q->n,
                                 [REQUEST_FROM] = q->from,
                                 [REQUEST_LEAST] = q->least,
                                 [REQUEST_KEEP] = q->keep};
    memcpy(to, head, sizeof(head));
}

/* ---- answers ---- */

/* Returns whether n items of `item` bytes at `offset` lie within an answer of `size` bytes, aligned to 8
 * bytes. */
static bool answer_within(size_t size, uint64_t offset, uint64_t n, uint64_t item)
{
    uint64_t bytes, end;
    return offset % 8 == 0 && !__builtin_mul_overflow(n, item, &bytes) &&
           !__builtin_add_overflow(offset, bytes, &end) && end <= size;
}

bool cw_exchange_read(const uint8_t *data, size_t size, size_t n_requested, unsigned n_columns, bool counted,
                      struct cw_exchange_answer *ret, const char **why)
{
    uint64_t head[HEAD];
    *why = "it is shorter than its header (a defect of Cachew; please report it)";
    if (size < (HEAD + (size_t)n_columns * COLUMN) * sizeof(uint64_t))
        return false;
    memcpy(head, data, sizeof(head));
    *why = "it has another number of columns than the function has outputs (a defect of Cachew; please "
           "report it)";
    if (head[ANSWER_COLUMNS] != n_columns)
        return false;
    *why = "an offset in it points outside the answer (a defect of Cachew; please report it)";
    if (!answer_within(size, head[ANSWER_STATUS], n_requested, 1) ||
        !answer_within(size, head[ANSWER_ERRORS], head[ANSWER_ERRORS_SIZE], 1) ||
        (counted && !answer_within(size, head[ANSWER_COUNTS], n_requested, sizeof(uint32_t))))
        return false;
    *ret = (struct cw_exchange_answer){
        .data = data,
        .size = size,
        .n = head[ANSWER_ROWS],
        .status = data + head[ANSWER_STATUS],
        .counts = counted ? (const uint32_t *)(const void *)(data + head[ANSWER_COUNTS]) : NULL,
        .errors = (const char *)data + head[ANSWER_ERRORS],
        .errors_size = head[ANSWER_ERRORS_SIZE],
        .columns = (const uint64_t *)(const void *)data + HEAD,
    };
    *why = "it has another number of rows than was requested (a defect of Cachew; please report it)";
    return ret->n <= UINT32_MAX && (counted || ret->n == n_requested);
}

/* Sets dims and size of a tensor of n elements, after checking for overflow. Returns whether the dims fit the
 * type. */
static bool answer_set_dims(const struct cw_type *type, uint64_t n, const uint64_t *dims, uint64_t ndim,
                            struct cw_tensor *ret)
{
    if (ndim > CW_MAX_NDIM || (type->ndim >= 0 && ndim != (uint64_t)type->ndim) ||
        __builtin_mul_overflow(cw_dtype_size(type->dtype), n, &ret->size))
        return false;
    ret->ndim = (int)ndim;
    for (int d = 0; d < ret->ndim; d++) {
        ret->dims[d] = (int64_t)dims[d];
        if (ret->dims[d] < 0 || __builtin_mul_overflow(ret->size, dims[d], &ret->size) ||
            (type->ndim >= 0 && type->dims[d] != CW_VARIES && type->dims[d] != ret->dims[d]))
            return false;
    }
    return true;
}

bool cw_exchange_row(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type, size_t row,
                     struct cw_tensor *ret)
{
    uint64_t words[COLUMN], entry[TABLE_ROW];
    memcpy(words, a->columns + (size_t)k * COLUMN, sizeof(words));
    enum column_kind kind = column_kind_of(type);
    if (words[COLUMN_KIND] != kind || row >= a->n)
        return false;
    *ret = (struct cw_tensor){0};
    if (kind == KIND_DENSE) {
        size_t item = cw_type_bytes(type);
        if (!answer_within(a->size, words[COLUMN_DATA], a->n, item))
            return false;
        *ret = (struct cw_tensor){
            .data = (void *)(a->data + words[COLUMN_DATA] + row * item), .size = item, .ndim = type->ndim};
        memcpy(ret->dims, type->dims, sizeof(ret->dims));
        return true;
    }
    if (kind == KIND_BYTES) {
        if (!answer_within(a->size, words[COLUMN_TABLE], a->n + 1, sizeof(uint64_t)))
            return false;
        memcpy(entry, a->data + words[COLUMN_TABLE] + row * sizeof(uint64_t), 2 * sizeof(uint64_t));
        if (entry[0] > entry[1] || words[COLUMN_DATA] > a->size || entry[1] > a->size - words[COLUMN_DATA])
            return false;
        *ret = (struct cw_tensor){.data = (void *)(a->data + words[COLUMN_DATA] + entry[0]),
                                  .size = entry[1] - entry[0]};
        return true;
    }
    if (!answer_within(a->size, words[COLUMN_TABLE], a->n, sizeof(entry)))
        return false;
    memcpy(entry, a->data + words[COLUMN_TABLE] + row * sizeof(entry), sizeof(entry));
    if (!answer_set_dims(type, 1, entry + 2, entry[1], ret) ||
        !answer_within(a->size, entry[0], ret->size, 1))
        return false;
    ret->data = (void *)(a->data + entry[0]);
    return true;
}

bool cw_exchange_column_whole(const struct cw_exchange_answer *a, unsigned k, const struct cw_type *type,
                              struct cw_tensor *ret, const uint64_t **ret_offsets)
{
    uint64_t words[COLUMN], entry[TABLE_ROW];
    memcpy(words, a->columns + (size_t)k * COLUMN, sizeof(words));
    *ret = (struct cw_tensor){0};
    if (type->dtype == CW_BYTES) {
        if (words[COLUMN_KIND] != KIND_BYTES ||
            !answer_within(a->size, words[COLUMN_TABLE], a->n + 1, sizeof(uint64_t)) ||
            words[COLUMN_DATA] > a->size)
            return false;
        *ret_offsets = (const uint64_t *)(const void *)(a->data + words[COLUMN_TABLE]);
        uint64_t before = 0;
        for (size_t i = 0; i <= a->n; i++) {
            uint64_t at = __atomic_load_n(*ret_offsets + i, __ATOMIC_RELAXED);
            if (at < before || at > a->size - words[COLUMN_DATA] || (i == 0 && at != 0))
                return false;
            before = at;
        }
        *ret = (struct cw_tensor){.data = (void *)(a->data + words[COLUMN_DATA]), .size = before};
        return true;
    }
    if (words[COLUMN_KIND] != KIND_WHOLE || !answer_within(a->size, words[COLUMN_TABLE], 1, sizeof(entry)))
        return false;
    memcpy(entry, a->data + words[COLUMN_TABLE], sizeof(entry));
    /* A batch has one dimension more than an element. If the answer has ndim 0, ndim - 1 wraps around and is
     * refused. */
    if (entry[1] != a->n || !answer_set_dims(type, a->n, entry + 2, entry[0] - 1, ret) ||
        !answer_within(a->size, words[COLUMN_DATA], ret->size, 1))
        return false;
    ret->data = (void *)(a->data + words[COLUMN_DATA]);
    return true;
}
