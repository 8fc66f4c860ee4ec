/* The policies, each of which has its own file. */
#pragma once
#include "policy/policy.h"

extern const struct cw_policy cw_policy_auto, cw_policy_atc22, cw_policy_atc22_code, cw_policy_pecan,
    cw_policy_pecan_code, cw_policy_hpa, cw_policy_fixed;
extern const struct cw_policy cw_policy_script; /* test builds only (-Dcrash_points=true) */
