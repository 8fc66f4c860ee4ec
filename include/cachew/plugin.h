/*
 * The interface for plug-ins: shared objects with operators, which Cachew loads into the process beside its
 * built-in operators. docs/plugins.md is the tutorial. An example:
 *
 *     struct negative { unsigned char top; };
 *
 *     static int negative_bind(struct cachew_bind *b, void **state)
 *     {
 *         struct cachew_type type;
 *         const char *component = cachew_attr_string(b, "component");
 *         struct negative *s = malloc(sizeof(*s));
 *         if (!s)
 *             return CACHEW_E_MEMORY;
 *         *state = s;
 *         s->top = (unsigned char)cachew_attr_int(b, "top");
 *         cachew_bind_read(b, component, &type); // input 0
 *         if (type.dtype != CACHEW_UINT8)
 *             return cachew_bind_fail(b, "component", "a uint8 component, not %s",
 *                 cachew_dtype_text(type.dtype));
 *         return cachew_bind_write(b, component, &type); // output 0
 *     }
 *
 *     static int negative_run(const void *state, struct cachew_row *row)
 *     {
 *         const struct negative *s = state;
 *         const struct cachew_tensor *in = &row->in[0];
 *         const unsigned char *src = in->data;
 *         unsigned char *dst = cachew_row_output(row, 0, in->dims, in->ndim);
 *         if (!dst)
 *             return CACHEW_E_MEMORY;
 *         for (size_t i = 0; i < in->size; i++)
 *             dst[i] = (unsigned char)(s->top - src[i]);
 *         return CACHEW_OK;
 *     }
 *
 *     static const struct cachew_attr attrs[] = {
 *         {.name = "component", .kind = CACHEW_ATTR_COMPONENT, .doc = "the uint8 component"},
 *         {.name = "top", .kind = CACHEW_ATTR_INT, .def = "255", .min = 0, .max = 255,
 *             .doc = "what 0 becomes"},
 *         {0},
 *     };
 *     static const struct cachew_operator negative = {
 *         .name = "negative", .summary = "a component as a negative", .kind = CACHEW_MAP, .attrs = attrs,
 *         .bind = negative_bind, .run = negative_run, .free_state = free,
 *     };
 *     static const struct cachew_operator *const operators[] = {&negative, NULL};
 *
 *     CACHEW_API const struct cachew_plugin cachew_plugin = {.abi = CACHEW_PLUGIN_ABI, .version = "1",
 *         .operators = operators};
 *
 *     cc -shared -fPIC $(pkg-config --cflags cachew) -o negative.so negative.c
 *     cachew run train.json --plugin ./negative.so
 *
 * Linking. A plug-in does not link with Cachew. It calls Cachew's functions through the first argument that
 * its own functions get, so it works in the command, in programs with the shared or static library, and in
 * the packages of other languages.
 *
 * Trust. A plug-in is code in the process, with all rights of the process. If it crashes, the process
 * crashes.
 *
 * Threads. Several threads call `bind` and `run` at once. Calls of `run` share one state, so `run` must not
 * change it. Each call gets its own cachew_bind or cachew_row, which is valid until the call returns, and
 * which only the calling thread may use.
 *
 * Lifetime. A plug-in is never unloaded. Its descriptors, and the texts in them, must stay valid and
 * unchanged until the process ends.
 *
 * Purity. The results of `run` must depend on its inputs, its attributes and its random draws only: not on
 * the clock, the thread, or earlier calls. Cachew may call `run` again for an element that was computed
 * before; if the result then differs, batches are wrong.
 *
 * Compatibility. CACHEW_PLUGIN_ABI increases with any change of this header that a compiled plug-in could
 * notice. The library refuses a plug-in of an ABI that it does not support, with an error that names the
 * supported ones.
 */
#ifndef CACHEW_PLUGIN_H
#define CACHEW_PLUGIN_H

#include <cachew/cachew.h> /* statuses, dtypes, CACHEW_MAX_NDIM, CACHEW_VARIES; nothing to link */
#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CACHEW_PLUGIN_ABI 1
#define CACHEW_PRINTF(a, b) __attribute__((format(printf, a, b), unused))

