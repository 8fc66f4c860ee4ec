/*
 * The descriptor of an operator. Attribute checks, `cachew ops`, the reference page, the fuzzer's grammar,
 * the compiler's rules and the laws of order all come from it; nothing outside ops/ knows an operator by
 * name.
 *
 * Life of an operator: its attributes are checked against `attrs`. `bind` gets the types of the components
 * that arrive, declares what the operator reads and writes, and makes its state, which is immutable from then
 * on and shared by all threads. `run` computes one block.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "data/batch.h"
#include "data/block.h"
#include "data/type.h"

enum cw_attr_kind {
    CW_ATTR_INT,
    CW_ATTR_FLOAT,
    CW_ATTR_BOOL,
    CW_ATTR_STRING,
    CW_ATTR_DTYPE,
    CW_ATTR_EXPR,
    CW_ATTR_COMPONENT, /* name of one component */
    /* JSON lists; min/max bound each value, len_min/len_max the length */
    CW_ATTR_INTS,
    CW_ATTR_FLOATS,
    CW_ATTR_STRINGS,
    CW_ATTR_OBJECT, /* JSON object, checked by the operator's bind; or one of `choices` */
    CW_ATTR_CHAINS, /* inputs of concat, mix and zip */
    /* JSON list of operators without a source, or a list of such lists; checked by the operator's bind */
    CW_ATTR_OPERATORS,
    /* a Python function: {name, identity, payload, modules, path, rng}; payload, modules and path are not
       part of a pipeline's fingerprint */
    CW_ATTR_FUNCTION,
};

#define CW_OP_MAX_PORTS 64

struct cw_attr_def {
    const char *name;
    enum cw_attr_kind kind;
    const char *def;            /* default as JSON text; NULL: required */
    double min, max;            /* numbers; both 0: no bound */
    int len_min, len_max;       /* lists; both 0: any length */
    const char *const *choices; /* strings: NULL-terminated, or NULL */
    /* lists: a single value may be given instead of a list with one value; objects: a number instead */
    bool scalar_too;
    /* true: it changes how hard the operator tries, not its results, so it is not part of a pipeline's
     * fingerprint */
    bool effort;
    bool per_input; /* lists: one value for each input of the operator */
    bool path;      /* the value names files, relative to the pipeline's base directory */
    /* The value is the path of one file, and results depend on its content: the fingerprint has a hash of the
     * content instead of the path (pipeline/content.h). Set together with `path`. An empty value names no
     * file. */
    bool content;
    const char *doc; /* one line, with units */
};

/* An attribute that every operator has in addition to those of its table: true pins the operator
 * (cw_op_effects.pinned). */
#define CW_KEEP_POSITION "keep_position"

struct cw_output_def { /* a component that is a single value (a scalar) */
    const char *name;
    enum cw_dtype dtype;
};

enum cw_op_kind {
    CW_OP_SOURCE,
    CW_OP_MAP,
    CW_OP_FILTER,
    CW_OP_FLAT_MAP,
    CW_OP_INDEX,
    CW_OP_BATCHER,
    CW_OP_BATCH_MAP
};

/* ---- effects: what the compiler and the laws of optimize/ need to know of an operator ---- */

/* The number of elements that the operator gives. */
enum cw_op_count {
    CW_COUNT_SAME,   /* one for each element that arrives */
    CW_COUNT_KNOWN,  /* computed from the numbers that arrive, or from an index, without running anything */
    CW_COUNT_FEWER,  /* none or one for each element, known after running it */
    CW_COUNT_ANY,    /* any number for each element, known after running it; a source: known at its end */
    CW_COUNT_GROUPS, /* one batch for several elements */
};

/* What the result for an element depends on, in addition to the element itself. */
enum cw_op_state {
    CW_STATE_NONE,
    CW_STATE_COUNTED, /* depends on the number of elements (of its key) that arrived before it */
    /* depends on the other elements of its window of positions; an operator that runs has their number in
     * attribute `window` */
    CW_STATE_WINDOWED,
    CW_STATE_SEQUENTIAL, /* depends on all elements before it */
};

/* How the operator makes the component that it writes from the one that it reads. */
enum cw_op_action {
    CW_ACTS_OPAQUE,        /* unknown: no law applies */
    CW_ACTS_PIXELWISE,     /* each value by itself, given its channel: values change, places do not */
    CW_ACTS_CAST,          /* each value by itself, whatever its channel */
    CW_ACTS_PIXEL,         /* each pixel by itself, from all of its channels; their number may change */
    CW_ACTS_SPATIAL,       /* pixels change places or are left out, values do not change: crops, flips */
    CW_ACTS_LAYOUT,        /* only the shape changes, or the order of the values */
    CW_ACTS_COLOUR,        /* each pixel from itself and from all pixels together: contrast */
    CW_ACTS_NEIGHBOURHOOD, /* each value from several neighbours: resizing */
    CW_ACTS_WARP,          /* as before, from neighbours of another place; a fill value outside: rotations */
};

