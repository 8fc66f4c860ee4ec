/* Workload files, the input of `cachew simulate`. Strings point into the parsed file, which struct
 * cw_workload owns. */
#include "sim/workload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/fields.h"

/* Defaults. Prices per hour are those of the paper, for a TPU v2-8 and an n2-standard-8 in 2023. A batch
 * of the source has 256 photographs of 128 KiB. */
#define CLIENT_PRICE 4.96
#define WORKER_PRICE 0.427319
#define BATCH_BYTES (256 * 131072.0)
#define MOST CW_SIM_MOST
#define LEAST_KEPT 1e-9 /* least part of elements that all filters together keep */

static int stage_parse(const json_t *value, const char *where, size_t i, struct cw_sim_stage *stage,
                       struct cw_error *err)
{
    char path[128];
    snprintf(path, sizeof(path), "%smodel.stages[%zu].", where, i);
    *stage = (struct cw_sim_stage){.size_factor = 1, .keep = 1};
    const struct cw_sim_field fields[] = {
        {"name", .text = &stage->name},
        {"cpu_s", &stage->cpu_s, 0, MOST, CW_SIM_ANY},
        {"size_factor", &stage->size_factor, 0, 1e6, CW_SIM_ANY},
        {"keep", &stage->keep, LEAST_KEPT, 1, CW_SIM_ANY},
        {0},
    };
    return cw_sim_fields(value, path, fields, err);
}

/* Sets the error for stages whose numbers are within bounds, but whose product is not. i: the stage at which
 * the product leaves its bounds. */
static int stage_too_much(const json_t *stages, const char *where, size_t i, const char *field,
                          const char *expected, struct cw_error *err)
{
    char path[128];
    snprintf(path, sizeof(path), "%smodel.stages[%zu].", where, i);
    return cw_sim_expected(path, field, json_object_get(json_array_get(stages, i), field), expected, err);
}

/* Checks the elements, time and bytes of a batch over all stages. */
static int stages_check(const json_t *stages, const char *where, const struct cw_sim_job *job,
                        struct cw_error *err)
{
    double kept = 1, cpu_s = 0, size = job->source_batch_bytes;
    for (size_t i = job->n_stages; i-- > 0;)
        if ((kept *= job->stages[i].keep) < LEAST_KEPT)
            return stage_too_much(
                stages, where, i, "keep",
                "a larger number, so that this and later stages together keep at least 1e-09 of the elements",
                err);
    for (size_t i = 0; i < job->n_stages; i++) {
        const struct cw_sim_stage *stage = &job->stages[i];
        if ((cpu_s += stage->cpu_s / kept) > MOST)
            return stage_too_much(stages, where, i, "cpu_s",
                                  "a smaller number, so that a batch takes at most 1e15 s up to this stage, "
                                  "including elements that filters drop",
                                  err);
        kept /= stage->keep;
        if ((size *= stage->size_factor) > MOST)
            return stage_too_much(stages, where, i, "size_factor",
                                  "a smaller number, so that a batch has at most 1e15 bytes after this stage",
                                  err);
    }
    return 0;
}

/* Returns CW_E_PIPELINE if an object has one of the fields `names`, which are not allowed here. */
static int object_has_none(const json_t *object, const char *where, const char *const *names,
                           const char *expected, struct cw_error *err)
{
    for (; *names; names++)
        if (json_object_get(object, *names))
            return cw_sim_expected(where, *names, json_object_get(object, *names), expected, err);
    return 0;
}

/* Sets the error for a cache point that is not the name or the number of a stage. */
static int cache_point_unknown(const char *path, const json_t *value, const struct cw_sim_job *job,
                               struct cw_error *err)
{
    char names[160], expected[256];
    for (size_t i = 0, used = 0; i < job->n_stages; i++) {
        const char *comma = i ? ", " : "", *name = job->stages[i].name;
        bool fits = used + strlen(name) + sizeof(", \"\", ...") <= sizeof(names);
        used += (size_t)snprintf(names + used, sizeof(names) - used, fits ? "%s\"%s\"" : "%s...", comma,
                                 name);
        if (!fits)
            break;
    }
    snprintf(expected, sizeof(expected), "the name of one stage, of %s, or its number from 0 to %zu", names,
             job->n_stages - 1);
    return cw_sim_expected("", path, value, expected, err);
}