/* ---- descriptors: what a plug-in defines ---- */

enum cachew_attr_kind {
    CACHEW_ATTR_INT = 1,
    CACHEW_ATTR_FLOAT = 2,
    CACHEW_ATTR_BOOL = 3,
    CACHEW_ATTR_STRING = 4,
    CACHEW_ATTR_DTYPE = 5,     /* a dtype, but not bytes */
    CACHEW_ATTR_COMPONENT = 6, /* the name of a component */
    CACHEW_ATTR_INTS = 7,      /* a list, as the next two */
    CACHEW_ATTR_FLOATS = 8,
    CACHEW_ATTR_STRINGS = 9,
};

#define CACHEW_NO_MAX 4611686018427387904.0 /* 2^62 */

/* An attribute of an operator. Cachew checks values against this table before it calls `bind`. The errors
 * name the operator, the attribute, the value, and the allowed values. */
struct cachew_attr {
    const char *name; /* at most 48 of a-z, 0-9 and _, beginning with a letter; neither "op" nor "inputs" */
    enum cachew_attr_kind kind;
    const char *def; /* default as JSON: "128", "\"image\"", "[0, 1]"; NULL: required */
    double min, max; /* of numbers, also in lists; both 0: no bounds; max CACHEW_NO_MAX: no upper bound */
    int len_min, len_max;       /* length of lists; both 0: any length; len_max 0: no upper bound */
    const char *const *choices; /* allowed strings or dtypes, then NULL; NULL: all are allowed */
    int scalar_too;             /* for lists: 1: a single value is accepted as a list of one value */
    const char *doc;            /* one line for people, with the unit */
};

enum cachew_operator_kind {
    CACHEW_MAP = 1, /* one element in, one out. Without outputs, it only checks elements and fails bad ones */
    CACHEW_FILTER = 2, /* keeps or drops each element; has no outputs */
};

struct cachew_bind;
struct cachew_row;

struct cachew_operator {
    const char *name;    /* same rules as for attributes; must differ from all other operators' names */
    const char *summary; /* one line, for `cachew ops` */
    const char *doc;     /* a paragraph; may be NULL */
    enum cachew_operator_kind kind;
    int random; /* 1: `run` draws random numbers, so results differ between epochs and between seeds */
    const struct cachew_attr *attrs; /* ends with a NULL name; NULL: none */
    /* Called before any data are touched, once for each occurrence of the operator in each compiled pipeline.
     * Reads attributes and types, declares the components that are read and written, and sets *state, which
     * is NULL before. Returns a value < 0 after an error; CACHEW_E_MEMORY if memory is exhausted. The results
     * of cachew_bind_* and cachew_attr_* need no checks: if one of them fails, the first such error is
     * reported, whatever `bind` returns. */
    int (*bind)(struct cachew_bind *b, void **state);
    /* Computes one element. Returns CACHEW_OK, CACHEW_DROP (filters only), or the result of cachew_row_fail.
     * If a function below returned NULL, return CACHEW_E_MEMORY; if memory is exhausted, this ends the run.
     * Any other result, an output that is not written, and a shape that does not fit the declared type are
     * errors of this element alone. */
    int (*run)(const void *state, struct cachew_row *row);
    /* Frees the state that `bind` set, also if `bind` failed. Not called if the state is NULL. May be NULL */
    void (*free_state)(void *state);
};

enum { CACHEW_DROP = 1 }; /* result of a filter's `run`: leave the element out */

struct cachew_plugin {
    uint32_t abi; /* CACHEW_PLUGIN_ABI */
    /* The version of the operators' results: at most 48 letters, digits and . _ + -. Change it when results
     * change: it is part of the fingerprint of pipelines, together with the file's name up to ".so", so
     * states saved with another version are refused. */
    const char *version;
    const struct cachew_operator *const *operators; /* at least one, then NULL */
};

/* The one symbol that a plug-in must define. */
CACHEW_API extern const struct cachew_plugin cachew_plugin;

/* ---- for bind ---- */

