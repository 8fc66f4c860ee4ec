/* Fuzzes workload files of the simulator. A refusal must have a message; an accepted workload, if it is
 * small, is simulated.
 */
#include <stdlib.h>

#include "sim/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_small(const struct cw_workload *w)
{
    double batches = 0;
    for (size_t i = 0; i < w->n_jobs; i++)
        batches += w->jobs[i].epochs * w->jobs[i].batches_per_epoch *
                   (1 + (double)w->jobs[i].n_cache_points) * (double)w->jobs[i].n_phases;
    double vectors = 1;
    for (size_t i = 0; i < w->n_pools; i++)
        vectors *= w->pools[i].max_workers + 1;
    return batches < 100 && w->n_jobs < 4 && vectors < 200;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_error err = {0};
    struct cw_workload w;
    int r = cw_workload_parse((const char *)data, size, &w, &err);
    if (r < 0 && (r != CW_E_PIPELINE || err.status != r || !err.message[0]))
        abort();
    if (r == 0 && is_small(&w)) {
        struct cw_sim_plan plan;
        struct cw_sim_outcome oracle;
        if (cw_sim_oracle(&w, 0, &plan, &oracle, &err) < 0)
            abort();
        free(plan.phases);
    }
    cw_workload_deinit(&w);
    return 0;
}
