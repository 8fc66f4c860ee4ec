/* Data sets in memory: their registry, ids and elements. */
#include "data/arrays.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/thread.h"

static struct {
    pthread_mutex_t mutex;
    struct cw_arrays *first; /* guarded by mutex */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- making ---- */

struct cw_arrays *cw_arrays_new(size_t n_columns, size_t n_pieces)
{
    struct cw_arrays *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    *a = (struct cw_arrays){.n_columns = n_columns, .n_pieces = n_pieces};
    a->columns = calloc(n_columns + 1, sizeof(*a->columns));
    a->first = calloc(n_pieces + 1, sizeof(*a->first));
    bool good = a->columns && a->first;
    for (size_t i = 0; good && i < n_columns; i++)
        good = (a->columns[i].pieces = calloc(n_pieces + 1, sizeof(*a->columns[i].pieces))) != NULL;
    if (!good) {
        cw_arrays_free(a);
        return NULL;
    }
    return a;
}

void cw_arrays_free(struct cw_arrays *a)
{
    if (!a)
        return;
    for (size_t i = 0; a->columns && i < a->n_columns; i++) {
        free(a->columns[i].name);
        free(a->columns[i].pieces);
    }
    for (size_t i = 0; i < a->n_owned; i++)
        free(a->owned[i]);
    free(a->owned);
    free(a->columns);
    free(a->first);
    free(a);
}

void *cw_arrays_own(struct cw_arrays *a, size_t bytes)
{
    if (CW_ARRAY_ROOM(a->owned, a->owned_room, a->n_owned + 1, "arrays", NULL) < 0)
        return NULL;
    void *memory = malloc(bytes ? bytes : 1);
    if (memory)
        a->owned[a->n_owned++] = memory;
    return memory;
}

static int arrays_bad(struct cw_error *err, const char *name, const char *expected)
{
    return cw_error_set(err, CW_E_OPTION, "the array \"%.60s\": expected %s", name, expected);
}

int cw_arrays_column(struct cw_arrays *a, size_t i, const char *name, const struct cw_type *type,
                     struct cw_error *err)
{
    struct cw_array_column *c = &a->columns[i];
    struct cw_type item = *type;
    if (!name || !*name)
        return cw_error_set(err, CW_E_OPTION, "array %zu has no name", i);
    for (size_t k = 0; k < i; k++)
        if (a->columns[k].name && strcmp(a->columns[k].name, name) == 0)
            return arrays_bad(err, name, "one array of this name, but there are two");
    if ((unsigned)type->dtype >= CW_N_DTYPES)
        return arrays_bad(err, name, "a known dtype");
    if (type->ndim < 0 || type->ndim > (type->dtype == CW_BYTES ? 0 : CW_MAX_NDIM))
        return arrays_bad(err, name, "elements of at most 6 dimensions; elements of dtype bytes have none");
    for (int k = 0; k < type->ndim; k++)
        if (type->dims[k] < 1 && !(k == 0 && type->dims[k] == CW_VARIES))
            return arrays_bad(err, name, "dimensions of at least 1");
    if (type->ndim > 0 && type->dims[0] == CW_VARIES) {
        item.ndim--;
        memmove(item.dims, item.dims + 1, (size_t)item.ndim * sizeof(item.dims[0]));
    }
    c->item = type->dtype == CW_BYTES ? 1 : cw_type_bytes(&item);
    if (c->item > INT64_MAX)
        return arrays_bad(err, name, "elements of less than 2^63 bytes");
    c->type = *type;
    c->name = strdup(name);
    return c->name ? 0 : cw_error_nomem(err, strlen(name) + 1, "a name");
}

int cw_arrays_choose(struct cw_arrays *a, const uint64_t *rows, uint64_t n, struct cw_error *err)
{
    uint64_t stored = a->first[a->n_pieces], *copy;
    for (uint64_t i = 0; i < n; i++)
        if (rows[i] >= stored)
            return cw_error_set(err, CW_E_OPTION,
                                "rows[%" PRIu64 "] is %" PRIu64 ": expected a row below %" PRIu64, i, rows[i],
                                stored);
    if (!(copy = cw_arrays_own(a, n * sizeof(*copy))))
        return cw_error_nomem(err, n * sizeof(*copy), "numbers of rows");
    if (n)
        memcpy(copy, rows, n * sizeof(*copy));
    a->rows = copy;
    a->n_elements = n;
    return 0;
}

/* ---- elements ---- */

static uint64_t arrays_offset_at(const struct cw_array_piece *p, uint64_t i)
{
    if (p->offset_size == 8)
        return ((const uint64_t *)p->offsets)[i];
    return (uint64_t)(int64_t)((const int32_t *)p->offsets)[i];
}

static size_t arrays_piece_of(const struct cw_arrays *a, uint64_t i)
{
    return CW_FIRST(k, 1, a->n_pieces, a->first[k] > i) - 1;
}

/* Returns the stored element i. */
static struct cw_tensor arrays_stored(const struct cw_arrays *a, const struct cw_array_column *c, uint64_t i)
{
    size_t k = a->n_pieces == 1 ? 0 : arrays_piece_of(a, i);
    const struct cw_array_piece *p = &c->pieces[k];
    struct cw_tensor t = {.ndim = c->type.ndim};
    memcpy(t.dims, c->type.dims, sizeof(t.dims));
    i -= a->first[k];
    if (p->views) {
        t.data = (void *)p->views[i].data;
        t.size = p->views[i].size;
    } else if (p->offsets) {
        uint64_t start = arrays_offset_at(p, i), n = arrays_offset_at(p, i + 1) - start;
        t.data = p->data ? (void *)(p->data + (start - p->base) * c->item) : NULL;
        t.size = n * c->item;
        if (t.ndim)
            t.dims[0] = (int64_t)n;
    } else {
        t.data = (void *)(p->data + i * c->item);
        t.size = c->item;
    }
    return t;
}

struct cw_tensor cw_arrays_get(const struct cw_arrays *a, const struct cw_array_column *c, uint64_t i)
{
    return arrays_stored(a, c, a->rows ? a->rows[i] : i);
}

/* ---- ids ---- */

/* Checks a piece: its offsets must ascend, and its size must fit in memory. Adds the bytes of its elements to
 * *bytes. */
static int arrays_check_piece(const struct cw_array_column *c, const struct cw_array_piece *p, uint64_t n,
                              uint64_t *bytes, struct cw_error *err)
{
    uint64_t size = 0;
    if (p->views) {
        for (uint64_t i = 0; i < n; i++)
            size += p->views[i].size;
    } else if (p->offsets) {
        uint64_t last = arrays_offset_at(p, 0);
        if (last < p->base)
            return arrays_bad(err, c->name, "offsets in ascending order");
        for (uint64_t i = 1; i <= n; i++) {
            uint64_t next = arrays_offset_at(p, i);
            if (next < last || next > INT64_MAX)
                return arrays_bad(err, c->name, "offsets in ascending order");
            last = next;
        }
        if (__builtin_mul_overflow(last - arrays_offset_at(p, 0), (uint64_t)c->item, &size) ||
            last > INT64_MAX / c->item)
            return arrays_bad(err, c->name, "less than 2^63 bytes");
        if (!p->data && size)
            return arrays_bad(err, c->name, "data, but its pointer is null");
    } else {
        if (__builtin_mul_overflow(n, (uint64_t)c->item, &size) || size > INT64_MAX)
            return arrays_bad(err, c->name, "less than 2^63 bytes");
        if (!p->data && size)
            return arrays_bad(err, c->name, "data, but its pointer is null");
    }
    *bytes += size;
    return 0;
}

/* Counts the bytes of the chosen elements. */
static void arrays_count_bytes(struct cw_arrays *a)
{
    a->total_bytes = 0;
    for (size_t k = 0; k < a->n_columns; k++)
        for (uint64_t i = 0; i < a->n_elements; i++)
            a->total_bytes += cw_arrays_get(a, &a->columns[k], i).size;
}

/* Bytes that are read between two calls of `cancelled`: some milliseconds. For each row some bytes are added,
 * because finding the row takes time, too. */
#define LOOK_BYTES (UINT64_C(16) << 20)
#define ROW_BYTES 64

int cw_arrays_look(struct cw_arrays_look *look, size_t bytes, struct cw_error *err)
{
    uint64_t cost = (uint64_t)bytes + ROW_BYTES;
    if (look->bytes >= cost) {
        look->bytes -= cost;
        return 0;
    }
    look->bytes = LOOK_BYTES;
    return look->cancelled && look->cancelled(look->cancel_arg)
               ? cw_error_set(err, CW_E_INTERRUPTED, "interrupted")
               : 0;
}

static int arrays_hash_items(XXH3_state_t *x, const uint8_t *data, uint64_t size, struct cw_arrays_look *look,
                             struct cw_error *err)
{
    int r = 0;
    for (uint64_t at = 0; r == 0 && at < size; at += LOOK_BYTES) {
        size_t n = CW_MIN(size - at, LOOK_BYTES);
        r = cw_arrays_look(look, n, err);
        if (r == 0)
            XXH3_128bits_update(x, data + at, n);
    }
    return r;
}

/* Hashes elements one by one. If their size varies, it is hashed before each element, so that the boundaries
 * count. */
static int arrays_hash_elements(XXH3_state_t *x, const struct cw_arrays *a, const struct cw_array_column *c,
                                bool varies, struct cw_arrays_look *look, struct cw_error *err)
{
    int r = 0;
    for (uint64_t i = 0; r == 0 && i < a->n_elements; i++) {
        struct cw_tensor t = cw_arrays_get(a, c, i);
        uint64_t size = t.size;
        if (varies)
            XXH3_128bits_update(x, &size, sizeof(size));
        r = arrays_hash_items(x, t.data, size, look, err);
    }
    return r;
}

/* Adds a column to the hash. The result depends neither on how the elements are divided into pieces, nor on
 * whether they are stored in this order or chosen by `rows`. */
static int arrays_hash_column(XXH3_state_t *x, const struct cw_arrays *a, const struct cw_array_column *c,
                              struct cw_arrays_look *look, struct cw_error *err)
{
    struct cw_key key = {0};
    XXH3_128bits_update(x, c->name, strlen(c->name) + 1);
    cw_key_u64(&key, (uint64_t)c->type.dtype);
    cw_key_u64(&key, (uint64_t)c->type.ndim);
    for (int d = 0; d < c->type.ndim; d++)
        cw_key_u64(&key, (uint64_t)c->type.dims[d]);
    XXH3_128bits_update(x, key.bytes, key.size);
    bool varies = c->type.dtype == CW_BYTES || (c->type.ndim && c->type.dims[0] == CW_VARIES);
    if (varies || a->rows)
        return arrays_hash_elements(x, a, c, varies, look, err);
    int r = 0;
    for (size_t k = 0; r == 0 && k < a->n_pieces; k++)
        r = arrays_hash_items(x, c->pieces[k].data, (a->first[k + 1] - a->first[k]) * c->item, look, err);
    return r;
}

static void arrays_hash_begin(XXH3_state_t *x, const struct cw_arrays *a)
{
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, &a->n_elements, sizeof(a->n_elements));
}