/* The type of a component in one element, without a batch dimension. */
struct cachew_type {
    enum cachew_dtype dtype;
    int ndim; /* number of dimensions; CACHEW_VARIES: it differs from element to element. CACHEW_BYTES: 0 */
    int64_t dims[CACHEW_MAX_NDIM]; /* sizes; CACHEW_VARIES: the size differs from element to element */
};

struct cachew_bind {
    const struct cachew_bind_calls *calls;
};

struct cachew_bind_calls { /* called through the functions below, which document them */
    int64_t (*integer)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    double (*number)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    const char *(*string)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    size_t (*length)(struct cachew_bind *b, const char *name);
    int (*type)(struct cachew_bind *b, const char *component, struct cachew_type *ret);
    int (*read)(struct cachew_bind *b, const char *component, struct cachew_type *ret);
    int (*write)(struct cachew_bind *b, const char *component, const struct cachew_type *type);
    int (*fail_bind)(struct cachew_bind *b, const char *attribute, const char *text);
};

/* The value of an attribute. If the attribute is not in the operator's table, or has another kind there, this
 * is an error of `bind`, and the value is 0 or "". */
static inline int64_t cachew_attr_int(struct cachew_bind *b, const char *name)
{
    return b->calls->integer(b, name, CACHEW_ATTR_INT, 0);
}

static inline double cachew_attr_float(struct cachew_bind *b, const char *name)
{
    return b->calls->number(b, name, CACHEW_ATTR_FLOAT, 0);
}

static inline int cachew_attr_bool(struct cachew_bind *b, const char *name)
{
    return b->calls->integer(b, name, CACHEW_ATTR_BOOL, 0) != 0;
}

static inline enum cachew_dtype cachew_attr_dtype(struct cachew_bind *b, const char *name)
{
    return (enum cachew_dtype)b->calls->integer(b, name, CACHEW_ATTR_DTYPE, 0);
}

/* For CACHEW_ATTR_STRING and CACHEW_ATTR_COMPONENT. The text is valid until the state is freed. */
static inline const char *cachew_attr_string(struct cachew_bind *b, const char *name)
{
    return b->calls->string(b, name, CACHEW_ATTR_STRING, 0);
}

/* For lists: the number of values (1 if a single value was given, see scalar_too), and value i. */
static inline size_t cachew_attr_length(struct cachew_bind *b, const char *name)
{
    return b->calls->length(b, name);
}

static inline int64_t cachew_attr_int_at(struct cachew_bind *b, const char *name, size_t i)
{
    return b->calls->integer(b, name, CACHEW_ATTR_INTS, i);
}

static inline double cachew_attr_float_at(struct cachew_bind *b, const char *name, size_t i)
{
    return b->calls->number(b, name, CACHEW_ATTR_FLOATS, i);
}

static inline const char *cachew_attr_string_at(struct cachew_bind *b, const char *name, size_t i)
{
    return b->calls->string(b, name, CACHEW_ATTR_STRINGS, i);
}

/* Gets the type of a component without declaring that it is read. Returns 1, or 0 if there is no such
 * component. */
static inline int cachew_bind_type(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    return b->calls->type(b, component, ret);
}

/* Declares that `run` reads a component. Returns the number of this input: 0, 1, ... in the order of calls,
 * at most 64 inputs. *ret (ret may be NULL) is its type. Returns a value < 0 if there is no such component;
 * *ret is then the type of a bool scalar. All calls must come before the first cachew_bind_write. */
static inline int cachew_bind_read(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    return b->calls->read(b, component, ret);
}

/* Declares an output: a component that is new, or replaces the component of the same name. Returns the number
 * of this output: 0, 1, ... in the order of calls, at most 64 outputs. */
static inline int cachew_bind_write(struct cachew_bind *b, const char *component,
                                    const struct cachew_type *type)
{
    return b->calls->write(b, component, type);
}

/* Reports an error; `bind` returns the result. The message is "OPERATOR: ATTRIBUTE is VALUE: expected TEXT",
 * or "OPERATOR: TEXT" if attribute is NULL. TEXT is made from format, as printf does. */
CACHEW_PRINTF(3, 4)

static int cachew_bind_fail(struct cachew_bind *b, const char *attribute, const char *format, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return b->calls->fail_bind(b, attribute, text);
}

/* ---- for run ---- */

