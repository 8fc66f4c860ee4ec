/*
 * Exports batches through the Arrow C data interface: a struct array with one child array per component, over
 * the batch's memory. Only two things are copied: bool values (Arrow stores one bit per value), and the
 * offsets of byte strings. Arrow has no bfloat16: such values are exported as uint16 with the same bits.
 *
 * Each array, also a child, owns a reference to the slab (the Python object that owns the batch), because
 * consumers may move children out of their parent and release them on any thread.
 *
 * Functions that return NULL or -1 found no memory. They set no exception, and leave what they have built to
 * be released with the root array or schema.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#include <cachew/arrow.h>

/* private_data of an ArrowArray: what the array owns. */
struct owner {
    PyObject *slab;               /* a reference */
    const void *buffers[3];       /* into the slab, or `copy` */
    void *copy;                   /* bits or offsets; NULL: none */
    struct ArrowArray **children; /* one allocation: n_children pointers, then the children themselves */
};

/* ArrowArray.release. Called on any thread, with or without the interpreter's lock. */
static void release_array(struct ArrowArray *a)
{
    struct owner *o = a->private_data;
    for (int64_t i = 0; i < a->n_children; i++)
        if (a->children[i]->release)
            a->children[i]->release(a->children[i]);
    if (o->slab && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        Py_DECREF(o->slab);
        PyGILState_Release(gil);
    }
    free(o->children);
    free(o->copy);
    free(o);
    a->release = NULL;
}

/* Makes *a an array of length n that owns a reference to the slab. Its buffers are NULL, its children zeroed.
 */
static struct owner *array_init(struct ArrowArray *a, PyObject *slab, int64_t n, int64_t n_buffers,
                                size_t n_children)
{
    struct owner *o = calloc(1, sizeof(*o));
    if (o)
        o->children = calloc(n_children + 1, sizeof(*o->children) + sizeof(**o->children));
    if (!o || !o->children) {
        free(o);
        return NULL;
    }
    for (size_t i = 0; i < n_children; i++)
        o->children[i] = (struct ArrowArray *)(o->children + n_children) + i;
    o->slab = Py_NewRef(slab);
    *a = (struct ArrowArray){.length = n,
                             .n_buffers = n_buffers,
                             .n_children = (int64_t)n_children,
                             .buffers = o->buffers,
                             .children = o->children,
                             .release = release_array,
                             .private_data = o};
    return o;
}

static int64_t product(const int64_t *dims, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++)
        p *= dims[i];
    return p;
}

/* Returns n bool values as a bitmap, which the caller frees. */
static void *pack_bits(const uint8_t *values, int64_t n)
{
    uint8_t *bits = calloc(1, (size_t)(n + 7) / 8 + 1);
    for (int64_t i = 0; bits && i < n; i++)
        bits[i / 8] |= (uint8_t)((values[i] != 0) << (i % 8));
    return bits;
}

/* Returns the n + 1 offsets of n strings, which the caller frees. */
static void *sum_lengths(const uint64_t *lengths, int64_t n)
{
    int64_t *offsets = malloc(((size_t)n + 1) * sizeof(*offsets));
    if (offsets)
        offsets[0] = 0;
    for (int64_t i = 0; offsets && i < n; i++)
        offsets[i + 1] = offsets[i] + (int64_t)lengths[i];
    return offsets;
}

/* Makes *a the array of a component's values: n byte strings, or n numbers. */
static int values_init(struct ArrowArray *a, PyObject *slab, const struct cachew_component *c, int64_t n)
{
    bool bytes = c->lengths != NULL;
    struct owner *o = array_init(a, slab, n, bytes ? 3 : 2, 0);
    if (!o)
        return -1;
    o->buffers[1] = c->data;
    if (bytes) {
        o->buffers[1] = o->copy = sum_lengths(c->lengths, n);
        o->buffers[2] = c->data;
    } else if (c->dtype == CACHEW_BOOL) {
        o->buffers[1] = o->copy = pack_bits(c->data, n);
    }
    return (bytes || c->dtype == CACHEW_BOOL) && !o->copy ? -1 : 0;
}

/* Makes *a the array of a component with n elements: the values, or lists of fixed size if elements have a
 * shape. first: index of the first dimension that belongs to the element (1 if dimension 0 is the batch's,
 * else 0). */
static int component_init(struct ArrowArray *a, PyObject *slab, const struct cachew_component *c, int first,
                          int64_t n)
{
    if (c->ndim <= first)
        return values_init(a, slab, c, n);
    if (!array_init(a, slab, n, 1, 1))
        return -1;
    return values_init(a->children[0], slab, c, n * product(c->dims + first, c->ndim - first));
}

static int batch_array(PyObject *slab, const struct cachew_batch *b, bool batched, struct ArrowArray *ret)
{
    int64_t n = cachew_batch_records(b);
    int r = array_init(ret, slab, n, 1, cachew_batch_count(b)) ? 0 : -1;
    for (int64_t i = 0; r == 0 && i < ret->n_children; i++)
        r = component_init(ret->children[i], slab, cachew_batch_component(b, (size_t)i), batched ? 1 : 0, n);
    return r;
}

/* ---- types ---- */

/* private_data of an ArrowSchema: what the schema owns. */
struct schema_owner {
    char *name, *metadata;
    char format[32];
    struct ArrowSchema **children; /* one allocation: n_children pointers, then the children themselves */
};

static void release_schema(struct ArrowSchema *s)
{
    struct schema_owner *o = s->private_data;
    for (int64_t i = 0; i < s->n_children; i++)
        if (s->children[i]->release)
            s->children[i]->release(s->children[i]);
    free(o->children);
    free(o->name);
    free(o->metadata);
    free(o);
    s->release = NULL;
}

