#include "client/measure.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"

/* How late an interruption may be noticed. */
#define SLICE_NS UINT64_C(50000000)

/* cw_iterator_next, which an interruption ends. */
static int next(struct cw_local *l, const struct cw_measure_options *o, struct cw_batch **ret, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(o->wait * 1e9), end = wait_ns ? cw_now_ns() + wait_ns : UINT64_MAX;
    if (!o->interrupt)
        return cw_iterator_next(l->iterator, wait_ns, ret, err);
    for (;;) {
        struct cw_error own = {0};
        uint64_t now = cw_now_ns();
        int r = cw_iterator_next(l->iterator, CW_MAX(CW_MIN(SLICE_NS, end - CW_MIN(end, now)), 1), ret, &own);
        if (*o->interrupt) {
            if (r == 0)
                cw_iterator_release(l->iterator, *ret);
            return cw_error_set(err, CW_E_INTERRUPTED, "interrupted");
        }
        if (r != CW_E_DEADLINE || cw_now_ns() >= end) {
            if (r < 0 && err)
                *err = own;
            return r;
        }
    }
}

static int take(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *m, struct cw_error *err)
{
    uint64_t start = cw_now_ns(), last = start, end = start + (uint64_t)(o->seconds * 1e9);
    int r = 0;
    while (r == 0 && last < end) {
        struct cw_batch *b;
        r = next(l, o, &b, err);
        if (r != 0)
            break;
        last = cw_now_ns();
        if (m->batches == 0)
            m->first_batch_s = (double)(last - start) * 1e-9;
        m->batches++;
        m->elements += b->n;
        for (unsigned k = 0; k < b->n_components; k++)
            m->bytes += b->components[k].size;
        cw_iterator_release(l->iterator, b);
    }
    m->seconds = (double)(last - start) * 1e-9;
    if (r == 1)
        return cw_error_set(err, CW_E_DATA, "the pipeline gives no batches: there is nothing to measure");
    return r;
}

static int profile(struct cw_local *l, struct cw_measurement *m, struct cw_error *err)
{
    unsigned n = l->pipeline->n_ops;
    struct cw_profile p = {.ops = calloc(n + 1, sizeof(*p.ops)), .n_ops = n};
    if (!p.ops)
        return cw_error_nomem(err, 0, "a profile");
    cw_iterator_profile(l->iterator, &p);
    for (unsigned i = 0; i < n; i++)
        m->busy_s += (double)p.ops[i].ns * 1e-9;
    m->busy_s += (double)(p.plan_ns + p.read_ns + p.emit_ns) * 1e-9;
    m->idle_share = p.run_ns ? CW_MIN((double)p.idle_ns / (double)p.run_ns, 1.0) : 0;
    double accounted = m->idle_share + (p.run_ns ? m->busy_s * 1e9 / (double)p.run_ns : 1); /* cold reads run on threads of their own: may pass 1 */
    m->other_share = CW_MAX(1 - accounted, 0.0);
    m->wait_share = p.run_ns ? CW_MIN((double)p.wait_ns * p.threads / (double)p.run_ns, 1.0) : 0;
    m->read_bytes = p.read_bytes;
    m->memory_peak = p.memory_peak;
    free(p.ops);
    return 0;
}

int cw_measure(struct cw_local *l, const struct cw_measure_options *o, struct cw_measurement *ret, struct cw_error *err)
{
    struct cw_iterator_options io = {
        .seed = o->seed,
        .epochs = INT64_MAX,
        .world_size = 1,
        .runner = {.threads = o->threads, .memory = o->memory, .optimize = o->optimize},
    };
    *ret = (struct cw_measurement){.threads = o->threads, .memory_limit = o->memory};
    l->iterator = cw_iterator_free(l->iterator);
    if (l->sequence->n_positions == 0)
        return cw_error_set(err, CW_E_DATA, "the pipeline has no elements: there is nothing to measure");
    int r = cw_iterator_new(l->sequence, &io, NULL, &l->iterator, err);
    if (r >= 0)
        r = take(l, o, ret, err);
    return r < 0 ? r : profile(l, ret, err);
}

json_t *cw_measurement_json(const struct cw_measurement *m)
{
    double s = m->seconds > 0 ? m->seconds : 1e-9;
    return json_pack("{s:i, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "threads", (int)m->threads, "seconds", m->seconds, "batches",
                     (json_int_t)m->batches, "elements", (json_int_t)m->elements, "bytes", (json_int_t)m->bytes, "elements_per_s",
                     (double)m->elements / s, "batches_per_s", (double)m->batches / s, "bytes_per_s", (double)m->bytes / s, "first_batch_s",
                     m->first_batch_s, "busy_s", m->busy_s, "idle_share", m->idle_share, "other_share", m->other_share, "wait_share", m->wait_share, "read_bytes",
                     (json_int_t)m->read_bytes, "memory_peak_bytes", (json_int_t)m->memory_peak);
}

/* ---- advice ---- */

static double share_of(const json_t *parts, const char *part)
{
    size_t i;
    json_t *o;
    json_array_foreach((json_t *)parts, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "part"));
        if (name && strcmp(name, part) == 0)
            return json_number_value(json_object_get(o, "share"));
    }
    return 0;
}

