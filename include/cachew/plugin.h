/*
 * Operators of your own: a shared object that Cachew loads into the process, beside the built-in ones.
 * docs/plugins.md is the tutorial.
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
 * Linking. A plug-in links nothing of Cachew: what it calls comes through the first argument of its
 * functions, so that it works in the command, in programs with either library, and in other languages'
 * packages.
 *
 * Trust. A plug-in is code in the process, with all its rights. A crash of it is a crash of the process.
 *
 * Threads. `bind` and `run` are called by several threads at once, also with the same state, which is why
 * `run` gets it const. Each call has a cachew_bind or cachew_row of its own, valid until the call returns and
 * used by the calling thread only.
 *
 * Lifetime. A plug-in is never unloaded: its descriptors, and the texts in them, stay valid and unchanged as
 * long as the process lives.
 *
 * Purity. What `run` computes is a function of its inputs, its attributes and its draws, and of nothing else:
 * no clock, no thread, no earlier call. `run` may be called again for an element that it has computed before;
 * batches that change then are wrong.
 *
 * Compatibility. CACHEW_PLUGIN_ABI goes up with any change to this header that a compiled plug-in could
 * notice. The library says which numbers it loads, and refuses others with an error.
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

/* ---- descriptors: what the object holds ---- */

enum cachew_attr_kind {
    CACHEW_ATTR_INT = 1,
    CACHEW_ATTR_FLOAT = 2,
    CACHEW_ATTR_BOOL = 3,
    CACHEW_ATTR_STRING = 4,
    CACHEW_ATTR_DTYPE = 5,     /* any but bytes */
    CACHEW_ATTR_COMPONENT = 6, /* name of a component */
    CACHEW_ATTR_INTS = 7,
    CACHEW_ATTR_FLOATS = 8,
    CACHEW_ATTR_STRINGS = 9, /* lists */
};

#define CACHEW_NO_MAX 4611686018427387904.0 /* 2^62 */

/* An attribute. What the table says is checked before `bind`; errors name operator, attribute, value and what
 * is allowed. */
struct cachew_attr {
    const char *name; /* a-z, 0-9 and _, a letter first, at most 48; not op, not inputs */
    enum cachew_attr_kind kind;
    const char *def;            /* default as JSON: "128", "\"image\"", "[0, 1]"; NULL: required */
    double min, max;            /* numbers, also in lists; both 0: no bounds; max CACHEW_NO_MAX: none above */
    int len_min, len_max;       /* lists; both 0: any length; len_max 0: none above */
    const char *const *choices; /* strings and dtypes: those allowed, then NULL; NULL: all */
    int scalar_too;             /* lists: a single value stands for a list of one */
    const char *doc;            /* one line, with units */
};

enum cachew_operator_kind {
    CACHEW_MAP = 1, /* one element in, one out. Without outputs it is there for the elements that it fails */
    CACHEW_FILTER = 2, /* drops elements; no outputs */
};

struct cachew_bind;
struct cachew_row;

struct cachew_operator {
    const char *name;    /* as an attribute's; no other operator has it, built in or not */
    const char *summary; /* one line, for `cachew ops` */
    const char *doc;     /* a paragraph; may be NULL */
    enum cachew_operator_kind kind;
    int random; /* it draws: its results differ from epoch to epoch and from seed to seed */
    const struct cachew_attr *attrs; /* ends with a NULL name; NULL: none */
    /* Called before any data are touched, once for each place in each compiled pipeline. Reads attributes,
     * asks for types, declares what is read and written, and sets *state (NULL before). A result < 0: an
     * error; the first that cachew_bind_* and cachew_attr_* found or cachew_bind_fail told counts, whatever
     * `bind` returns, so that their results need no checks. CACHEW_E_MEMORY: no memory. */
    int (*bind)(struct cachew_bind *b, void **state);
    /* Computes one element: CACHEW_OK, CACHEW_DROP (filters), or the result of cachew_row_fail.
     * CACHEW_E_MEMORY, also where a function gave NULL, ends the run. Anything else, an output not written,
     * or a shape not declared is an error of this element. */
    int (*run)(const void *state, struct cachew_row *row);
    /* gets what `bind` set, also when it failed; not called for NULL. May be NULL */
    void (*free_state)(void *state);
};

enum { CACHEW_DROP = 1 };

struct cachew_plugin {
    uint32_t abi; /* CACHEW_PLUGIN_ABI */
    /* of the results: letters, digits and . _ + -, at most 48. With the file's name (to ".so") it is part of
     * the fingerprint of pipelines, so that states of another version are refused */
    const char *version;
    const struct cachew_operator *const *operators; /* at least one, then NULL */
};

/* What a plug-in defines. */
CACHEW_API extern const struct cachew_plugin cachew_plugin;

/* ---- for bind ---- */

/* Components are arrays of these types; a batch is not yet one. */
struct cachew_type {
    enum cachew_dtype dtype;
    int ndim; /* CACHEW_VARIES: not even the rank is known before an element is there. CACHEW_BYTES: 0 */
    int64_t dims[CACHEW_MAX_NDIM]; /* CACHEW_VARIES: differs from element to element */
};

struct cachew_bind {
    const struct cachew_bind_calls *calls;
};

