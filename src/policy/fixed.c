/* The policy fixed:N, for comparison with other policies: N workers from the start, or the job's maximum if
 * that is less. It decides nothing about caches. The table of policies calls it. */
#include <stdio.h>

#include "base/macro.h"
#include "policy/policies.h"

struct fixed {
    double decided;
};

static void fixed_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                         const struct cw_facts *facts, double now_s, struct cw_decision *d)
{
    struct fixed *m = (struct fixed *)memory->values;
    d->cache_point = -1;
    int wanted = (int)policy->parameter, n = CW_MIN(wanted, cw_pools_together(facts).maximum);
    cw_pools_fill(facts, n, d);
    d->concluded = !m->decided;
    m->decided = 1;
    int size = snprintf(d->why, sizeof(d->why), "%d %s requested by the policy fixed:N", wanted,
                        wanted == 1 ? "worker was" : "workers were");
    if (n < wanted)
        snprintf(d->why + size, sizeof(d->why) - (size_t)size, ", but this job may have only %d now", n);
}

static const struct cw_field fields[] = {CW_FIELD(struct fixed, decided), {0}};

const struct cw_policy cw_policy_fixed = {
    .name = "fixed:",
    .fields = fields,
    .decide = fixed_decide,
};
