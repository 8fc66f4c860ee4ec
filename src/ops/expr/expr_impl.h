/* Shared by the files of this folder only: the syntax tree, the program and the kernels of expressions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "data/type.h"
#include "ops/expr/expr.h"

/* Operations of tree nodes and of instructions. */
enum cw_xop {
    CW_X_ADD,
    CW_X_SUB,
    CW_X_MUL,
    CW_X_DIV,
    CW_X_FLOORDIV,
    CW_X_MOD,
    CW_X_POW,
    CW_X_BITAND,
    CW_X_BITOR,
    CW_X_BITXOR,
    CW_X_SHL,
    CW_X_SHR,
    CW_X_LT,
    CW_X_LE,
    CW_X_GT,
    CW_X_GE,
    CW_X_EQ,
    CW_X_NE,
    CW_X_MIN,
    CW_X_MAX,
    CW_X_AND,
    CW_X_OR,
    CW_X_FLOORDIV_BY,
    CW_X_MOD_BY, /* second operand: struct cw_divisor */
    CW_X_NEG,
    CW_X_POS,
    CW_X_INVERT,
    CW_X_NOT,
    CW_X_ABS,
    CW_X_ROUND,
    CW_X_FLOOR,
    CW_X_CEIL,
    CW_X_SQRT,
    CW_X_EXP,
    CW_X_LOG,
    CW_X_WHERE,
    CW_X_LENGTH,
    CW_X_SUM,
    CW_X_MEAN,
    CW_X_ISIN,
    CW_X_ISNAN,
    CW_X_HASH,
    CW_X_LOWER,
    CW_X_STRIP,
    CW_X_STARTSWITH,
    CW_X_ENDSWITH,
    CW_X_IN, /* bytes in bytes */
    CW_X_NOT_IN,
    CW_N_XOPS,
};

/* The operation as it is written in an expression: "+", "and", "sqrt". */
const char *cw_xop_name(enum cw_xop op);

/* ---- syntax tree (expr_parse.c) ---- */

typedef __int128 cw_i128;

enum cw_node_kind {
    CW_NODE_INT,
    CW_NODE_FLOAT,
    CW_NODE_BOOL,
    CW_NODE_STRING,
    CW_NODE_NAME,
    CW_NODE_UNARY,
    CW_NODE_BINARY,
    CW_NODE_COMPARE,
    CW_NODE_CALL,
    CW_NODE_CAST,
    CW_NODE_LIST,
    CW_NODE_INDEX, /* x[...]: the operands are x, then an expression or a slice for each dimension */
    CW_NODE_SLICE, /* three operands: start, stop, step */
    CW_NODE_NONE   /* a part of a slice that is not written */
};

struct cw_node {
    struct cw_node *next_made;       /* all nodes of a tree, for freeing */
    struct cw_node *first, *sibling; /* operands */
    struct cw_node *axis;            /* call: the argument axis=, or NULL */
    enum cw_node_kind kind;
    enum cw_xop op;      /* unary, binary, call */
    enum cw_xop before;  /* operand of a comparison (a < b <= c), not the first: the operator before it */
    enum cw_dtype dtype; /* cast */
    unsigned n_operands, height;
    size_t at;       /* offset in the text */
    cw_i128 integer; /* int, bool */
    double real;
    size_t length; /* bytes of text */
    char text[];   /* name or string, NUL-terminated */
};

struct cw_tree {
    const char *text;
    struct cw_node *made, *root;
};

/* Parses text, which must live as long as the tree. The caller frees *ret with cw_tree_deinit; after an error
 * *ret holds nothing. */
int cw_tree_parse(const char *text, struct cw_tree *ret, struct cw_error *err) _must_check_;
void cw_tree_deinit(struct cw_tree *t);
/* Sets err to CW_E_PIPELINE and returns it. The message is the reason (fmt) and the text around character
 * `at`, with >>> before that character: "<reason> (character 9: label % >>>== 0)". */
int cw_tree_error(const struct cw_tree *t, size_t at, struct cw_error *err, const char *fmt, ...)
    _printf_(4, 5);

/* ---- types (expr_type.c) ---- */

/* Returns the common dtype of two dtypes: numpy.result_type; for bfloat16 as docs/expressions.md says. */
enum cw_dtype cw_promote(enum cw_dtype a, enum cw_dtype b);
/* Returns the dtype of sqrt, exp and log for an operand of dtype t. */
enum cw_dtype cw_float_for(enum cw_dtype t);
bool cw_integer_fits(cw_i128 v, enum cw_dtype t);
/* Sets *ret to the shape of a NumPy broadcast of a and b, whose dimensions may be CW_VARIES and whose rank
 * may be unknown. Keeps ret's dtype. False: the shapes can't match. ret may be a or b. */
bool cw_broadcast(const struct cw_type *a, const struct cw_type *b, struct cw_type *ret);

/* A slice as written: negative numbers count from the end. */
struct cw_slice {
    int64_t start, stop, step; /* start, stop: CW_SLICE_OPEN if not written; step is not 0 */
};

#define CW_SLICE_OPEN INT64_MIN

/* Returns the number of indices that a slice takes of a dimension of size n, and sets *ret_first (may be
 * NULL) to the first one: Python's slice.indices. */
