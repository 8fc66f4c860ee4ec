/* The table of jobs: lookup, and values computed from a job's ranks. */
#include "service/dispatcher/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/dispatcher/map_each.h"
#include "service/dispatcher/state.h"

struct job *cw_dp_job_find(struct cw_dispatcher *d, const char *name)
{
    DP_MAP_EACH(j, struct job, node, &d->jobs.by_name, cw_hash64(name, strlen(name)))
    if (strcmp(j->name, name) == 0)
        return j;
    return NULL;
}

struct job *cw_dp_job_unref(struct job *j)
{
    if (!j || --j->refs > 0)
        return NULL;
    for (size_t i = 0; i < CW_MIN(j->scaling.n_decisions, (size_t)DP_DECISIONS); i++)
        json_decref(j->scaling.decisions[i].record);
    free(j->name);
    free(j->why);
    free(j);
    return NULL;
}

bool cw_dp_job_over(const struct job *j)
{
    return j->state >= JOB_DONE;
}

bool cw_dp_job_journalled(const struct job *j)
{
    return j->durable || j->writing > 0;
}

void cw_dp_job_save(struct cw_dispatcher *d, struct job *j)
{
    if (cw_dp_job_journalled(j))
        cw_dp_journal_tried(d, cw_dp_journal_job(d, j, NULL, NULL));
}

uint64_t cw_dp_job_mark(struct job *j)
{
    if (!j->began)
        return UINT64_MAX;
    if (j->mark.n > 0)
        return j->mark.pos;
    bool missing = j->ranks.n < j->terms.world_size &&
                   !j->missing_over; /* some ranks have not attached yet */
    j->mark = (struct job_mark){.pos = missing ? j->first_from : UINT64_MAX, .n = missing};
    DP_RANKS_EACH (r, j) {
        if (r->finished || !r->began)
            continue;
        if (r->pos < j->mark.pos)
            j->mark = (struct job_mark){.pos = r->pos};
        j->mark.n += r->pos == j->mark.pos;
    }
    return j->mark.pos;
}

const char *cw_dp_job_state(const struct job *j)
{
    static const char *const names[] = {"waiting", "running", "done", "cancelled", "failed"};
    if (j->paused && !cw_dp_job_over(j))
        return "paused";
    return j->state == JOB_RUNNING && j->ranks.n_attached == 0 ? "unattended" : names[j->state];
}

uint64_t cw_dp_job_lost(const struct job *j)
{
    uint64_t n = 0;
    DP_RANKS_EACH (r, j)
        n += r->progress.n_lost;
    return n;
}
