/* Shared by the operators that run Python functions: their attributes, the bound function, and calls of it. A
 * function runs in host processes: child processes with a Python interpreter that exchange rows with this
 * process through shared memory. */
#pragma once
#include "host/exchange.h"
#include "host/host.h"
#include "pipeline/op.h"

/* One in this many records (map_batches: batches) is computed twice, to find functions that are not
 * deterministic.
 */
#define CW_FUNCTION_CHECK_ONE_IN 1000

struct cw_function {
    struct cw_host_function host;  /* `cancelled` is not set: each call has its own (cw_function_call) */
    struct cw_exchange_column *in; /* the inputs, in byte order of their names; owned by the op */
    unsigned n_in;
    const char *name; /* of the function, for messages */
    bool rng, deterministic, async;
    bool details; /* hosts tell details of elements that fail; false: such elements are skipped */
};

/* The attributes that all these operators have; the operator's own attributes and a {0} follow them. effort:
 * the attribute does not change results, so it is not part of a pipeline's fingerprint. */
#define CW_FUNCTION_ATTRS \
    {.name = "function", \
     .kind = CW_ATTR_FUNCTION, \
     .doc = "the Python function, which the Python package writes as {name, identity, payload, modules, " \
            "path, rng}"}, \
        {.name = "timeout_s", \
         .kind = CW_ATTR_FLOAT, \
         .def = "300", \
         .min = 0.001, \
         .max = 1e6, \
         .effort = true, \
         .doc = "longest time for one call, in seconds; then the host process is ended, and the call is " \
                "made again"}, \
        {.name = "host_memory", \
         .kind = CW_ATTR_INT, \
         .def = "0", \
         .min = 0, \
         .max = 0x1p62, \
         .effort = true, \
         .doc = "most resident memory of a host process, in bytes; 0: half of the machine's memory, " \
                "divided by its number of CPUs"}, \
        {.name = "deterministic", \
         .kind = CW_ATTR_BOOL, \
         .def = "true", \
         .doc = "false: the function's results differ on purpose; nothing after it is cached, and no " \
                "element is computed twice to check it"}
/* for operators that call a function for each element */
#define CW_FUNCTION_CONCURRENCY \
    {.name = "concurrency", \
     .kind = CW_ATTR_INT, \
     .def = "0", \
     .min = 0, \
     .max = 4096, \
     .effort = true, \
     .doc = "for a function that is `async def`: number of elements that a host process computes at the " \
            "same time; 0: found by measuring, at most 256"}
#define CW_FUNCTION_OUTPUTS \
    {.name = "outputs", \
     .kind = CW_ATTR_OBJECT, \
     .doc = \
         "the components that the function returns: {name: {dtype, shape, default}}; in a shape, null is " \
         "a dimension that varies; if the shape itself is null, the number of dimensions varies; default " \
         "(none) fills the value where the function returns None"}

/* cw_op_desc.bind: reads the attributes, and declares all components that arrive as inputs. If the operator
 * has `outputs`, they replace all components; a filter keeps the components. */
int cw_function_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) _must_check_;
/* cw_op_desc.free_state */
void cw_function_free(void *state);

/* One request to a host process. It is the first member of a struct of the caller. The functions write and
 * take cast their argument c to that struct, which holds what they need. */
struct cw_function_call {
    struct cw_host_function host; /* `cancelled` is set by the caller, for this call */
    size_t size;                  /* of the request, in bytes */
    /* writes the request to `to`, `size` bytes */
    void (*write)(const struct cw_function_call *c, uint8_t *to);
    /* checks the host's answer and uses it; < 0 ends the call with that error */
    int (*take)(struct cw_function_call *c, const uint8_t *answer, size_t size, struct cw_error *err);
};

/* Makes the call in *host. If *host is NULL, gets a host first and stores it there. Returns 1 if the host
 * died: *death says why, and *host is NULL. Otherwise *host belongs to the caller, who releases it (after an
 * error it may be NULL). What `take` used may lie in the host's memory until the host is called again or
 * released. */
int cw_function_call(struct cw_function_call *c, struct cw_host **host, struct cw_host_death *death,
                     struct cw_error *err) _must_check_;
/* Repeats cw_function_call, in a fresh host each time, until a host answers. tries: the number of hosts that
 * died during this request, before the call; hosts that die during the call are added. Returns 1 if hosts
 * died too often; ret_why is then "its host process ... (n attempts)". CW_E_MEMORY: hosts were killed from
 * outside too often. */
int cw_function_insist(struct cw_function_call *c, struct cw_host **host, struct cw_host_tries *tries,
                       char ret_why[500], struct cw_error *err) _must_check_;

/* Sets *ret to the list [[row, message, detail or null], ...] that came with an answer: a new reference, NULL
 * if the list is empty. */
int cw_function_errors(const struct cw_op *op, const struct cw_exchange_answer *a, json_t **ret,
                       struct cw_error *err) _must_check_;

/* Sets *ret to the value of output k in one row of an answer. CW_E_BUG: the value does not have the declared
 * type. */
int cw_function_value(const struct cw_op *op, const struct cw_exchange_answer *a, unsigned k, size_t row,
                      struct cw_tensor *ret, struct cw_error *err) _must_check_;

/* Takes the result of one row of the block: `elements` elements (1 except for flat_map), the first of which
 * is row `first` of the answer. kept: false if a filter drops the row. Called for each row that was computed,
 * in any order. Values point into shared memory and must be copied. < 0 ends the run. */
typedef int (*cw_function_row)(void *arg, const struct cw_op *op, struct cw_block *block,
                               const struct cw_exchange_answer *a, size_t row, size_t first,
                               uint32_t elements, bool kept, struct cw_error *err);

/* Runs the function on all rows of the block that are CW_ROW_OK. A row fails if the function raises, or if
 * its host dies at each attempt. */
int cw_function_run(const struct cw_op *op, struct cw_block *block, cw_function_row take_row, void *arg,
                    struct cw_error *err) _must_check_;
/* cw_op_desc.run of operators that give one element for each: runs the function and keeps its outputs. */
int cw_function_map_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err) _must_check_;
