/* Remedies: changes that would make a pipeline faster, with the predicted rate. Called by explain_run.c. */
#include "explain/remedies.h"

#include <math.h>

#include "base/text.h"

/* Remedies that gain less than this part are not proposed. */
#define LEAST_GAIN 0.03
/* More threads than CPUs help where threads wait, but each thread takes memory: at most this many per CPU. */
#define THREADS_PER_CPU 8

struct finding { /* a search for remedies: its input, and the list so far */
    const struct cw_costs *c;
    const struct cw_remedy_options *o;
    struct cw_remedy *list;
    size_t n;
};

/* Adds remedy r if it gains enough; takes the reference r.change in any case. Widens low and high by the
 * noise of the run. fmt: format of r.what. */
static void finding_offer(struct finding *f, struct cw_remedy r, const char *fmt, ...) _printf_(3, 4);

static void finding_offer(struct finding *f, struct cw_remedy r, const char *fmt, ...)
{
    double noise = 1 + f->c->noise;
    CW_FORMAT(r.what, fmt);
    r.low = fmin(r.low, r.rate) / noise;
    r.high = fmax(r.high, r.rate) * noise;
    if (r.rate >= f->c->rate * (1 + LEAST_GAIN))
        f->list[f->n++] = r;
    else
        json_decref(r.change);
}

static json_t *option_json(const char *name, json_int_t value)
{
    return json_pack("{s:s, s:I}", "option", name, "value", value);
}

/* ---- threads, CPUs, memory, storage ---- */

/* Returns the predicted rate if more threads do not make scheduling faster, since it holds a lock (Amdahl).
 */
static double costs_predict_serial(const struct cw_costs *now, struct cw_costs then)
{
    then.other_s = now->other_s * then.threads / now->threads;
    return cw_costs_predict(now, &then);
}

/* Returns the number of threads with which another resource becomes the limit. */
static unsigned costs_threads_wanted(const struct cw_costs *c)
{
    double limits[CW_N_RESOURCES], least = INFINITY, most = THREADS_PER_CPU * ceil(c->cpus);
    (void)cw_costs_limits(c, limits);
    for (int i = 0; i < CW_N_RESOURCES; i++)
        if (i != CW_RESOURCE_THREADS)
            least = fmin(least, limits[i]);
    /* 0.99: rounding and noise do not add a thread */
    double wanted = ceil(least * cw_costs_occupied(c) * 0.99);
    return (unsigned)fmax(fmin(wanted, most), 1);
}

static void finding_threads(struct finding *f)
{
    struct cw_costs then = *f->c;
    then.threads = CW_MAX(costs_threads_wanted(f->c), f->c->threads);
    if (then.threads > f->c->threads)
        finding_offer(f,
                      (struct cw_remedy){.kind = "threads",
                                         .here = true,
                                         .rate = cw_costs_predict(f->c, &then),
                                         .low = costs_predict_serial(f->c, then),
                                         .change = option_json("threads", then.threads)},
                      "%u threads instead of %u", then.threads, f->c->threads);
    then.threads *= 2;
    then.cpus *= 2;
    double limits[CW_N_RESOURCES];
    (void)cw_costs_limits(f->c, limits);
    bool no_cpu_left = limits[CW_RESOURCE_CPUS] * then.threads <
                       2 * 1.05 * f->c->threads * limits[CW_RESOURCE_THREADS];
    if (no_cpu_left)
        finding_offer(f,
                      (struct cw_remedy){.kind = "cores",
                                         .rate = cw_costs_predict(f->c, &then),
                                         .low = costs_predict_serial(f->c, then),
                                         .change = option_json("threads", then.threads)},
                      "twice the CPUs, and %u threads", then.threads);
}

static void finding_memory(struct finding *f)
{
    struct cw_costs then = *f->c;
    size_t memory = f->c->memory * 2;
    char now_text[32], then_text[32];
    then.idle_s[CW_IDLE_MEMORY] = 0;
    finding_offer(f,
                  (struct cw_remedy){.kind = "memory",
                                     .here = memory < f->o->memory_total,
                                     .rate = cw_costs_predict(f->c, &then),
                                     .low = f->c->rate,
                                     .change = option_json("memory", (json_int_t)memory)},
                  "a memory budget of %s instead of %s", cw_text_bytes((double)memory, then_text),
                  cw_text_bytes((double)f->c->memory, now_text));
}