/* Parses a cache point: the number of a stage, or a name that only one stage has. */
static int cache_point_parse(const json_t *value, const char *path, const struct cw_sim_job *job, size_t *ret,
                             struct cw_error *err)
{
    const char *name = json_string_value(value);
    double number = json_number_value(value);
    size_t found = 0;
    if (json_is_number(value) && number >= 0 && number < (double)job->n_stages && number == floor(number)) {
        *ret = (size_t)number;
        return 0;
    }
    for (size_t i = 0; name && i < job->n_stages; i++)
        if (strcmp(name, job->stages[i].name) == 0) {
            *ret = i;
            found++;
        }
    if (found > 1)
        return cw_sim_expected("", path, value,
                               "the number of the stage, from 0, since several stages have this name", err);
    return found == 1 ? 0 : cache_point_unknown(path, value, job, err);
}

static int cache_points_parse(const json_t *list, const char *where, struct cw_sim_job *job,
                              struct cw_error *err)
{
    size_t i;
    const json_t *value;
    if (list && (!json_is_array(list) || json_array_size(list) > CW_POLICY_CACHE_POINTS))
        return cw_sim_expected(where, "model.cache_markers", list, "a list of at most 16 names of stages",
                               err);
    json_array_foreach(list, i, value)
    {
        char path[128];
        snprintf(path, sizeof(path), "%smodel.cache_markers[%zu]", where, i);
        int r = cache_point_parse(value, path, job, &job->cache_points[i], err);
        if (r < 0)
            return r;
        for (size_t k = 0; k < i; k++)
            if (job->cache_points[k] == job->cache_points[i])
                return cw_sim_expected("", path, value, "each stage at most once", err);
        job->n_cache_points++;
    }
    return 0;
}

static int model_parse(const json_t *object, const char *where, struct cw_sim_job *job, struct cw_error *err)
{
    char path[128];
    const json_t *model = json_object_get(object, "model"), *stages = json_object_get(model, "stages"),
                 *value;
    size_t i;
    int r = 0;
    snprintf(path, sizeof(path), "%smodel.", where);
    struct cw_sim_change *start = &job->phases[0];
    const struct cw_sim_field of_store[] = {
        {"read_bytes_per_s", &start->read_bytes_per_s, 0, MOST, CW_SIM_MORE},
        {"write_bytes_per_s", &start->write_bytes_per_s, 0, MOST, CW_SIM_MORE},
        {"bytes", &job->store_bytes, 0, MOST, CW_SIM_MORE},
        {0},
    };
    const struct cw_sim_field fields[] = {
        {"stages"},
        {"source_bytes_per_s", &start->source_bytes_per_s, 0, MOST, CW_SIM_MORE},
        {"source_batch_bytes", &job->source_batch_bytes, 0, MOST, CW_SIM_ANY},
        {"host_cpus", &job->host_cpus, 0, 1e6, CW_SIM_MORE},
        {"host_busy_cpus", &start->host_busy_cpus, 0, 1e6, CW_SIM_ANY},
        {"contention", &job->contention, 0, 1e6, CW_SIM_ANY},
        {"store", .fields = of_store},
        {"cache_markers"},
        {0},
    };
    r = cw_sim_fields(model, path, fields, err);
    if (r < 0)
        return r;
    if (!(job->host_cpus > 0) && (json_object_get(model, "contention") || start->host_busy_cpus > 0))
        return cw_sim_expected(path, "host_cpus", NULL, "the CPUs of the training host", err);
    if (!json_is_array(stages) || json_array_size(stages) == 0 || json_array_size(stages) > 1000)
        return cw_sim_expected(path, "stages", stages, "a list of 1 to 1000 stages", err);
    job->stages = calloc(json_array_size(stages), sizeof(*job->stages));
    if (!job->stages)
        return cw_error_nomem(err, 0, "a workload");
    json_array_foreach(stages, i,
                       value) if (r == 0 && (r = stage_parse(value, where, i, &job->stages[i], err)) == 0)
        job->n_stages++;
    if (r == 0)
        r = stages_check(stages, where, job, err);
    return r < 0 ? r : cache_points_parse(json_object_get(model, "cache_markers"), where, job, err);
}