/* Makes *s a schema with zeroed children. */
static struct schema_owner *schema_init(struct ArrowSchema *s, const char *name, const char *format,
                                        size_t n_children)
{
    struct schema_owner *o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->name = strdup(name);
    o->children = calloc(n_children + 1, sizeof(*o->children) + sizeof(**o->children));
    *s = (struct ArrowSchema){.format = o->format,
                              .name = o->name,
                              .n_children = o->children ? (int64_t)n_children : 0,
                              .children = o->children,
                              .release = release_schema,
                              .private_data = o};
    snprintf(o->format, sizeof(o->format), "%s", format);
    for (size_t i = 0; o->children && i < n_children; i++)
        o->children[i] = (struct ArrowSchema *)(o->children + n_children) + i;
    return o->name && o->children ? o : NULL;
}

/* Returns Arrow's format string of a dtype. */
static const char *format_of(enum cachew_dtype dtype)
{
    static const char *const formats[] = {
        [CACHEW_BOOL] = "b",    [CACHEW_UINT8] = "C",   [CACHEW_UINT16] = "S",   [CACHEW_UINT32] = "I",
        [CACHEW_UINT64] = "L",  [CACHEW_INT8] = "c",    [CACHEW_INT16] = "s",    [CACHEW_INT32] = "i",
        [CACHEW_INT64] = "l",   [CACHEW_FLOAT16] = "e", [CACHEW_BFLOAT16] = "S", [CACHEW_FLOAT32] = "f",
        [CACHEW_FLOAT64] = "g", [CACHEW_BYTES] = "Z",
    };
    return formats[dtype];
}

/* Returns the metadata of Arrow's extension type fixed_shape_tensor, for elements of two and more dimensions:
 * the elements' shape. The caller frees it. */
static char *tensor_metadata(const int64_t *dims, int ndim)
{
    /* The number of pairs, 2, then each key and value, with its length before it. The last value, the shape,
     * is appended below. */
    _Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "head has lengths in little-endian order");
    static const char head[] = "\x02\0\0\0"
                               "\x14\0\0\0ARROW:extension:name"
                               "\x18\0\0\0"
                               "arrow.fixed_shape_tensor"
                               "\x18\0\0\0"
                               "ARROW:extension:metadata";
    char shape[32 + 24 * CACHEW_MAX_NDIM];
    int at = snprintf(shape, sizeof(shape), "{\"shape\":[");
    for (int i = 0; i < ndim; i++)
        at += snprintf(shape + at, sizeof(shape) - (size_t)at, "%s%lld", i ? "," : "", (long long)dims[i]);
    at += snprintf(shape + at, sizeof(shape) - (size_t)at, "]}");
    int32_t size = at;
    char *metadata = malloc(sizeof(head) + sizeof(size) + (size_t)size);
    if (!metadata)
        return NULL;
    memcpy(metadata, head, sizeof(head) - 1);
    memcpy(metadata + sizeof(head) - 1, &size, sizeof(size));
    memcpy(metadata + sizeof(head) - 1 + sizeof(size), shape, (size_t)size);
    return metadata;
}

/* Makes *s the schema of a component. first: as in component_init. */
static int component_schema(struct ArrowSchema *s, const struct cachew_component *c, int first)
{
    if (c->ndim <= first)
        return schema_init(s, c->name, format_of(c->dtype), 0) ? 0 : -1;
    char format[32];
    snprintf(format, sizeof(format), "+w:%lld", (long long)product(c->dims + first, c->ndim - first));
    struct schema_owner *o = schema_init(s, c->name, format, 1);
    if (!o)
        return -1;
    bool tensor = c->ndim - first > 1;
    if (tensor)
        s->metadata = o->metadata = tensor_metadata(c->dims + first, c->ndim - first);
    return (tensor && !o->metadata) || !schema_init(o->children[0], "item", format_of(c->dtype), 0) ? -1 : 0;
}

static int batch_schema(const struct cachew_batch *b, bool batched, struct ArrowSchema *ret)
{
    int r = schema_init(ret, "", "+s", cachew_batch_count(b)) ? 0 : -1;
    for (int64_t i = 0; r == 0 && i < ret->n_children; i++)
        r = component_schema(ret->children[i], cachew_batch_component(b, (size_t)i), batched ? 1 : 0);
    return r;
}

/* ---- capsules ---- */

static void free_schema_capsule(PyObject *capsule)
{
    struct ArrowSchema *s = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (s->release)
        s->release(s);
    free(s);
}

static void free_array_capsule(PyObject *capsule)
{
    struct ArrowArray *a = PyCapsule_GetPointer(capsule, "arrow_array");
    if (a->release)
        a->release(a);
    free(a);
}

PyObject *core_arrow_capsules(PyObject *slab, const struct cachew_batch *b, bool batched)
{
    struct ArrowSchema *s = calloc(1, sizeof(*s));
    struct ArrowArray *a = calloc(1, sizeof(*a));
    PyObject *schema = s ? PyCapsule_New(s, "arrow_schema", free_schema_capsule) : PyErr_NoMemory();
    PyObject *array = schema && a ? PyCapsule_New(a, "arrow_array", free_array_capsule) : NULL;
    if (array && batch_schema(b, batched, s) == 0 && batch_array(slab, b, batched, a) == 0)
        return Py_BuildValue("(NN)", schema, array);
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    if (!schema)
        free(s);
    if (!array)
        free(a);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return NULL;
}