static void finding_storage(struct finding *f)
{
    struct cw_costs then = *f->c;
    char now_text[32], then_text[32];
    then.storage_bytes_per_s *= 2;
    double rate = cw_costs_predict(f->c, &then);
    then.cold_bytes = 0;
    finding_offer(f,
                  (struct cw_remedy){
                      .kind = "storage", .rate = rate, .low = rate, .high = cw_costs_predict(f->c, &then)},
                  "storage that reads %s/s instead of %s/s, for files that are not in memory",
                  cw_text_bytes(f->c->storage_bytes_per_s * 2, then_text),
                  cw_text_bytes(f->c->storage_bytes_per_s, now_text));
}

/* Adds the rate of a consumer that never lets batches wait. */
static void finding_consumer(struct finding *f)
{
    struct cw_costs then = *f->c;
    then.consumer_s = then.taken = 0;
    double rate = cw_costs_predict(f->c, &then);
    struct cw_remedy r = {.kind = "consumer",
                          .here = f->c->taken > 0,
                          .rate = rate,
                          .low = rate,
                          .high = rate,
                          .change = option_json("limit-rate", 0)};
    if (f->c->taken > 0)
        finding_offer(f, r,
                      "a consumer that takes batches as soon as they are ready, instead of %.0f elements/s",
                      f->c->taken);
    else
        finding_offer(f, r, "a consumer that takes batches as soon as they are ready");
}

/* ---- a cache ---- */

/* Returns the elements that pass after an operator, per element of a batch. */
static double costs_rows_behind(const struct cw_costs *c, unsigned position)
{
    for (unsigned i = position + 1; i < c->n_ops; i++)
        if (c->ops[i].rows > 0)
            return c->ops[i].rows;
    return 1;
}

/* Whether a fused run that is cut after operator `last` still has two or more operators after the cut, `op`
 * and another one: then these are fused again. */
static bool costs_still_fused(const struct cw_costs *c, unsigned op, unsigned last)
{
    bool any = false;
    for (unsigned i = last + 1; i < c->n_ops; i++)
        any |= i != op && c->ops[i].fused_into == c->ops[op].fused_into;
    return any;
}

/* Sets the costs to those with a cache after operator `last`: operators up to `last` cost nothing. If the
 * cache cuts a fused run, the rest of the run is assumed to gain as much from fusion as the whole run, or
 * nothing
 * (`alone`). False: the costs of the rest are not known. */
static bool costs_skip_before(struct cw_costs *then, unsigned last, bool alone)
{
    for (unsigned i = 0; i < then->n_ops; i++) {
        struct cw_op_cost *o = &then->ops[i];
        bool cut = o->fused_into <= last && i > last && (alone || !costs_still_fused(then, i, last));
        double busy = i <= last ? 0
                      : cut     ? o->alone_s
                                : o->busy_s,
               cpu = i <= last ? 0
                     : cut     ? o->alone_cpu_s
                               : o->cpu_s;
        if (busy < 0)
            return false;
        then->cpu_s += (o->function ? busy : cpu) - (o->function ? o->busy_s : o->cpu_s);
        o->delay_s = i <= last ? 0 : o->delay_s;
        o->busy_s = busy;
        o->cpu_s = cpu;
    }
    return true;
}

/* Returns the seconds of threads' work on an element. */
static double costs_work(const struct cw_costs *c)
{
    return c->read_s + c->emit_s + cw_costs_busy(c, true);
}

/* Returns the CPU time per element for scheduling: CPU time that is not spent on elements or batches. */
static double costs_scheduling_cpu(const struct cw_costs *c)
{
    double s = c->cpu_s - c->read_s - c->emit_s - c->plan_s - c->consumer_s;
    for (unsigned i = 0; i < c->n_ops; i++)
        s -= c->ops[i].function ? c->ops[i].busy_s : c->ops[i].cpu_s;
    return fmax(s, 0);
}

