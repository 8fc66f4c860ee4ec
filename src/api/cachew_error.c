/* Part of the C interface: error objects, which belong to the caller; the library's version; names and sizes
 * of dtypes. */
#include "api/cachew_impl.h"

#include <string.h>

struct cachew_error {
    struct cw_error e;
    char detail[CW_ERROR_DETAIL]; /* of e; "": none */
};

/* The public numbers equal those inside the library, so that casts convert them. */
_Static_assert(CACHEW_E_RECORD == (int)CW_E_RECORD && CACHEW_E_DATA == (int)CW_E_DATA &&
                   CACHEW_E_IO == (int)CW_E_IO && CACHEW_E_MEMORY == (int)CW_E_MEMORY &&
                   CACHEW_E_BUDGET == (int)CW_E_BUDGET && CACHEW_E_PIPELINE == (int)CW_E_PIPELINE &&
                   CACHEW_E_OPTION == (int)CW_E_OPTION && CACHEW_E_STATE == (int)CW_E_STATE &&
                   CACHEW_E_SERVICE == (int)CW_E_SERVICE && CACHEW_E_DEADLINE == (int)CW_E_DEADLINE &&
                   CACHEW_E_INTERRUPTED == (int)CW_E_INTERRUPTED && CACHEW_E_INTERNAL == (int)CW_E_BUG,
               "enum cachew_status");
_Static_assert(CACHEW_BOOL == (int)CW_BOOL && CACHEW_UINT8 == (int)CW_UINT8 &&
                   CACHEW_UINT16 == (int)CW_UINT16 && CACHEW_UINT32 == (int)CW_UINT32 &&
                   CACHEW_UINT64 == (int)CW_UINT64 && CACHEW_INT8 == (int)CW_INT8 &&
                   CACHEW_INT16 == (int)CW_INT16 && CACHEW_INT32 == (int)CW_INT32 &&
                   CACHEW_INT64 == (int)CW_INT64 && CACHEW_FLOAT16 == (int)CW_FLOAT16 &&
                   CACHEW_BFLOAT16 == (int)CW_BFLOAT16 && CACHEW_FLOAT32 == (int)CW_FLOAT32 &&
                   CACHEW_FLOAT64 == (int)CW_FLOAT64 && CACHEW_BYTES == (int)CW_BYTES &&
                   CACHEW_BYTES + 1 == (int)CW_N_DTYPES,
               "enum cachew_dtype");
_Static_assert(CACHEW_REPLACEMENT == (int)CW_RECORD_REPLACEMENT && CACHEW_PADDING == (int)CW_RECORD_PADDING,
               "enum cachew_flag");
_Static_assert(CACHEW_MAX_NDIM == CW_MAX_NDIM && CACHEW_VARIES == CW_VARIES, "dimensions");

/* Returned if there is no memory for a new error. Immutable, never freed. */
static struct cachew_error no_memory = {.e = {.status = CW_E_MEMORY, .message = "out of memory"}};

int cw_api_fail(int status, const struct cw_error *from, struct cachew_error **err)
{
    if (!err)
        return status;
    struct cachew_error *e = malloc(sizeof(*e));
    if (e) {
        e->e = *from;
        e->e.status = status;
        if (!cw_error_get_detail(from, e->detail))
            e->detail[0] = '\0';
    }
    *err = e ? e : &no_memory;
    return e ? status : CW_E_MEMORY;
}

void cachew_error_free(struct cachew_error *e)
{
    if (e != &no_memory)
        free(e);
}

/* Returns a field of an error (operator, file, ...) as the interface gives it: NULL if the field is empty. */
static const char *error_fact(const char *text)
{
    return text[0] ? text : NULL;
}

int cachew_error_status(const struct cachew_error *e)
{
    return e->e.status;
}

const char *cachew_error_kind(const struct cachew_error *e)
{
    return cw_status_name(e->e.status);
}

const char *cachew_error_message(const struct cachew_error *e)
{
    return e->e.message;
}

const char *cachew_error_operator(const struct cachew_error *e)
{
    return error_fact(e->e.op);
}

const char *cachew_error_attribute(const struct cachew_error *e)
{
    return error_fact(e->e.attribute);
}

const char *cachew_error_value(const struct cachew_error *e)
{
    return error_fact(e->e.value);
}

const char *cachew_error_expected(const struct cachew_error *e)
{
    return error_fact(e->e.expected);
}

const char *cachew_error_file(const struct cachew_error *e)
{
    return error_fact(e->e.file);
}

const char *cachew_error_record(const struct cachew_error *e)
{
    return error_fact(e->e.record);
}

int cachew_error_errno(const struct cachew_error *e)
{
    return e->e.errnum;
}

const char *cachew_error_detail(const struct cachew_error *e)
{
    return error_fact(e->detail);
}

const char *cachew_version(void)
{
    return CACHEW_VERSION;
}

void cachew_free(void *text)
{
    free(text);
}

const char *cachew_dtype_name(enum cachew_dtype dtype)
{
    return (unsigned)dtype < CW_N_DTYPES ? cw_dtype_name((enum cw_dtype)dtype) : NULL;
}

size_t cachew_dtype_size(enum cachew_dtype dtype)
{
    return (unsigned)dtype < CW_N_DTYPES ? cw_dtype_size((enum cw_dtype)dtype) : 0;
}