struct cachew_bind_calls { /* the functions below, which say what they do */
    int64_t (*integer)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    double (*number)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    const char *(*string)(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i);
    size_t (*length)(struct cachew_bind *b, const char *name);
    int (*type)(struct cachew_bind *b, const char *component, struct cachew_type *ret);
    int (*read)(struct cachew_bind *b, const char *component, struct cachew_type *ret);
    int (*write)(struct cachew_bind *b, const char *component, const struct cachew_type *type);
    int (*fail_bind)(struct cachew_bind *b, const char *attribute, const char *text);
};

/* An attribute's value. One that the table does not have, or has with another kind, is an error, and the
 * value 0 or "". */
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

/* CACHEW_ATTR_STRING and CACHEW_ATTR_COMPONENT. Valid until the state is freed. */
static inline const char *cachew_attr_string(struct cachew_bind *b, const char *name)
{
    return b->calls->string(b, name, CACHEW_ATTR_STRING, 0);
}

/* Lists: how many values (1 for a scalar that stands for a list), and value i < that. */
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

/* 1 and the type of a component, or 0: there is none of that name. Declares nothing. */
static inline int cachew_bind_type(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    return b->calls->type(b, component, ret);
}

/* Declares that a component is read. Returns its number among the inputs: 0, 1, ... in the order of calls (at
 * most 64), and the type in *ret (may be NULL). < 0: there is none of that name; *ret is a bool scalar then.
 * All reads stand before the first write. */
static inline int cachew_bind_read(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    return b->calls->read(b, component, ret);
}

/* Declares an output: a new component, or one that replaces that of the same name. Returns its number among
 * the outputs (at most 64). */
static inline int cachew_bind_write(struct cachew_bind *b, const char *component,
                                    const struct cachew_type *type)
{
    return b->calls->write(b, component, type);
}

/* An error, for `return`. With the name of an attribute: "OPERATOR: ATTRIBUTE is VALUE: expected TEXT"; with
 * NULL: "OPERATOR: TEXT". */
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

/* A component of an element. Borrowed until `run` returns; not to be written to. */
struct cachew_tensor {
    enum cachew_dtype dtype;
    int ndim;
    const int64_t *dims; /* ndim, each known */
    const void *data;    /* C-contiguous, aligned for its dtype; CACHEW_BYTES: the string, no NUL after it */
    size_t size;         /* of data, in bytes */
};

struct cachew_row {
    const struct cachew_row_calls *calls;
    const struct cachew_tensor *in; /* by number of the input */
};

struct cachew_row_calls { /* the functions below */
    void *(*output)(struct cachew_row *row, unsigned output, const int64_t *dims, int ndim);
    void *(*bytes)(struct cachew_row *row, unsigned output, size_t size);
    int (*wanted)(struct cachew_row *row, unsigned output);
    void *(*scratch)(struct cachew_row *row, size_t size);
    void (*draw)(struct cachew_row *row, uint32_t n, uint32_t words[4]);
    int (*fail_row)(struct cachew_row *row, const char *text);
};

/* Memory for an output, all of which `run` fills: often the element's place in the batch. Aligned for its
 * dtype, not zeroed, apart from all inputs. dims: the shape, which fits the declared type; NULL: as declared,
 * where no dimension varies. A bool is a byte, 0 or 1. NULL: no memory, or not the declared shape; `return
 * CACHEW_E_MEMORY`, the library knows which. */
static inline void *cachew_row_output(struct cachew_row *row, unsigned output, const int64_t *dims, int ndim)
{
    return row->calls->output(row, output, dims, ndim);
}

/* The same for an output of CACHEW_BYTES: a string of this size. */
static inline void *cachew_row_bytes(struct cachew_row *row, unsigned output, size_t size)
{
    return row->calls->bytes(row, output, size);
}

/* Whether anything needs the output. What nothing needs may be left out; `run` is not called where that is
 * true of all outputs. */
static inline int cachew_row_wanted(struct cachew_row *row, unsigned output)
{
    return row->calls->wanted(row, output);
}

/* Memory to work in until `run` returns, within the memory budget, 64-byte aligned, not zeroed. A second call
 * takes that of the first back. NULL as for outputs. */
static inline void *cachew_row_scratch(struct cachew_row *row, size_t size)
{
    return row->calls->scratch(row, size);
}

/* Words 4n .. 4n+3 of this element's draw (docs/randomness.md), for operators that say they are random: a
 * function of the seed, the epoch, the element and the operator's name and occurrence. */
static inline void cachew_row_draw(struct cachew_row *row, uint32_t n, uint32_t words[4])
{
    row->calls->draw(row, n, words);
}

/* [0, 1) from a word, with 24 bits. */
static inline double cachew_uniform(uint32_t word)
{
    return (double)(word >> 8) / 16777216.0;
}

/* [0, n) from a word. */
static inline uint32_t cachew_integer(uint32_t word, uint32_t n)
{
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

/* This element can't be computed, and why: for `return`. on_error says what happens then. */
CACHEW_PRINTF(2, 3) static int cachew_row_fail(struct cachew_row *row, const char *format, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return row->calls->fail_row(row, text);
}

/* "bool", "uint8", ..., "bytes", for messages; cachew_dtype_name without the library. */
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