/* Reduces the time of scheduling in proportion to the work on an element. Scheduling time is spent per block
 * (a group of elements). Blocks take about the same time, so cheaper elements share it with more elements. */
static void costs_share_scheduling(const struct cw_costs *now, struct cw_costs *then)
{
    double part = costs_work(now) > 0 ? fmin(costs_work(then) / costs_work(now), 1) : 1;
    then->other_s = now->other_s * part;
    then->late_s = now->late_s * part;
    then->cpu_s -= costs_scheduling_cpu(now) * (1 - part);
}

/* Returns the predicted rate if all elements are read from the cache, in read_s each. c: the measured costs;
 * behind: the costs after the cache; same_blocks: blocks keep their number of elements. */
static double costs_cached_rate(const struct cw_costs *c, const struct cw_costs *behind, double read_s,
                                bool same_blocks)
{
    struct cw_costs then = *behind;
    then.read_s = read_s;
    then.cold_bytes = 0;
    if (!same_blocks)
        costs_share_scheduling(c, &then);
    then.cpu_s = fmax(then.cpu_s + read_s - c->read_s, read_s);
    return cw_costs_predict(c, &then);
}

static int finding_cache(struct finding *f, const struct cw_place *p, struct cw_error *err)
{
    const struct cw_cache_speed *s = f->o->speed;
    _cleanup_(cw_costs_deinit) struct cw_costs behind = {0}, slower = {0};
    double rows = costs_rows_behind(f->c, p->last), source_rows = 0;
    int r = cw_costs_copy(&behind, f->c, err);
    if (r >= 0)
        r = cw_costs_copy(&slower, f->c, err);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < f->c->n_ops; i++)
        source_rows += f->c->ops[i].source ? f->c->ops[i].rows : 0;
    struct cw_remedy m = {.kind = "cache", .here = true};
    m.bytes = isfinite(f->o->elements) && source_rows > 0 ? f->o->elements * rows / source_rows * p->bytes
                                                          : 0;
    if (costs_skip_before(&behind, p->last, false) && costs_skip_before(&slower, p->last, true)) {
        double warm_s = rows * (s->entry_s + p->bytes * s->byte_s),
               cold_s = rows * (s->cold_entry_s + p->bytes * s->cold_byte_s);
        m.here = m.bytes > 0 && m.bytes < f->o->page_cache;
        m.rate = costs_cached_rate(f->c, &behind, m.here ? warm_s : cold_s, false);
        m.low = costs_cached_rate(f->c, &slower, fmax(warm_s, cold_s), true);
        m.high = costs_cached_rate(f->c, &behind, fmin(warm_s, cold_s), false);
    }
    bool there = p->cache_point >= 0;
    m.change = there ? option_json("cache", p->cache_point)
                     : json_pack("{s:{s:s}, s:i}", "insert", "op", "autocache", "at", (int)p->at);
    char size[32];
    finding_offer(f, m, "%s after %s (operator %u): %s for all elements",
                  there ? "a cache at the cache point" : "autocache", f->c->ops[p->last].op, p->last,
                  cw_text_bytes(m.bytes, size));
    return 0;
}

static bool remedy_inserts(const struct cw_remedy *r)
{
    return json_object_get(r->change, "insert") != NULL;
}

/* Orders caches by size. Of two caches of equal size, one at an existing cache point comes first, then the
 * one that gains more. */
static int remedy_compare_bytes(const void *a, const void *b)
{
    const struct cw_remedy *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    if (remedy_inserts(x) != remedy_inserts(y))
        return remedy_inserts(x) ? 1 : -1;
    return x->rate > y->rate ? -1 : x->rate < y->rate ? 1 : 0;
}

/* Drops each cache that does not gain at least LEAST_GAIN more than a smaller one. From index `from` on, the
 * list has only caches. */
