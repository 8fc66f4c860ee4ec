/* For tests of the core with a policy: a run of it, and what it says of its jobs. */
#pragma once
#include <jansson.h>

#include "dispatcher_run.h"

static struct cw_policy policy;

static struct run *begin(const char *name, uint64_t n_units)
{
    assert_true(cw_policy_find(name, &policy));
    run_policy = &policy;
    return run_new(n_units);
}

static void end(struct run *u)
{
    run_free(u);
    run_policy = NULL;
}

/* How many workers have something of a stream. */
CW_UNUSED static int serving(struct run *u, const uint8_t stream[16])
{
    int n = 0;
    for (struct run_peer *p = u->peers; p < u->peers + RUN_PEERS; p++)
        for (size_t i = 0; p->used && p->role == CACHEW__ROLE__ROLE_WORKER && i < RUN_STREAMS; i++)
            for (uint64_t pos = 0;
                 p->streams[i].used && memcmp(p->streams[i].id, stream, 16) == 0 && pos < RUN_UNITS; pos++)
                if (p->streams[i].held[pos]) {
                    n++;
                    break;
                }
    return n;
}

CW_UNUSED static json_t *ask(struct run *u, const char *what)
{
    struct cw_error err = {0};
    char *text = NULL;
    if (cw_dispatcher_query(u->d, what, u->now_ns, &text, &err) < 0)
        fail_msg("%s", err.message);
    json_t *answer = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(answer);
    return answer;
}

/* "wanted", "granted" or "running". */
CW_UNUSED static int scaling(struct run *u, const char *job, const char *what)
{
    json_t *jobs = ask(u, "jobs"), *j;
    size_t i;
    int n = -1;
    json_array_foreach(jobs, i, j)
    {
        if (strcmp(json_string_value(json_object_get(j, "name")), job) == 0)
            n = (int)json_integer_value(json_object_get(json_object_get(j, "scaling"), what));
    }
    json_decref(jobs);
    return n;
}