/* fields of a change that only a model has */
static const char *const of_model[] = {"source_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s",
                                       "host_busy_cpus", NULL};

/* Parses the phases of a job. A change keeps the values that it does not name. */
static int changes_parse(const json_t *list, const char *where, struct cw_sim_job *job, struct cw_error *err)
{
    size_t i;
    const json_t *value;
    if (list && (!json_is_array(list) || json_array_size(list) > 100))
        return cw_sim_expected(where, "changes", list, "a list of at most 100 changes", err);
    json_array_foreach(list, i, value)
    {
        char item[128], path[sizeof(item) + 1];
        struct cw_sim_change *c = &job->phases[i + 1];
        *c = job->phases[i];
        snprintf(item, sizeof(item), "%schanges[%zu]", where, i);
        snprintf(path, sizeof(path), "%s.", item);
        const struct cw_sim_field fields[] = {
            {"at_batch", &c->at_batch, job->phases[i].at_batch, MOST, CW_SIM_MORE, true},
            {"client_step_s", &c->client_step_s, 0, MOST, CW_SIM_ANY},
            {"worker_slowdown", &c->worker_slowdown, 0, 1e6, CW_SIM_MORE},
            {"source_bytes_per_s", &c->source_bytes_per_s, 0, MOST, CW_SIM_MORE},
            {"read_bytes_per_s", &c->read_bytes_per_s, 0, MOST, CW_SIM_MORE},
            {"write_bytes_per_s", &c->write_bytes_per_s, 0, MOST, CW_SIM_MORE},
            {"host_busy_cpus", &c->host_busy_cpus, 0, 1e6, CW_SIM_ANY},
            {0},
        };
        int r = cw_sim_fields(value, path, fields, err);
        if (r == 0 && job->table)
            r = object_has_none(value, path, of_model,
                                "this field only in a job with a model, and this job has a table", err);
        if (r == 0 && json_object_size(value) == 1)
            r = cw_sim_expected("", item, value,
                                "at least one more field besides at_batch, to say what changes", err);
        if (r < 0)
            return r;
        job->n_phases++;
    }
    return 0;
}

static int objective_parse(const json_t *object, const char *where, struct cw_sim_job *job,
                           struct cw_error *err)
{
    const json_t *v = json_object_get(object, "objective");
    const char *text = json_string_value(v);
    if (v && !(text && (strcmp(text, "time") == 0 || strcmp(text, "cost") == 0)))
        return cw_sim_expected(where, "objective", v, "\"time\" or \"cost\"", err);
    job->objective = text && strcmp(text, "cost") == 0 ? CW_OBJECTIVE_COST : CW_OBJECTIVE_TIME;
    return 0;
}

/* The fields of a job, in the file itself or in each of its "jobs". */
static const char *const of_job[] = {
    "epochs",     "batches_per_epoch", "client_step_s",   "objective", "noise",   "lump_s", "table",
    "table_unit", "worker_cpu_s",      "bytes_per_batch", "model",     "changes", NULL};
#define JOB_FIELDS(job, alone) \
    {"epochs", &(job)->epochs, 1, 1e6, CW_SIM_WHOLE}, \
        {"batches_per_epoch", &(job)->batches_per_epoch, 0.01, 1e12, CW_SIM_ANY, alone}, \
        {"client_step_s", &(job)->phases[0].client_step_s, 0, MOST, CW_SIM_ANY}, {"objective"}, \
        {"noise", &(job)->noise, 0, 10, CW_SIM_ANY}, {"lump_s", &(job)->lump_s, 0, 1e6, CW_SIM_ANY}, \
        {"table"}, {"table_unit"}, {"worker_cpu_s", &(job)->worker_cpu_s, 0, MOST, CW_SIM_ANY}, \
        {"bytes_per_batch", &(job)->bytes_per_batch, 0, MOST, CW_SIM_ANY}, {"model"}, {"changes"}