/* Computes the hash of all columns up to this one; x has the columns before it. */
static int arrays_hash_next(XXH3_state_t *x, const struct cw_arrays *a, const struct cw_array_column *c,
                            struct cw_arrays_look *look, struct cw_hash128 *ret, struct cw_error *err)
{
    int r = arrays_hash_column(x, a, c, look, err);
    XXH128_hash_t d = XXH3_128bits_digest(x);
    *ret = (struct cw_hash128){.lo = d.low64, .hi = d.high64};
    return r;
}

static int arrays_compute_id(struct cw_arrays *a, struct cw_error *err)
{
    XXH3_state_t x;
    struct cw_arrays_look look = {0};
    int r = 0;
    arrays_hash_begin(&x, a);
    for (size_t i = 0; r == 0 && i < a->n_columns; i++)
        r = arrays_hash_next(&x, a, &a->columns[i], &look, &a->columns[i].hash, err);
    cw_hash128_print(a->columns[a->n_columns - 1].hash, a->id);
    return r;
}

int cw_arrays_check(const struct cw_arrays *a, struct cw_arrays_look *look, struct cw_error *err)
{
    XXH3_state_t x;
    int r = 0;
    arrays_hash_begin(&x, a);
    for (size_t i = 0; r == 0 && i < a->n_columns; i++) {
        struct cw_hash128 now;
        r = arrays_hash_next(&x, a, &a->columns[i], look, &now, err);
        if (r == 0 && (now.lo != a->columns[i].hash.lo || now.hi != a->columns[i].hash.hi))
            r = cw_error_set(
                err, CW_E_DATA,
                "the program has changed the array \"%.60s\" since it made the data set from it: a cache "
                "would return elements of the old content; make a new data set from the array",
                a->columns[i].name);
    }
    return r;
}