struct cw_op_effects {
    enum cw_op_count count;
    enum cw_op_state state;
    enum cw_op_action action;
    bool random; /* draws (unless cw_op_desc.draws says no): its values depend on (seed, epoch, element) */
    /* Only renames or removes components, and computes nothing. The bound ports of any other operator are all
     * that it reads and writes. */
    bool renames;
    bool projects; /* in addition: it only removes components */
    bool pinned;   /* stays where it is written: no other operator moves across it */
};

/* Whether elements may be kept at this operator, and read back instead of computed. */
enum cw_op_cache {
    CW_CACHE_NEVER,
    CW_CACHE_AUTO,   /* where caching saves time */
    CW_CACHE_FORCED, /* wherever a cache exists; preferred to CW_CACHE_AUTO */
};

struct cw_op;
struct cw_bind;
struct cw_source;
struct cw_source_env;
struct cw_index_map;  /* pipeline/roles.h */
struct cw_batcher;    /* pipeline/roles.h */
struct cw_image_role; /* ops/image/image_role.h: what makes an image operator fusable */

/* the result of an operator on batches: one row for each row of its input */
struct cw_batch_result {
    /* by port: size is that of all rows together, dims are those of one row */
    struct cw_tensor columns[CW_OP_MAX_PORTS];
    /* by port: where each string begins, and the end (n + 1 offsets); NULL for numbers */
    const uint64_t *offsets[CW_OP_MAX_PORTS];
    /* owns the memory that the columns point into, until batch_release */
    void *owner;
    char note[400]; /* a warning for the log; empty: none */
};

struct cw_op_desc {
    const char *name;
    const char *summary; /* one line */
    const char *doc;     /* a paragraph, may be NULL */
    /* appended to errors about attributes, for users of libraries that call the operator differently; NULL:
     * none */
    const char *hint;
    enum cw_op_kind kind;
    struct cw_op_effects effects;
    enum cw_op_cache cache_point; /* unless it is CW_CACHE_NEVER, the operator computes nothing */
    bool here_only;               /* a source whose data exist only in the memory of this process */
    /* its elements are made of the rows of batches: a batcher before it is left out (compile.c) */
    bool takes_batches;
    bool for_tests; /* only tests of Cachew and of programs that use it need the operator */
    bool function;  /* it calls a Python function: it needs element ids, and must come before the batcher */
    const struct cw_index_map *index; /* index operators */
    const struct cw_batcher *batcher; /* batchers */
    /* returns whether a random operator (effects.random) draws with these attributes, in which `p` is less
     * than 1; NULL: it always does */
    bool (*draws)(const json_t *attrs);
    /* returns whether the operator, with these attributes, may end the process that runs it; NULL: it never
     * does */
    bool (*ends_process)(const json_t *attrs);
    /* "NAME VERSION" of the plug-in it comes from, part of fingerprints; NULL: built in */
    const char *plugin;
    const struct cw_attr_def *attrs; /* ends with a NULL name */
    /* components that it always gives; they are declared before bind is called. Ends with a NULL name. NULL:
     * none */
    const struct cw_output_def *outputs;
    /* Checks what the table can't, declares reads and writes, sets op->state. Index operators and batchers
     * may leave it NULL. */
    int (*bind)(struct cw_bind *b, struct cw_op *op, struct cw_error *err);
    /* Map, filter: computes a block. For a row that can't be computed it calls cw_block_fail; a result < 0
     * ends the whole run. It leaves rows alone whose status is not CW_ROW_OK, unless computing them is
     * cheaper and can't fail. NULL: nothing to do at run time. */
    int (*run)(const struct cw_op *op, struct cw_block *block, struct cw_error *err);
    /* Operators on batches: makes the components of all output ports; the others of the batch stay. key: seed
     * for random draws of this batch. `cancelled` returns non-zero when the call should stop. */
    int (*batch)(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                 int (*cancelled)(void *), void *cancel_arg, struct cw_batch_result *ret,
                 struct cw_error *err);
    void (*batch_release)(struct cw_batch_result *result);
    void (*free_state)(void *state);
    /* Source: opens the data set and its index. */
    int (*open)(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                struct cw_error *err);
    const struct cw_image_role *image; /* NULL: not an image operator that fuses */
};

/* Returns whether the operator is a stream: a source whose records come one after the other, and whose number
 * of records is not known before the last. */