static int job_init(const json_t *object, struct cw_sim_job *job, struct cw_error *err)
{
    const json_t *changes = json_object_get(object, "changes");
    *job = (struct cw_sim_job){.name = "job",
                               .epochs = 1,
                               .weight = 1,
                               .client_price_per_h = CLIENT_PRICE,
                               .source_batch_bytes = BATCH_BYTES};
    job->phases = calloc(1 + json_array_size(changes), sizeof(*job->phases));
    if (!job->phases)
        return cw_error_nomem(err, 0, "a workload");
    job->n_phases = 1;
    job->phases[0].worker_slowdown = 1;
    return 0;
}

static const char *const of_table[] = {"table_unit", "worker_cpu_s", NULL};

/* Parses the fields of a job that are not numbers. */
static int job_parse(const json_t *object, const char *where, struct cw_workload *w, struct cw_sim_job *job,
                     struct cw_error *err)
{
    bool table = json_object_get(object, "table"), model = json_object_get(object, "model");
    int r = objective_parse(object, where, job, err);
    if (r < 0)
        return r;
    if (table == model)
        return cw_sim_expected(where, "table", json_object_get(object, "table"),
                               table ? "either a table or a model, not both" : "a table, or a model", err);
    if (model)
        r = object_has_none(object, where, of_table,
                            "this field only in a job with a table, and this job has a model", err);
    if (r == 0)
        r = table ? cw_sim_table_parse(object, where, w, job, err) : model_parse(object, where, job, err);
    return r < 0 ? r : changes_parse(json_object_get(object, "changes"), where, job, err);
}

/* Whether a job, an object of the file, has workers on its training host. */
static bool job_has_local(const json_t *object)
{
    return cw_sim_is_surface(object) || json_object_get(json_object_get(object, "model"), "host_cpus");
}

static int job_parse_named(const json_t *object, size_t i, struct cw_workload *w, struct cw_error *err)
{
    char where[64];
    struct cw_sim_job *job = &w->jobs[i];
    int r = job_init(object, job, err);
    if (r < 0)
        return r;
    w->n_jobs++;
    snprintf(where, sizeof(where), "jobs[%zu].", i);
    const struct cw_sim_field of_price[] = {{"client", &job->client_price_per_h, 0, MOST, CW_SIM_ANY}, {0}};
    const struct cw_sim_field fields[] = {
        {"name", .text = &job->name},
        {"arrive_s", &job->arrive_s, 0, MOST, CW_SIM_ANY},
        {"weight", &job->weight, 0, 1e6, CW_SIM_MORE},
        {"priority", &job->priority, -1e6, 1e6, CW_SIM_WHOLE},
        {"quota", &job->quota, 1, CW_SIM_MOST_WORKERS, CW_SIM_WHOLE},
        {"price_per_h", .fields = of_price},
        JOB_FIELDS(job, true),
        {0},
    };
    r = cw_sim_fields(object, where, fields, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < i; k++)
        if (strcmp(w->jobs[k].name, job->name) == 0)
            return cw_sim_expected(where, "name", json_object_get(object, "name"),
                                   "a name that no other job has", err);
    if (job_has_local(object))
        return cw_sim_expected(where, cw_sim_is_surface(object) ? "table.surface" : "model.host_cpus",
                               json_object_get(object, cw_sim_is_surface(object) ? "table" : "model"),
                               "this field only in a workload of one job", err);
    return job_parse(object, where, w, job, err);
}

static int jobs_parse(const json_t *list, const json_t *root, struct cw_workload *w, struct cw_error *err)
{
    size_t i;
    const json_t *value;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > CW_SIM_MAX_JOBS)
        return cw_sim_expected("", "jobs", list, "a list of 1 to 64 jobs", err);
    int r = object_has_none(root, "", of_job, "this field inside each of \"jobs\", not beside them", err);
    json_array_foreach(list, i, value) if (r == 0) r = job_parse_named(value, i, w, err);
    return r;
}