int64_t cw_slice_count(const struct cw_slice *s, int64_t n, int64_t *ret_first);
/* Changes a shape to that after CW_I_SLICE (slice not NULL) or after the dimension `axis` is gone. */
void cw_shape_cut(struct cw_type *shape, int axis, const struct cw_slice *slice);

/* ---- program ---- */

/* A register's value of dtype CW_BYTES. The bytes belong to a column, the expression's text or the block's
 * arena. */
struct cw_span {
    const void *data;
    size_t size;
};

/* Returns the bytes of a register's value. */
static inline size_t cw_value_size(enum cw_dtype dtype)
{
    return dtype == CW_BYTES ? sizeof(struct cw_span) : cw_dtype_size(dtype);
}

enum cw_level {                    /* how many values a register has */
                CW_LEVEL_CONSTANT, /* one value for the expression */
                CW_LEVEL_ROW,      /* one value per row */
                CW_LEVEL_ELEMENT,  /* an array per row */
};

enum cw_reg_kind { CW_REG_CONSTANT, CW_REG_LOAD, CW_REG_TEMP };

struct cw_reg {
    enum cw_reg_kind kind;
    enum cw_level level;
    struct cw_type type;  /* as far as it is known at compile time */
    unsigned port;        /* CW_REG_LOAD: index of the operator's input whose column is loaded */
    uint64_t constant[4]; /* CW_REG_CONSTANT: a value, or a struct cw_divisor or cw_span */
};

enum cw_instr_kind {
    CW_I_UNARY,
    CW_I_BINARY,
    CW_I_WHERE,
    CW_I_CONVERT,
    /* from here on, the instruction looks at several values of a row (expr_across.c) */
    CW_I_REDUCE,
    CW_I_LENGTH,
    CW_I_COLUMN_LENGTH,
    CW_I_TAKE,  /* a at index b of the dimension `axis` */
    CW_I_SLICE, /* of the dimension `axis`; of bytes */
    CW_I_LOWER
};

/* How the operands of a kernel are given: V is an array of n values, S a single value. */
enum cw_mode { CW_VV, CW_VS, CW_SV };

/* A kernel: a loop that computes n results. Returns non-zero if an operand was not allowed (zero divisor,
 * negative exponent). */
typedef unsigned (*cw_kernel)(void *restrict d, const void *a, const void *b, size_t n, enum cw_mode mode);

struct cw_instr {
    enum cw_instr_kind kind;
    enum cw_xop op;
    enum cw_dtype dtype; /* in which the kernel computes; convert: the source dtype */
    enum cw_level level; /* of the result */
    cw_kernel kernel;
    /* Indexes of registers. In CW_I_COLUMN_LENGTH, which reads a column of arrays directly, a is the index of
     * an input (port) of the operator. */
    unsigned dst, a, b, c;
    int axis; /* take, slice; reduce: -1: over all values */
    struct cw_slice slice;
};

struct cw_expr {
    char *text;
    struct cw_type type;
    struct cw_tree tree; /* owns the strings */
    struct cw_reg *regs;
    unsigned n_regs;
    struct cw_instr *instrs;
    unsigned n_instrs;
    unsigned result;    /* register */
    bool varies;        /* the shape of a register differs from row to row */
    bool crosses;       /* an instruction looks at several elements of a row (reduction, length) */
    bool canonical_nan; /* the result is floating and computed, so its NaNs are made canonical */
};

/* A divisor that is a constant of the expression. The kernels replace the division by a multiplication with
 * `magic` and a shift. The quotient is exact for all dividends, and rounded down. */
struct cw_divisor {
    uint64_t magic;
    int64_t value;
    uint32_t shift;
};
/* d is at least 3 and not a power of two. unsigned64: the dividends are uint64. Otherwise they are of a
 * smaller unsigned type or of a signed type, so that they have at most 63 bits besides the sign. */
struct cw_divisor cw_divisor_make(uint64_t d, bool unsigned64);

/* ---- kernels (expr_kernels.c, expr_math.c, expr_bytes.c) ---- */

#define CW_DTYPE_MIXED CW_N_DTYPES /* comparisons of uint64 (first) with int64 (second) */

cw_kernel cw_kernel_find(enum cw_xop op, unsigned dtype);       /* NULL: not defined */
cw_kernel cw_kernel_arithmetic(enum cw_xop op, unsigned dtype); /* only the kernels of expr_kernels.c */
cw_kernel cw_kernel_bytes(enum cw_xop op, unsigned dtype);      /* only the kernels of expr_bytes.c */
/* Sets *d to the minimum, maximum, sum or mean (op) of n values. Minimum and maximum: n >= 1; sum: dtype is
 * int64, uint64 or float64; mean: float64. */
void cw_kernel_reduce(enum cw_xop op, enum cw_dtype dtype, void *d, const void *a, size_t n);
/* d[i] = c[i] ? a[i] : b[i] for n values of `size` bytes. Each step is 1 (an array) or 0 (one value for all
 * i). */
void cw_kernel_where(size_t size, void *restrict d, const uint8_t *c, const void *a, const void *b, size_t n,
                     int c_step, int a_step, int b_step);
/* Replaces every NaN among n values by the positive quiet NaN. */
void cw_kernel_canonical_nan(enum cw_dtype dtype, void *d, size_t n);