/* ---- the registry ---- */

int cw_arrays_register(struct cw_arrays *a, struct cw_error *err)
{
    int r = 0;
    if (a->n_columns == 0)
        return cw_error_set(err, CW_E_OPTION, "the data set has no array: expected at least one array");
    if (!a->rows)
        a->n_elements = a->first[a->n_pieces];
    a->total_bytes = 0;
    for (size_t i = 0; r == 0 && i < a->n_columns; i++)
        for (size_t k = 0; r == 0 && k < a->n_pieces; k++)
            r = arrays_check_piece(&a->columns[i], &a->columns[i].pieces[k], a->first[k + 1] - a->first[k],
                                   &a->total_bytes, err);
    if (r < 0)
        return r;
    if (a->rows)
        arrays_count_bytes(a);
    if ((r = arrays_compute_id(a, err)) < 0)
        return r;
    CW_GUARD(&registry.mutex);
    a->refs = 1;
    a->next = registry.first;
    registry.first = a;
    return 0;
}

struct cw_arrays *cw_arrays_find(const char *id)
{
    CW_GUARD(&registry.mutex);
    struct cw_arrays *a = registry.first;
    while (a && strcmp(a->id, id) != 0)
        a = a->next;
    if (a)
        a->refs++;
    return a;
}

struct cw_arrays *cw_arrays_ref(struct cw_arrays *a)
{
    CW_GUARD(&registry.mutex);
    a->refs++;
    return a;
}

void cw_arrays_unref(struct cw_arrays *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&registry.mutex);
    bool last = --a->refs == 0;
    for (struct cw_arrays **at = &registry.first; last && *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            break;
        }
    pthread_mutex_unlock(&registry.mutex);
    if (!last)
        return;
    void (*release)(void *) = a->release;
    void *arg = a->arg;
    cw_arrays_free(a);
    if (release) /* called without the mutex, because it is the program's code */
        release(arg);
}