/* Parses the file's object, which describes one job unless it has "jobs". */
static int workload_parse_root(const json_t *root, struct cw_workload *w, struct cw_error *err)
{
    double version = 0, seed = 0, client = CLIENT_PRICE;
    const json_t *jobs = json_object_get(root, "jobs");
    struct cw_sim_job *job = &w->jobs[0], unused = {0};
    struct cw_sim_pool *pool = &w->pools[0];
    struct cw_sim_change nothing = {0};
    unused.phases = &nothing;
    int r = jobs ? 0 : job_init(root, job, err);
    if (r < 0)
        return r;
    w->n_jobs = jobs ? 0 : 1;
    if (jobs)
        job = &unused;
    const struct cw_sim_field of_price[] = {
        {"client", &client, 0, MOST, CW_SIM_ANY}, {"worker", &pool->price_per_h, 0, MOST, CW_SIM_ANY}, {0}};
    const struct cw_sim_field of_stragglers[] = {{"part", &w->stragglers, 0, 1, CW_SIM_ANY, true},
                                                 {"slowdown", &w->slowdown, 1, 1e6, CW_SIM_ANY, true},
                                                 {0}};
    const struct cw_sim_field of_failures[] = {{"mtbf_s", &w->mtbf_s, 0, MOST, CW_SIM_MORE, true}, {0}};
    const struct cw_sim_field fields[] = {
        {"workload", &version, 1, 1, CW_SIM_WHOLE, true},
        {"seed", &seed, 0, 9007199254740992.0, CW_SIM_WHOLE},
        {"jobs"},
        {"price_per_h", .fields = of_price},
        {"pools"},
        {"max_workers", &pool->max_workers, 1, CW_SIM_MOST_WORKERS, CW_SIM_WHOLE},
        {"start_delay_s", &pool->start_delay_s, 0, 1e6, CW_SIM_ANY},
        {"worker_cpus", &pool->worker_cpus, 0, 1e6, CW_SIM_MORE},
        {"price_per_gb", &pool->price_per_gb, 0, MOST, CW_SIM_ANY},
        {"stragglers", .fields = of_stragglers},
        {"failures", .fields = of_failures},
        JOB_FIELDS(job, !jobs),
        {0},
    };
    r = cw_sim_fields(root, "", fields, err);
    if (r == 0 && json_object_get(root, "pools"))
        r = cw_sim_pools_parse(root, w, err);
    if (r == 0 && !jobs && job_has_local(root))
        r = cw_sim_pools_add_local(root, w, err);
    if (r < 0)
        return r;
    w->seed = (uint64_t)seed;
    w->several = jobs;
    if (jobs)
        return jobs_parse(jobs, root, w, err);
    job->client_price_per_h = client;
    return job_parse(root, "", w, job, err);
}

int cw_workload_parse(const char *text, size_t size, struct cw_workload *ret, struct cw_error *err)
{
    json_error_t je;
    *ret = (struct cw_workload){.slowdown = 1, .n_pools = 1};
    ret->pools[0] = (struct cw_sim_pool){
        .name = "remote", .price_per_h = WORKER_PRICE, .worker_cpus = 1, .slowdown = 1};
    ret->text = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    bool overflow = !ret->text && json_error_code(&je) == json_error_numeric_overflow;
    if (overflow) /* an integer of more than 64 bits: parsed as a real number, so that the error names the
                     field */
        ret->text = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &je);
    if (!ret->text)
        return cw_error_set(err, CW_E_PIPELINE, "the workload %s: line %d, column %d: %s",
                            overflow ? "has a number out of range" : "is not valid JSON", je.line, je.column,
                            je.text);
    ret->jobs = calloc(CW_SIM_MAX_JOBS, sizeof(*ret->jobs));
    int r = ret->jobs ? workload_parse_root(ret->text, ret, err) : cw_error_nomem(err, 0, "a workload");
    if (r < 0)
        return r;
    cw_sim_pools_default(ret);
    return 0;
}

void cw_workload_deinit(struct cw_workload *w)
{
    for (size_t i = 0; w->jobs && i < w->n_jobs; i++) {
        cw_sim_table_free(w->jobs[i].table);
        free(w->jobs[i].stages);
        free(w->jobs[i].phases);
    }
    free(w->jobs);
    json_decref(w->text);
    *w = (struct cw_workload){0};
}
