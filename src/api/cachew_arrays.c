/* Data sets in memory, for the C interface. A struct cachew_arrays * is a pointer to the library's struct
 * cw_arrays, of which the caller holds one reference. */
#include <string.h>

#include "api/cachew_impl.h"
#include "data/arrays.h"

/* Sets column i of a from the caller's array. */
static int arrays_add(struct cw_arrays *a, size_t i, const struct cachew_array *from, struct cw_error *err)
{
    struct cw_type type = {.dtype = (enum cw_dtype)from->dtype, .ndim = from->ndim};
    if (from->ndim < 0 || from->ndim > CW_MAX_NDIM || (from->ndim && !from->dims))
        return cw_error_set(
            err, CW_E_OPTION,
            "the array \"%.60s\": ndim is %d: expected 0 to %d, and the size of each dimension in dims",
            from->name ? from->name : "", from->ndim, CW_MAX_NDIM);
    for (int k = 0; k < from->ndim; k++)
        type.dims[k] = CW_MAX(from->dims[k], 0); /* CACHEW_VARIES is no size here: 0 is refused below */
    int r = cw_arrays_column(a, i, from->name, &type, err);
    if (r < 0)
        return r;
    if ((type.dtype == CW_BYTES) != (from->offsets != NULL))
        return cw_error_set(err, CW_E_OPTION,
                            "the array \"%.60s\" has wrong offsets: expected a pointer to offsets if its "
                            "dtype is bytes, and NULL otherwise",
                            from->name);
    a->columns[i].pieces[0] = (struct cw_array_piece){
        .data = from->data, .offsets = from->offsets, .offset_size = 8};
    return 0;
}

int cachew_arrays_new(const struct cachew_array *arrays, size_t n_arrays, uint64_t n_elements,
                      void (*release)(void *arg), void *arg, struct cachew_arrays **ret,
                      struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_arrays *a = cw_arrays_new(n_arrays, 1);
    int r = a ? 0 : cw_error_nomem(&e, n_arrays * sizeof(struct cw_array_column), "arrays");
    for (size_t i = 0; r == 0 && i < n_arrays; i++)
        r = arrays_add(a, i, &arrays[i], &e);
    if (r == 0) {
        a->first[1] = n_elements;
        a->release = release;
        a->arg = arg;
        r = cw_arrays_register(a, &e);
    }
    if (r < 0) {
        cw_arrays_free(a);
        return cw_api_fail(r, &e, err);
    }
    *ret = (struct cachew_arrays *)a;
    return 0;
}

static int arrays_import(struct ArrowArrayStream *stream, const uint64_t *rows, uint64_t n_rows,
                         struct cachew_arrays **ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_arrays *a;
    int r = cw_arrays_from_arrow(stream, rows, n_rows, &a, &e);
    if (r < 0)
        return cw_api_fail(r, &e, err);
    *ret = (struct cachew_arrays *)a;
    return 0;
}

int cachew_arrays_from_arrow(struct ArrowArrayStream *stream, struct cachew_arrays **ret,
                             struct cachew_error **err)
{
    return arrays_import(stream, NULL, 0, ret, err);
}

int cachew_arrays_from_arrow_rows(struct ArrowArrayStream *stream, const uint64_t *rows, uint64_t n_rows,
                                  struct cachew_arrays **ret, struct cachew_error **err)
{
    static const uint64_t none;
    return arrays_import(stream, n_rows ? rows : &none, n_rows, ret, err); /* NULL would choose all rows */
}

const char *cachew_arrays_id(const struct cachew_arrays *a)
{
    return ((const struct cw_arrays *)a)->id;
}

uint64_t cachew_arrays_count(const struct cachew_arrays *a)
{
    return ((const struct cw_arrays *)a)->n_elements;
}

void cachew_arrays_free(struct cachew_arrays *a)
{
    cw_arrays_unref((struct cw_arrays *)a);
}
