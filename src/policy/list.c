/* The list of policies, and what is done with any policy. A new policy is a new file and an entry in
 * cw_policies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "policy/policies.h"

#define POOL_NAME_BYTES 64 /* names of workers begin with the pool's name, and appear in lines of the log */

const struct cw_policy *const cw_policies[] = {
    &cw_policy_auto,       &cw_policy_atc22, &cw_policy_atc22_code, &cw_policy_pecan,
    &cw_policy_pecan_code, &cw_policy_hpa,   &cw_policy_fixed,      NULL,
};

bool cw_policy_find(const char *name, struct cw_policy *ret)
{
#ifdef CW_CRASH_POINTS
    if (strcmp(name, cw_policy_script.name) == 0) { /* for tests only, so not in the list */
        *ret = cw_policy_script;
        return true;
    }
#endif
    if (strcmp(name, "cachew") == 0) /* this project's own policy, unlike the published "cachew-atc22" */
        name = cw_policy_auto.name;
    for (const struct cw_policy *const *p = cw_policies; *p; p++) {
        size_t size = strlen((*p)->name);
        bool takes_number = (*p)->name[size - 1] == ':';
        if (takes_number ? strncmp(name, (*p)->name, size) != 0 : strcmp(name, (*p)->name) != 0)
            continue;
        *ret = **p;
        if (takes_number) {
            char *end;
            long number = strtol(name + size, &end, 10);
            if (name[size] < '0' || name[size] > '9' || *end || number < 1 || number > CW_POLICY_MOST)
                return false;
            ret->parameter = (double)number;
        }
        return true;
    }
    return false;
}

void cw_policy_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                      const struct cw_facts *facts, double now_s, struct cw_decision *ret)
{
    struct cw_facts f = *facts;
    if (f.unread)
        f.cache_point = -1;
    *ret = (struct cw_decision){.cache_point = -1, .seen.cache_point = -1};
    policy->decide(policy, memory, &f, now_s, ret);
    if (!policy->caches || ret->cache_point >= f.n_cache_points)
        ret->cache_point = f.cache_point;
    if (ret->cache_point != facts->cache_point && !*ret->why)
        snprintf(ret->why, sizeof(ret->why), "%s",
                 f.unread ? "reading the cached elements takes longer than recomputing them"
                          : "the policy changed where elements are cached");
}

json_t *cw_policy_save(const struct cw_policy *policy, const struct cw_policy_memory *memory)
{
    json_t *saved = json_object();
    for (const struct cw_field *f = policy->fields; f && f->name; f++) {
        json_t *values = json_array();
        for (size_t i = 0; i < f->n; i++)
            json_array_append_new(values, json_real(memory->values[f->at + i]));
        if (json_object_set_new(saved, f->name, values) < 0) {
            json_decref(saved);
            return NULL;
        }
    }
    return saved;
}

void cw_policy_load(const struct cw_policy *policy, const json_t *saved, struct cw_policy_memory *ret)
{
    *ret = (struct cw_policy_memory){0};
    for (const struct cw_field *f = policy->fields; f && f->name; f++) {
        const json_t *values = json_object_get(saved, f->name);
        for (size_t i = 0; i < f->n; i++)
            ret->values[f->at + i] = json_number_value(json_array_get(values, i));
    }
}

int cw_pool_name_check(const char *name, struct cw_error *err)
{
    size_t size = strlen(name);
    bool is_static = strcmp(name, CW_POOL_STATIC) == 0;
    if (size > 0 && size <= POOL_NAME_BYTES && cw_text_utf8(name, size) && !is_static)
        return 0;
    cw_error_attribute(err, "pool", name, "a name of 1 to 64 bytes of UTF-8, other than \"static\"");
    return is_static
               ? cw_error_set(
                     err, CW_E_OPTION,
                     "pool \"%s\" is reserved for workers that no provisioner started: expected another name",
                     name)
               : cw_error_set(err, CW_E_OPTION,
                              "the pool's name has %zu bytes: expected 1 to %d bytes of valid UTF-8", size,
                              POOL_NAME_BYTES);
}