static const json_t *largest(const json_t *parts)
{
    size_t i;
    json_t *o, *most = NULL;
    json_array_foreach((json_t *)parts, i, o)
    {
        if (json_object_get(o, "op") && (!most || json_number_value(json_object_get(o, "share")) > json_number_value(json_object_get(most, "share"))))
            most = o;
    }
    return most;
}

static bool in_fused(const json_t *facts, json_int_t position)
{
    size_t i, k;
    json_t *group, *member;
    json_array_foreach(json_object_get(facts, "fused"), i, group)
        json_array_foreach(group, k, member)
            if (json_integer_value(member) == position)
                return true;
    return false;
}

static void say(json_t *list, json_t *sentence) { json_array_append_new(list, sentence); }

/* Threads stood still: why. */
static void advise_idle(json_t *list, const struct cw_local *l, const struct cw_measurement *m)
{
    int percent = (int)(m->idle_share * 100 + 0.5);
    if (m->wait_share < 0.2) {
        say(list, json_sprintf("threads were idle %d %% and batches were ready before they were asked for: handing them over is the limit; larger batches "
                               "would raise the rate", percent));
        return;
    }
    if ((double)m->memory_peak > 0.9 * (double)m->memory_limit)
        say(list, json_sprintf("threads were idle %d %% and the memory budget was used up (%.0f of %.0f MB): more --memory would help", percent,
                               (double)m->memory_peak * 1e-6, (double)m->memory_limit * 1e-6));
    else if (m->read_bytes)
        say(list, json_sprintf("threads were idle %d %%: storage is the bottleneck (%.1f MB/s came from files); faster storage, or data that stay in the page "
                               "cache, would help", percent, (double)m->read_bytes * 1e-6 / CW_MAX(m->seconds, 1e-3)));
    else if (l->compiled->whole_epoch)
        say(list, json_sprintf("threads were idle %d %%: the epoch is one split, whose elements wait for each other", percent));
    else
        say(list, json_sprintf("threads were idle %d %%: there is too little work per batch to keep %u threads busy; fewer threads or larger batches would do",
                               percent, m->threads));
}

static void advise_busy(json_t *list, const struct cw_measurement *m, const json_t *parts, const json_t *facts)
{
    const json_t *top = largest(parts);
    const char *op = json_string_value(json_object_get(top, "op"));
    double share = json_number_value(json_object_get(top, "share"));
    int percent = (int)(share * 100 + 0.5);
    unsigned cpus = cw_cpu_budget();
    if (!op || percent == 0)
        return;
    if (m->threads * 2 <= cpus)
        say(list, json_sprintf("%s takes %d %% of CPU time; %u of %u CPUs are used: twice the threads would about double the rate", op, percent, m->threads, cpus));
    else if (m->threads < cpus)
        say(list, json_sprintf("%s takes %d %% of CPU time; %u of %u CPUs are used: as many threads as CPUs would give about %.1f times the rate", op, percent,
                               m->threads, cpus, (double)cpus / m->threads));
    else
        say(list, json_sprintf("%s takes %d %% of CPU time and all %u CPUs are busy: twice the CPUs would about double the rate; without %s it would be about "
                               "%.1f times as high", op, percent, cpus, op, 1 / CW_MAX(1 - share, 0.01)));
    if (strcmp(op, "decode_image") == 0 && share > 0.3 && !in_fused(facts, json_integer_value(json_object_get(top, "position"))))
        say(list, json_string("decode_image is not fused: with a crop of the same component directly after it, only what the crop needs would be decoded"));
}

json_t *cw_advice(const struct cw_local *l, const struct cw_measurement *m, const json_t *parts, const json_t *facts)
{
    json_t *list = json_array();
    double reading = share_of(parts, "reading"), copying = share_of(parts, "copying into batches"), planning = share_of(parts, "planning");
    if (m->idle_share > 0.4)
        advise_idle(list, l, m);
    else if (m->other_share > 0.4)
        say(list, json_sprintf("threads spent %d %% of their time between operators, on scheduling: batches of %.0f elements are small for such cheap ones; larger "
                               "batches would raise the rate", (int)(m->other_share * 100 + 0.5), (double)m->elements / (double)CW_MAX(m->batches, 1)));
    else
        advise_busy(list, m, parts, facts);
    bool computing = m->idle_share <= 0.4 && m->other_share <= 0.4;
    if (computing && reading > 0.25)
        say(list, json_sprintf("reading takes %d %% of the time; data that stay in the page cache, or faster storage, would help", (int)(reading * 100 + 0.5)));
    if (computing && copying > 0.2 && json_array_size(json_object_get(json_object_get(facts, "batch"), "varying")))
        say(list, json_sprintf("copying into batches takes %d %% of the time, because components vary in size; those of one size (crop or resize before batch) are "
                               "computed in place", (int)(copying * 100 + 0.5)));
    if (computing && planning > 0.1)
        say(list, json_sprintf("planning takes %d %% of the time: elements are cheap; there is little left to gain but larger batches", (int)(planning * 100 + 0.5)));
    if (l->compiled->whole_epoch)
        say(list, json_string("the epoch is one split: it can use all CPUs of one machine, but not those of several"));
    return list;
}
