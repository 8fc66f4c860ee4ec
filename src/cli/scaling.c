#include "cli/scaling.h"

#include "base/text.h"

const char *const cli_objectives[] = {"time", "cost", NULL};

int cli_scaling_find(struct cli_scaling *x, struct cw_error *err)
{
    const char *names[16];
    size_t n = 0;
    if (!x->policy || cw_policy_find(x->policy, &x->found))
        return 0;
    for (; cw_policies[n]; n++)
        names[n] = cw_policies[n]->name;
    const char *near = cw_nearest(x->policy, names, n);
    cw_error_attribute(err, "policy", x->policy, "auto, cachew-atc22, cachew-atc22-code, hpa or fixed:N");
    return cw_error_set(err, CW_E_OPTION, "--policy %s: there is no such policy%s%s; expected auto, cachew-atc22, cachew-atc22-code, hpa or fixed:N", x->policy,
                        near ? "; did you mean " : "", near ? near : "");
}