static inline bool cw_op_is_stream(const struct cw_op_desc *desc)
{
    return desc->kind == CW_OP_SOURCE && desc->effects.state == CW_STATE_SEQUENTIAL;
}

struct cw_port {
    unsigned value; /* value number: index of its column */
    uint64_t name;  /* hash of the component's name; 0: the value has no name */
    struct cw_type type;
    bool live; /* outputs: an operator or the batch needs it. Otherwise it is not computed, and can't make a
                  record fail */
};

/* An operator in a pipeline, bound. Immutable after compile. */
struct cw_op {
    const struct cw_op_desc *desc;
    const json_t *attrs; /* complete: defaults filled in; owned by the node */
    unsigned occurrence; /* how many operators of this name come before it in the pipeline as written */
    unsigned position;   /* number in the pipeline as run, depth first, from 0 */
    unsigned index;      /* into block->keys and the profile */
    /* it runs, because one of its outputs is live, or because it filters or has an effect */
    bool live;
    /* at most so many rows of a block are computed at the same time, because they wait; 0: one after the
     * other. Set by bind */
    unsigned together;
    unsigned n_in, n_out;
    struct cw_port in[CW_OP_MAX_PORTS], out[CW_OP_MAX_PORTS];
    void *state;
};

/* Returns the name of a kind, as `cachew ops` prints it. */
const char *cw_op_kind_name(enum cw_op_kind kind);
/* Returns whether the operator's results depend on (seed, epoch, element). A Python function draws if it
 * takes a generator (rng). */
bool cw_op_draws(const struct cw_op *op);

/* ---- for bind ---- */

/* Declares that the operator reads the component, and sets *ret_type (may be NULL) to its type. Returns the
 * port number (>= 0), or a negative status if the component does not exist; the error then lists the
 * components and names the nearest. */
int cw_bind_read(struct cw_bind *b, const char *component, struct cw_type *ret_type, struct cw_error *err);
/* Declares an output with a name; it replaces a component of that name. NULL: a value without a name. Returns
 * the port number (>= 0) or a negative status. */
int cw_bind_write(struct cw_bind *b, const char *component, const struct cw_type *type, struct cw_error *err);
/* Declares the outputs of a table, port 0 and the following ones; NULL: none. */
int cw_bind_outputs(struct cw_bind *b, const struct cw_output_def *outputs,
                    struct cw_error *err) _must_check_;
/* Remove or rename a component without computing anything: select, drop and rename use these two. */
int cw_bind_remove(struct cw_bind *b, const char *component, struct cw_error *err);
int cw_bind_rename(struct cw_bind *b, const char *old_name, const char *new_name, struct cw_error *err);
/* The number of components, and component i in byte order of their names. */
size_t cw_bind_count(const struct cw_bind *b);
const char *cw_bind_name(const struct cw_bind *b, size_t i, struct cw_type *ret_type);
/* Returns the pipeline, which lives as long as the operator. */
const struct cw_pipeline *cw_bind_pipeline(const struct cw_bind *b);
/* Returns the operator that comes directly after this one in the chain as written, or NULL. decode_image uses
 * it to decode only the rows that a crop needs. The operator is bound later: only desc and attrs may be used.
 */
const struct cw_op *cw_bind_next(const struct cw_bind *b);

/* ---- attributes of a checked operator: the value is there and has the declared kind ---- */
int64_t cw_attr_int(const struct cw_op *op, const char *name);
double cw_attr_float(const struct cw_op *op, const char *name);
bool cw_attr_bool(const struct cw_op *op, const char *name);
const char *cw_attr_string(const struct cw_op *op, const char *name);
enum cw_dtype cw_attr_dtype(const struct cw_op *op, const char *name);
const json_t *cw_attr_json(const struct cw_op *op, const char *name);
/* Returns the length of a list attribute (1 for a single value given instead of a list). */
size_t cw_attr_len(const struct cw_op *op, const char *name);
double cw_attr_float_at(const struct cw_op *op, const char *name, size_t i);
int64_t cw_attr_int_at(const struct cw_op *op, const char *name, size_t i);
const char *cw_attr_string_at(const struct cw_op *op, const char *name, size_t i);
/* Sets the error "OP: ATTRIBUTE is VALUE: expected ...", with these four as facts, and returns
 * CW_E_PIPELINE. */
int cw_attr_error(const struct cw_op *op, const char *attribute, struct cw_error *err,
                  const char *expected_fmt, ...) _printf_(4, 5);

/* ---- for run ---- */
static inline struct cw_tensor cw_in(const struct cw_op *op, const struct cw_block *b, unsigned port,
                                     size_t row)
{
    return cw_block_row(b, op->in[port].value, row);
}