static void finding_keep_best_caches(struct finding *f, size_t from)
{
    size_t n = from;
    double best = 0;
    qsort(f->list + from, f->n - from, sizeof(*f->list), remedy_compare_bytes);
    for (size_t i = from; i < f->n; i++) {
        struct cw_remedy r = f->list[i];
        if (r.rate > best * (1 + LEAST_GAIN)) {
            best = r.rate;
            f->list[n++] = r;
        } else {
            json_decref(r.change);
        }
    }
    f->n = n;
}

/* ---- another order ---- */

static int finding_order(struct finding *f, const struct cw_move *m, struct cw_error *err)
{
    _cleanup_(cw_costs_deinit) struct cw_costs then = {0};
    int r = cw_costs_copy(&then, f->c, err);
    if (r < 0)
        return r;
    const struct cw_op_cost *moved = &f->c->ops[m->last + 1];
    for (unsigned i = m->first; i <= m->last; i++) {
        struct cw_op_cost *o = &then.ops[i];
        then.cpu_s -= (1 - m->factor) * (o->function ? o->busy_s : o->cpu_s);
        o->busy_s *= m->factor;
        o->delay_s *= m->factor;
        o->cpu_s *= m->factor;
    }
    costs_share_scheduling(f->c, &then);
    finding_offer(
        f,
        (struct cw_remedy){.kind = "order",
                           .here = true,
                           .rate = cw_costs_predict(f->c, &then),
                           .low = f->c->rate,
                           .change = json_pack("{s:i, s:i}", "move", (int)m->from, "to", (int)m->to)},
        "%s (operator %u) before %s (operator %u), which then has only %.3g %% of its work; the result is "
        "the same",
        moved->op, moved->position, then.ops[m->first].op, m->first, m->factor * 100);
    return 0;
}

/* ---- all of them ---- */

static int remedy_compare_rate(const void *a, const void *b)
{
    const struct cw_remedy *x = a, *y = b;
    return x->rate < y->rate ? 1 : x->rate > y->rate ? -1 : 0;
}

int cw_remedies_find(const struct cw_costs *c, const struct cw_place *places, size_t n_places,
                     const struct cw_move *moves, size_t n_moves, const struct cw_remedy_options *o,
                     struct cw_remedy **ret, size_t *ret_n, struct cw_error *err)
{
    struct finding f = {.c = c, .o = o, .list = calloc(n_places + n_moves + 5, sizeof(*f.list))};
    int r = f.list ? 0 : cw_error_nomem(err, 0, "remedies");
    if (r < 0)
        return r;
    finding_threads(&f);
    if (c->idle_s[CW_IDLE_MEMORY] > 0)
        finding_memory(&f);
    if (c->storage_bytes_per_s > 0)
        finding_storage(&f);
    finding_consumer(&f);
    size_t caches_from = f.n;
    for (size_t i = 0; i < n_places && o->speed && r >= 0; i++)
        r = finding_cache(&f, &places[i], err);
    finding_keep_best_caches(&f, caches_from);
    for (size_t i = 0; i < n_moves && r >= 0; i++)
        r = finding_order(&f, &moves[i], err);
    if (r < 0) {
        cw_remedies_free(f.list, f.n);
        return r;
    }
    qsort(f.list, f.n, sizeof(*f.list), remedy_compare_rate);
    *ret = f.list;
    *ret_n = f.n;
    return 0;
}

void cw_remedies_free(struct cw_remedy *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(r[i].change);
    free(r);
}

json_t *cw_remedies_json(const struct cw_costs *c, const struct cw_remedy *r, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_pack("{s:s, s:s, s:b, s:f, s:f, s:f, s:f}", "kind", r[i].kind, "what", r[i].what,
                              "here", r[i].here, "elements_per_s", r[i].rate, "gain", r[i].rate / c->rate - 1,
                              "low", r[i].low, "high", r[i].high);
        if (o && r[i].change)
            json_object_set(o, "change", r[i].change);
        if (o && r[i].bytes > 0)
            json_object_set_new(o, "bytes", json_real(r[i].bytes));
        json_array_append_new(list, o);
    }
    return list;
}
