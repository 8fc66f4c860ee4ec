/* What operators that run Python functions share: the attributes, the function as bound, and running it on
 * rows in host processes. */
#pragma once
#include "host/exchange.h"
#include "host/host.h"
#include "pipeline/op.h"

/* One record (map_batches: batch) in CW_FUNCTION_CHECK_ONE_IN is computed twice, to find functions that are
 * not deterministic.
 */
#define CW_FUNCTION_CHECK_ONE_IN 1000

struct cw_function {
    struct cw_host_function host;  /* without cancellation: that is the block's */
    struct cw_exchange_column *in; /* in byte order of their names; owned by the op, like the rest */
    unsigned n_in;
    const char *name; /* of the function, for messages */
    bool rng, deterministic;
};

/* Attributes that all of them have; to be followed by their own and a {0}. */
#define CW_FUNCTION_ATTRS \
    {.name = "function", \
     .kind = CW_ATTR_FUNCTION, \
     .doc = "the Python function, as the Python package writes it: {name, identity, payload, modules, " \
            "path, rng}"}, \
        {.name = "timeout_s", \
         .kind = CW_ATTR_FLOAT, \
         .def = "300", \
         .min = 0.001, \
         .max = 1e6, \
         .effort = true, \
         .doc = "longest time for one call, in seconds; after that its host process is ended and the " \
                "call is made again"}, \
        {.name = "host_memory", \
         .kind = CW_ATTR_INT, \
         .def = "0", \
         .min = 0, \
         .max = 0x1p62, \
         .effort = true, \
         .doc = "most resident memory of a host process, in bytes; 0: half of the machine's memory " \
                "divided by its number of CPUs"}, \
        {.name = "deterministic", \
         .kind = CW_ATTR_BOOL, \
         .def = "true", \
         .doc = "false: the function gives different results each time on purpose; nothing after it is " \
                "cached, and no element is computed twice to compare the results"}
#define CW_FUNCTION_OUTPUTS \
    {.name = "outputs", \
     .kind = CW_ATTR_OBJECT, \
     .doc = "{name: {dtype, shape}}: the components that the function returns; in a shape, null is a " \
            "dimension that varies; null instead of a shape: the number of dimensions varies"}

/* Reads all components that there are and the attributes; outputs, where the operator has them, replace all
 * components (filters keep them). cw_op_desc.bind */
int cw_function_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
void cw_function_free(void *state);

/* One request and what becomes of it. To be embedded: write and take find what they need around it. */
struct cw_function_call {
    struct cw_host_function host; /* with cancellation */
    size_t size;                  /* of the request */
    void (*write)(const struct cw_function_call *c, uint8_t *to);
    /* what the host wrote: checked, then used */
    int (*take)(struct cw_function_call *c, const uint8_t *answer, size_t size, struct cw_error *err);
};

/* Makes the call in *host, or where that is NULL in one that it gets and sets *host to. 1: the host died,
 * *death says why, and *host is NULL. Else *host is the caller's (after an error NULL, or one that lives):
 * what was taken may lie in its memory until it is called again or released. */
int cw_function_call(struct cw_function_call *c, struct cw_host **host, struct cw_host_death *death,
                     struct cw_error *err) _must_check_;
/* The same until it is answered, in a fresh host each time. 1: hosts died too often, tries counting those
 * before; *ret_why is "its host process ... (n attempts)". CW_E_MEMORY: they were killed from outside too
 * often. */
int cw_function_insist(struct cw_function_call *c, struct cw_host **host, struct cw_host_tries *tries,
                       char ret_why[500], struct cw_error *err) _must_check_;

/* The list [[row, message], ...] that came with an answer; new reference, NULL where it is empty. */
int cw_function_errors(const struct cw_op *op, const struct cw_exchange_answer *a, json_t **ret,
                       struct cw_error *err) _must_check_;

/* One row's value of output k, in an answer. CW_E_BUG: the host did not write one of the type. */
int cw_function_value(const struct cw_op *op, const struct cw_exchange_answer *a, unsigned k, size_t row,
                      struct cw_tensor *ret, struct cw_error *err) _must_check_;

/* What a row gave: `elements` of them (1 but for flat_map), the first of which is row `first` of the answer.
 * Called for each row that was computed, in any order; values point into shared memory. < 0 ends the run. */
typedef int (*cw_function_row)(void *arg, const struct cw_op *op, struct cw_block *block,
                               const struct cw_exchange_answer *a, size_t row, size_t first,
                               uint32_t elements, bool kept, struct cw_error *err);

/* Runs the function on all rows of the block that are CW_ROW_OK. Rows that it fails on, or that end their
 * host each time, are failed. */
int cw_function_run(const struct cw_op *op, struct cw_block *block, cw_function_row take_row, void *arg,
                    struct cw_error *err) _must_check_;
