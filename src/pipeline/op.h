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
    CW_ATTR_OBJECT, /* JSON object, checked by the operator's bind */
    CW_ATTR_CHAINS, /* inputs of concat and zip */
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
    bool scalar_too;            /* lists: a single value stands for a list of one */
    bool effort;     /* says how hard to try, not what results: not part of a pipeline's fingerprint */
    bool path;       /* names files: relative to the pipeline's base directory */
    const char *doc; /* one line, with units */
};

/* An attribute of every operator, beside those of its table: true pins this one (cw_op_effects.pinned). */
#define CW_KEEP_POSITION "keep_position"

struct cw_output_def { /* a component of one value */
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

/* What the result for an element depends on, beside the element itself. */
enum cw_op_state {
    CW_STATE_NONE,
    CW_STATE_COUNTED, /* the number of elements that arrived before it (of its key) */
    /* the other elements of its window of positions; of one that runs: attribute `window` has their number */
    CW_STATE_WINDOWED,
    CW_STATE_SEQUENTIAL, /* all elements before it */
};

/* How the operator makes the component that it writes from the one that it reads. */
enum cw_op_action {
    CW_ACTS_OPAQUE,        /* unknown: no law applies */
    CW_ACTS_PIXELWISE,     /* each value by itself, given its channel: values change, places do not */
    CW_ACTS_CAST,          /* each value by itself, whatever its channel */
    CW_ACTS_SPATIAL,       /* places change, values do not: crops, flips */
    CW_ACTS_NEIGHBOURHOOD, /* each value from several neighbours: resizing */
};

struct cw_op_effects {
    enum cw_op_count count;
    enum cw_op_state state;
    enum cw_op_action action;
    bool random; /* draws, whatever its attributes: its values depend on (seed, epoch, element) */
    /* Gives components other names, or removes some, and computes nothing. Of other operators the ports, once
     * bound, are all that they read and write. */
    bool renames;
    bool pinned; /* stays where it is written: no other operator moves across it */
};

/* Whether elements may be kept at this operator, and read back instead of computed. */
enum cw_op_cache {
    CW_CACHE_NEVER,
    CW_CACHE_AUTO,   /* where it pays */
    CW_CACHE_FORCED, /* wherever there is a cache; chosen before those where it pays */
};

struct cw_op;
struct cw_bind;
struct cw_source;
struct cw_source_env;
struct cw_index_map;  /* pipeline/roles.h */
struct cw_batcher;    /* pipeline/roles.h */
struct cw_image_role; /* ops/image/image_role.h: what makes an image operator fusable */

struct cw_batch_result {                       /* what an operator on batches gave: as many rows as came */
    struct cw_tensor columns[CW_OP_MAX_PORTS]; /* by port: size is of all rows, dims those of one */
    const uint64_t *offsets[CW_OP_MAX_PORTS];  /* by port: of strings (n + 1); NULL for numbers */
    void *owner;                               /* of what they point into, until batch_release */
    char note[400];                            /* a warning for the log; empty: none */
};

struct cw_op_desc {
    const char *name;
    const char *summary; /* one line */
    const char *doc;     /* a paragraph, may be NULL */
    /* ends errors about its attributes: for users of libraries that call it differently; NULL: none */
    const char *hint;
    enum cw_op_kind kind;
    struct cw_op_effects effects;
    enum cw_op_cache cache_point; /* unless CW_CACHE_NEVER it computes nothing */
    bool here_only;               /* source: its data are in the memory of this process and nowhere else */
    bool function; /* runs a Python function: needs element ids, and stands before the batcher */
    const struct cw_index_map *index; /* index operators */
    const struct cw_batcher *batcher; /* batchers */
    /* with these attributes it may end the process that runs it; NULL: never */
    bool (*ends_process)(const json_t *attrs);
    /* "NAME VERSION" of the plug-in it comes from, part of fingerprints; NULL: built in */
    const char *plugin;
    const struct cw_attr_def *attrs; /* ends with a NULL name */
    /* components that it always gives, declared before bind is called; ends with a NULL name. NULL: none */
    const struct cw_output_def *outputs;
    /* Checks what the table can't, declares reads and writes, sets op->state. Index operators and batchers
     * may leave it NULL. */
    int (*bind)(struct cw_bind *b, struct cw_op *op, struct cw_error *err);
    /* Map, filter: computes a block. A row that can't be computed: cw_block_fail; a result < 0 ends the whole
     * run. Rows whose status is not CW_ROW_OK are to be left alone (computing them is allowed where it is
     * cheaper and can't fail). NULL: nothing to do at run time. */
    int (*run)(const struct cw_op *op, struct cw_block *block, struct cw_error *err);
    /* Operators on batches: makes components of all outputs. key: for draws of this batch. */
    int (*batch)(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                 int (*cancelled)(void *), void *cancel_arg, struct cw_batch_result *ret,
                 struct cw_error *err);
    void (*batch_release)(struct cw_batch_result *result);
    void (*free_state)(void *state);
    /* Source: opens the data set (index included). */
    int (*open)(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                struct cw_error *err);
    const struct cw_image_role *image; /* NULL: not an image operator that fuses */
};

/* Whether it is a source whose records come one after the other, their count unknown before the last. */
static inline bool cw_op_is_stream(const struct cw_op_desc *desc)
{
    return desc->kind == CW_OP_SOURCE && desc->effects.state == CW_STATE_SEQUENTIAL;
}

struct cw_port {
    unsigned value; /* value number: index of its column */
    struct cw_type type;
    bool live; /* outputs: an operator or the batch needs it. Otherwise it is not computed, and can't make a
                  record fail */
};

/* An operator in a pipeline, bound. Immutable after compile. */
struct cw_op {
    const struct cw_op_desc *desc;
    const json_t *attrs; /* complete: defaults filled in; owned by the node */
    unsigned occurrence; /* of this name in the pipeline as written */
    unsigned position;   /* in the pipeline as written, depth first */
    unsigned index;      /* into block->keys and the profile */
    bool live;           /* it runs: one of its outputs is live, or it filters or acts */
    unsigned n_in, n_out;
    struct cw_port in[CW_OP_MAX_PORTS], out[CW_OP_MAX_PORTS];
    void *state;
};

/* The name of a kind, as `cachew ops` prints it. */
const char *cw_op_kind_name(enum cw_op_kind kind);
/* Whether its results depend on (seed, epoch, element): functions draw where they request a generator. */
bool cw_op_draws(const struct cw_op *op);

/* ---- for bind ---- */

/* The component's type; declares that the operator reads it. Port number >= 0, or a negative status: unknown
 * component (the error lists the ones there are, and the nearest). */
int cw_bind_read(struct cw_bind *b, const char *component, struct cw_type *ret_type, struct cw_error *err);
/* Declares an output under a name (replaces a component of that name; NULL: a value without a name). Port
 * number >= 0 or a negative status. */
int cw_bind_write(struct cw_bind *b, const char *component, const struct cw_type *type, struct cw_error *err);
/* Declares the outputs of a table, port 0 and the following ones; NULL: none. */
int cw_bind_outputs(struct cw_bind *b, const struct cw_output_def *outputs,
                    struct cw_error *err) _must_check_;
/* Components under other names, or no longer there, without computing: select, drop and rename are made of
 * these. */
int cw_bind_remove(struct cw_bind *b, const char *component, struct cw_error *err);
int cw_bind_rename(struct cw_bind *b, const char *old_name, const char *new_name, struct cw_error *err);
/* Components present, in byte order of their names. */
size_t cw_bind_count(const struct cw_bind *b);
const char *cw_bind_name(const struct cw_bind *b, size_t i, struct cw_type *ret_type);
/* The pipeline: it lives as long as the operator. */
const struct cw_pipeline *cw_bind_pipeline(const struct cw_bind *b);
/* Rows needed by a crop that directly follows as written (decode_image): the bound op after this one in the
 * chain, or NULL. It is bound later: only desc and attrs may be used. */
const struct cw_op *cw_bind_next(const struct cw_bind *b);

/* ---- attributes of a checked operator: the value is there and has the declared kind ---- */
int64_t cw_attr_int(const struct cw_op *op, const char *name);
double cw_attr_float(const struct cw_op *op, const char *name);
bool cw_attr_bool(const struct cw_op *op, const char *name);
const char *cw_attr_string(const struct cw_op *op, const char *name);
enum cw_dtype cw_attr_dtype(const struct cw_op *op, const char *name);
const json_t *cw_attr_json(const struct cw_op *op, const char *name);
/* Length of a list attribute (1 for a scalar that stands for a list), and its values. */
size_t cw_attr_len(const struct cw_op *op, const char *name);
double cw_attr_float_at(const struct cw_op *op, const char *name, size_t i);
int64_t cw_attr_int_at(const struct cw_op *op, const char *name, size_t i);
const char *cw_attr_string_at(const struct cw_op *op, const char *name, size_t i);
/* CW_E_PIPELINE with operator, attribute, its value and what is expected: "OP: ATTRIBUTE is VALUE: expected
 * ..." */
int cw_attr_error(const struct cw_op *op, const char *attribute, struct cw_error *err,
                  const char *expected_fmt, ...) _printf_(4, 5);

/* ---- for run ---- */
static inline struct cw_tensor cw_in(const struct cw_op *op, const struct cw_block *b, unsigned port,
                                     size_t row)
{
    return cw_block_row(b, op->in[port].value, row);
}
