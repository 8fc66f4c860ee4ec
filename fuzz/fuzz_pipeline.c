/* Fuzzes pipeline files: parses and compiles the bytes with all operators, without reading data. A refusal
 * must have a message. */
#include <stdlib.h>
#include <string.h>

#include "ops/table.h"
#include "optimize/optimize.h"
#include "optimize/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_error err = {0};
    struct cw_pipeline *p = NULL;
    struct cw_compiled *c = NULL;
    int r = cw_pipeline_parse(cw_ops(), (const char *)data, size, "/nonexistent", &p, &err);
    if (r >= 0)
        r = cw_order_compile(p, true, &c, &err);
    if (r < 0 && (r != CW_E_PIPELINE || err.status != r || !err.message[0]))
        abort();
    for (unsigned i = 0; r >= 0 && i < c->n_programs; i++) {
        struct cw_optimized *o;
        if (cw_optimize(&c->programs[i], c->n_limits, p->n_ops, true, NULL, &o, &err) < 0)
            abort();
        cw_optimized_free(o);
    }
    cw_compiled_free(c);
    cw_pipeline_unref(p);
    return 0;
}