/* A component of an element. Valid until `run` returns; must not be written to. */
struct cachew_tensor {
    enum cachew_dtype dtype;
    int ndim;
    const int64_t *dims; /* ndim sizes, none CACHEW_VARIES */
    const void *data;    /* C-contiguous, aligned for its dtype; CACHEW_BYTES: the string, without NUL */
    size_t size;         /* of data, in bytes */
};

struct cachew_row {
    const struct cachew_row_calls *calls;
    const struct cachew_tensor *in; /* the inputs, by the numbers that cachew_bind_read returned */
};

struct cachew_row_calls { /* called through the functions below, which document them */
    void *(*output)(struct cachew_row *row, unsigned output, const int64_t *dims, int ndim);
    void *(*bytes)(struct cachew_row *row, unsigned output, size_t size);
    int (*wanted)(struct cachew_row *row, unsigned output);
    void *(*scratch)(struct cachew_row *row, size_t size);
    void (*draw)(struct cachew_row *row, uint32_t n, uint32_t words[4]);
    int (*fail_row)(struct cachew_row *row, const char *text);
};

/* Returns the memory for an output. `run` must fill all of it. It is often the element's place in the batch,
 * is aligned for the dtype, not zeroed, and overlaps no input. dims: the shape, which must fit the declared
 * type; NULL: the declared shape, if no dimension varies. A bool is a byte, 0 or 1. Returns NULL if memory is
 * exhausted or the shape does not fit. Return CACHEW_E_MEMORY in both cases: the library has recorded which
 * one it is. */
static inline void *cachew_row_output(struct cachew_row *row, unsigned output, const int64_t *dims, int ndim)
{
    return row->calls->output(row, output, dims, ndim);
}

/* As cachew_row_output, for an output of CACHEW_BYTES: returns the memory for a string of this size. */
static inline void *cachew_row_bytes(struct cachew_row *row, unsigned output, size_t size)
{
    return row->calls->bytes(row, output, size);
}

/* Whether anything in the pipeline uses the output. `run` need not write an output that is not used. It is
 * not called at all if none of its outputs is used. */
static inline int cachew_row_wanted(struct cachew_row *row, unsigned output)
{
    return row->calls->wanted(row, output);
}

/* Returns scratch memory, valid until `run` returns or calls this function again. It counts towards the
 * memory budget, is aligned to 64 bytes, and is not zeroed. NULL: memory is exhausted; return
 * CACHEW_E_MEMORY. */
static inline void *cachew_row_scratch(struct cachew_row *row, size_t size)
{
    return row->calls->scratch(row, size);
}

/* Gets words 4n .. 4n+3 of this element's random words (docs/randomness.md). Only for operators with random
 * = 1. The words depend on the seed, the epoch, the element, the operator's name, and its occurrence in the
 * pipeline. */
static inline void cachew_row_draw(struct cachew_row *row, uint32_t n, uint32_t words[4])
{
    row->calls->draw(row, n, words);
}

/* Maps a random word to a number in [0, 1) with 24 random bits. */
static inline double cachew_uniform(uint32_t word)
{
    return (double)(word >> 8) / 16777216.0;
}

/* Maps a random word to an integer in [0, n). */
static inline uint32_t cachew_integer(uint32_t word, uint32_t n)
{
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

/* Reports that this element can't be computed, and why; `run` returns the result. The pipeline's on_error
 * determines what happens to the element. */
CACHEW_PRINTF(2, 3) static int cachew_row_fail(struct cachew_row *row, const char *format, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return row->calls->fail_row(row, text);
}

/* The name of a dtype for messages: "bool", "uint8", ..., "bytes". As cachew_dtype_name, but needs no
 * library. */
static inline const char *cachew_dtype_text(enum cachew_dtype dtype)
{
    static const char *const names[] = {"bool",     "uint8",   "uint16",  "uint32", "uint64",
                                        "int8",     "int16",   "int32",   "int64",  "float16",
                                        "bfloat16", "float32", "float64", "bytes"};
    return (unsigned)dtype < sizeof(names) / sizeof(names[0]) ? names[dtype] : "unknown";
}

#ifdef __cplusplus
}
#endif
#endif
