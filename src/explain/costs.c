/* The costs of an element, and the model that predicts the rate from costs: the basis of `explain`. Called by
 * explain_run.c and remedies.c. */
#include "explain/costs.h"

#include <math.h>
#include <string.h>

#include "base/machine.h"

#define BETWEEN 0.4 /* batches are too small if threads spend more than this part between operators */
#define WAITS 0.5   /* an operator "waits" if it is on a CPU for less than this part of its time */

const char *const cw_resource_names[] = {
    [CW_RESOURCE_THREADS] = "threads",   [CW_RESOURCE_CPUS] = "cpus",
    [CW_RESOURCE_STORAGE] = "storage",   [CW_RESOURCE_CONSUMER] = "consumer",
    [CW_RESOURCE_PLANNING] = "planning",
};

/* ---- from a run ---- */

static void costs_name_ops(const struct cw_chain *chain, struct cw_op_cost *ops)
{
    for (size_t i = 0; i < chain->n; i++) {
        const struct cw_node *node = &chain->nodes[i];
        for (size_t k = 0; k < node->n_inputs; k++)
            costs_name_ops(&node->inputs[k], ops);
        ops[node->position] = (struct cw_op_cost){.op = node->desc->name,
                                                  .position = node->position,
                                                  .fused_into = node->position,
                                                  .source = node->desc->kind == CW_OP_SOURCE,
                                                  .function = node->desc->function};
    }
}

static double seconds_per(uint64_t ns, uint64_t n)
{
    return n ? (double)ns * 1e-9 / (double)n : 0;
}

/* Adds the costs of operators. The profile counts the time of a fused run under its first operator, except in
 * the few blocks that ran unfused (samples). The time is divided among the operators in the proportion of
 * these samples. */
static void costs_add_ops(struct cw_costs *c, const struct cw_profile *p, double elements)
{
    for (unsigned i = 0; i < c->n_ops; i++) {
        const struct cw_op_profile *o = &p->ops[i], *into = &p->ops[c->ops[i].fused_into];
        double fused = 0, sampled = 0, sampled_cpu = 0, rows = (double)into->rows,
               live = into->rows ? (double)into->live_rows / rows : 0;
        bool alone = true;
        for (unsigned k = 0; k < c->n_ops; k++)
            if (c->ops[k].fused_into == c->ops[i].fused_into) {
                alone &= k == i;
                sampled += (double)p->ops[k].sampled_ns;
                sampled_cpu += (double)p->ops[k].sampled_cpu_ns;
                fused += (double)p->ops[k].ns;
            }
        c->ops[i].rows = rows * live / elements;
        c->ops[i].busy_s = (double)o->ns * 1e-9 / elements;
        c->ops[i].cpu_s = (double)o->cpu_ns * 1e-9 / elements;
        c->ops[i].call_s = (double)o->call_ns * 1e-9 / elements;
        c->calls_s += c->ops[i].call_s;
        c->ops[i].alone_s = c->ops[i].busy_s;
        c->ops[i].alone_cpu_s = c->ops[i].cpu_s;
        if (alone)
            continue;
        double own = seconds_per(o->sampled_ns, o->sampled_rows) * rows / elements,
               own_cpu = seconds_per(o->sampled_cpu_ns, o->sampled_rows) * rows / elements;
        c->ops[i].alone_s = o->sampled_rows ? own : -1;
        c->ops[i].alone_cpu_s = o->sampled_rows ? own_cpu : -1;
        c->ops[i].busy_s = fused * 1e-9 / elements *
                           (sampled > 0 ? (double)o->sampled_ns / sampled : c->ops[i].fused_into == i);
        c->ops[i].cpu_s = (double)into->cpu_ns * 1e-9 / elements *
                          (sampled_cpu > 0 ? (double)o->sampled_cpu_ns / sampled_cpu
                                           : c->ops[i].fused_into == i);
    }
}

/* Divides delay_s, the time that threads waited for a CPU, among its causes. The system reports only the sum.
 * It is assigned, in this order, to operators that took longer than they were on a CPU, in proportion to
 * their CPU time; to the rest of such waits, since waking up may be late; and to the time between operators.
 */
static void costs_separate_delay(struct cw_costs *c)
{
    double cpu_s = 0, left = c->delay_s, gaps = 0;
    for (unsigned i = 0; i < c->n_ops; i++)
        cpu_s += c->ops[i].cpu_s;
    for (unsigned i = 0; i < c->n_ops && cpu_s > 0; i++) {
        struct cw_op_cost *o = &c->ops[i];
        o->delay_s = fmin(c->delay_s * o->cpu_s / cpu_s, fmax(o->busy_s - o->cpu_s, 0));
        left -= o->delay_s;
        gaps += fmax(o->busy_s - o->cpu_s, 0) - o->delay_s;
    }
    for (unsigned i = 0; i < c->n_ops; i++) {
        struct cw_op_cost *o = &c->ops[i];
        double wall_s = o->busy_s, gap = fmax(wall_s - o->cpu_s, 0) - o->delay_s;
        double late_s = gaps > 0 ? fmin(left * gap / gaps, gap) : 0;
        o->delay_s += late_s;
        o->busy_s -= o->delay_s;
        o->alone_s = o->alone_s == wall_s ? o->busy_s
                     : wall_s > 0         ? o->alone_s * o->busy_s / wall_s
                                          : o->alone_s;
    }
    c->late_s = fmin(fmax(left - gaps, 0), c->other_s);
    c->other_s -= c->late_s;
}

double cw_costs_value_bytes(const struct cw_compiled *c, const struct cw_profile *p, unsigned leaf,
                            unsigned value, const struct cw_type *type)
{
    const struct cw_value_profile *v = &p->values[cw_value_index(c, leaf, value)];
    if (cw_type_fixed(type))
        return (double)cw_type_bytes(type);
    return v->rows ? (double)v->bytes / (double)v->rows : NAN;
}

/* Returns the mean bytes of an element after ops[at], of components that later operators need. */
static double program_bytes_behind(const struct cw_compiled *c, const struct cw_profile *p,
                                   const struct cw_program *g, unsigned at)
{
    double bytes = 0;
    for (unsigned i = 0; i <= at; i++)
        for (unsigned k = 0; k < g->ops[i]->n_out; k++)
            if (cw_program_needs(g, at, g->ops[i]->out[k].value))
                bytes += cw_costs_value_bytes(c, p, g->leaf, g->ops[i]->out[k].value,
                                              &g->ops[i]->out[k].type);
    return bytes;
}

/* Sets the bytes after each operator: the mean over the sources whose elements pass the operator, weighted by
 * the numbers of their elements. */
static void costs_add_bytes(struct cw_costs *c, const struct cw_compiled *compiled,
                            const struct cw_profile *p)
{
    for (unsigned i = 0; i < c->n_ops; i++) {
        double sum = 0, weight = 0;
        for (unsigned k = 0; k < compiled->n_programs; k++) {
            const struct cw_program *g = &compiled->programs[k];
            double w = (double)p->ops[g->ops[0]->position].rows;
            for (unsigned at = 0; at < g->n_ops && w > 0; at++)
                if (g->ops[at]->position == i) {
                    sum += w * program_bytes_behind(compiled, p, g, at);
                    weight += w;
                }
        }
        c->ops[i].bytes = weight > 0 ? sum / weight : NAN;
    }
}

/* Returns how many CPUs this process can get: fewer than it may use if its threads waited for a CPU, but at
 * least the number that it used. */
static double measurement_cpus(const struct cw_measurement *m, double used)
{
    double cpus = cw_cpu_budget(), wanted = m->cpu_s + m->delay_s;
    return fmin(cpus, fmax(wanted > 0 ? cpus * m->cpu_s / wanted : cpus, used));
}

int cw_costs_init(struct cw_costs *c, const struct cw_local *l, const struct cw_measurement *m,
                  struct cw_error *err)
{
    const struct cw_profile *p = &m->profile;
    double n = (double)p->emit_rows;
    _cleanup_free_ unsigned *into = calloc(l->pipeline->n_ops + 1, sizeof(*into));
    *c = (struct cw_costs){.n_ops = l->pipeline->n_ops,
                           .threads = m->options.threads,
                           .memory = m->options.memory,
                           .taken = m->options.rate,
                           .rate = cw_measurement_rate(m),
                           .noise = m->noise};
    if (!into || !(c->ops = calloc(c->n_ops + 1, sizeof(*c->ops))))
        return cw_error_nomem(err, 0, "costs");
    if (p->emit_rows == 0 || m->elements == 0)
        return 1;
    costs_name_ops(&l->pipeline->chain, c->ops);
    cw_iterator_fused(l->iterator, into);
    for (unsigned i = 0; i < c->n_ops; i++)
        c->ops[i].fused_into = into[i];
    costs_add_ops(c, p, n);
    costs_add_bytes(c, l->compiled, p);
    c->cpu_s = m->cpu_s / n;
    c->delay_s = m->delay_s / n;
    c->plan_s = (double)p->plan_ns * 1e-9 / n;
    c->read_s = (double)(p->read_ns - p->cold_ns) * 1e-9 / n;
    c->emit_s = (double)p->emit_ns * 1e-9 / n;
    for (int i = 0; i < CW_N_IDLE; i++)
        c->idle_s[i] = (double)p->idle_for_ns[i] * 1e-9 / n;
    c->other_s = fmax((double)(p->run_ns - CW_MIN(p->idle_ns, p->run_ns)) * 1e-9 / n -
                          cw_costs_busy(c, false) - c->plan_s - c->read_s - c->emit_s,
                      0);
    costs_separate_delay(c);
    for (unsigned i = 0; i < c->n_ops; i++)
        c->cpu_s += c->ops[i].function ? fmax(c->ops[i].busy_s - c->ops[i].cpu_s, 0) + c->ops[i].call_s : 0;
    c->cpus = measurement_cpus(m, c->cpu_s * n / m->seconds);
    /* wait_ns includes the time in which the consumer waits for its own calls */
    c->consumer_s = fmax(m->seconds - (double)p->wait_ns * 1e-9, 0) / (double)m->elements;
    c->read_bytes = (double)p->read_bytes / n;
    c->cold_bytes = (double)p->cold_bytes / n;
    c->storage_bytes_per_s = p->cold_wall_ns ? (double)p->cold_bytes * 1e9 / (double)p->cold_wall_ns : 0;
    return 0;
}

int cw_costs_copy(struct cw_costs *to, const struct cw_costs *from, struct cw_error *err)
{
    *to = *from;
    if (!(to->ops = malloc((from->n_ops + 1) * sizeof(*to->ops))))
        return cw_error_nomem(err, 0, "costs");
    memcpy(to->ops, from->ops, from->n_ops * sizeof(*to->ops));
    return 0;
}

void cw_costs_deinit(struct cw_costs *c)
{
    free(c->ops);
    *c = (struct cw_costs){0};
}

/* ---- the model ---- */

double cw_costs_busy(const struct cw_costs *c, bool delayed)
{
    double s = 0;
    for (unsigned i = 0; i < c->n_ops; i++)
        s += c->ops[i].busy_s + (delayed ? c->ops[i].delay_s : 0);
    return s;
}

double cw_costs_occupied(const struct cw_costs *c)
{
    return c->plan_s + c->read_s + c->emit_s + c->other_s + c->late_s + c->idle_s[CW_IDLE_MEMORY] +
           c->idle_s[CW_IDLE_OTHER] + cw_costs_busy(c, true);
}

static double rate_over(double n, double seconds)
{
    return seconds > 0 ? n / seconds : INFINITY;
}

enum cw_resource cw_costs_limits(const struct cw_costs *c, double ret[CW_N_RESOURCES])
{
    enum cw_resource least = CW_RESOURCE_THREADS;
    ret[CW_RESOURCE_THREADS] = rate_over(c->threads, cw_costs_occupied(c));
    ret[CW_RESOURCE_CPUS] = rate_over(c->cpus, c->cpu_s);
    ret[CW_RESOURCE_STORAGE] = c->storage_bytes_per_s > 0 ? rate_over(c->storage_bytes_per_s, c->cold_bytes)
                                                          : INFINITY;
    ret[CW_RESOURCE_CONSUMER] = fmin(rate_over(1, c->consumer_s + c->calls_s),
                                     c->taken > 0 ? c->taken : INFINITY);
    ret[CW_RESOURCE_PLANNING] = rate_over(1, c->plan_s); /* one thread at a time plans */
    for (enum cw_resource i = 1; i < CW_N_RESOURCES; i++)
        if (ret[i] < ret[least])
            least = i;
    return least;
}

double cw_costs_predict(const struct cw_costs *now, const struct cw_costs *then)
{
    double before[CW_N_RESOURCES], after[CW_N_RESOURCES];
    double from = before[cw_costs_limits(now, before)], to = after[cw_costs_limits(then, after)];
    return isfinite(from) && isfinite(to) ? now->rate * to / from : now->rate;
}

static struct cw_bottleneck op_cost_bottleneck(const struct cw_op_cost *o)
{
    if (o->function)
        return (struct cw_bottleneck){.kind = "function", .op = o, .says = "its Python function runs"};
    return o->cpu_s < WAITS * o->busy_s
               ? (struct cw_bottleneck){.kind = "waiting", .op = o, .says = "it waits"}
               : (struct cw_bottleneck){.kind = "cpu", .op = o, .says = "it computes"};
}

/* Returns the operator whose calls take most of the consumer's time; NULL: the consumer's own step takes
 * more. */
static const struct cw_op_cost *costs_caller(const struct cw_costs *c)
{
    const struct cw_op_cost *most = NULL;
    for (unsigned i = 0; i < c->n_ops; i++)
        if (c->ops[i].call_s > (most ? most->call_s : c->consumer_s))
            most = &c->ops[i];
    return most;
}

struct cw_bottleneck cw_costs_bottleneck(const struct cw_costs *c)
{
    /* threads that wait for a CPU do no work, so shares are of the time without that */
    double limits[CW_N_RESOURCES], most = 0,
                                   late_s = c->late_s + cw_costs_busy(c, true) - cw_costs_busy(c, false),
                                   occupied = cw_costs_occupied(c) - late_s;
    enum cw_resource least = cw_costs_limits(c, limits);

    const struct {
        double s;
        const char *kind, *says;
    } parts[] = {
        {c->other_s, "scheduling", "scheduling the threads, because the operators take little time"},
        {c->read_s, "reading", "reading files that are in memory"},
        {c->emit_s, "copying", "copying into batches"},
        {c->plan_s, "planning", NULL},
        {c->idle_s[CW_IDLE_MEMORY], "memory", "waiting for memory, because the budget is used up"},
        {c->idle_s[CW_IDLE_OTHER], "order", "waiting until earlier elements are computed"},
    };

    struct cw_bottleneck b = {.kind = parts[0].kind, .says = parts[0].says};

    if (least == CW_RESOURCE_CONSUMER && (b.op = costs_caller(c)))
        return (struct cw_bottleneck){.kind = "calls", .op = b.op, .share = fmin(c->rate * b.op->call_s, 1)};
    if (least == CW_RESOURCE_STORAGE || least == CW_RESOURCE_CONSUMER || least == CW_RESOURCE_PLANNING)
        return (struct cw_bottleneck){.kind = cw_resource_names[least],
                                      .share = fmin(c->rate / limits[least], 1)};
    for (unsigned i = 0; i < c->n_ops; i++)
        if (c->ops[i].busy_s > most) {
            most = c->ops[i].busy_s;
            b = op_cost_bottleneck(&c->ops[i]);
        }
    for (size_t i = 0; i < CW_COUNT_OF(parts); i++)
        if (parts[i].s > most) {
            most = parts[i].s;
            b = (struct cw_bottleneck){.kind = parts[i].kind, .says = parts[i].says};
        }
    b.share = occupied > 0 ? most / occupied : 0;
    return b;
}

bool cw_costs_wants_larger_batches(const struct cw_costs *c)
{
    double limits[CW_N_RESOURCES], operators = cw_costs_busy(c, false);
    enum cw_resource least = cw_costs_limits(c, limits);
    /* with another limit, threads wait for that resource, and time between operators does not matter */
    bool own = least == CW_RESOURCE_THREADS || least == CW_RESOURCE_CPUS || least == CW_RESOURCE_PLANNING;
    return own && c->other_s + c->plan_s > CW_MAX(operators, BETWEEN * cw_costs_occupied(c));
}

/* ---- as JSON ---- */

static json_t *costs_stages_json(const struct cw_costs *c)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < c->n_ops; i++) {
        const struct cw_op_cost *o = &c->ops[i];
        if (o->rows <= 0)
            continue;
        double busy = o->busy_s / o->rows;
        json_t *s = json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f}", "op", o->op, "position",
                              (int)o->position, "elements_per_s", o->rows * c->rate, "rows", o->rows, "cpu_s",
                              o->cpu_s / o->rows, "wait_s", fmax(busy - o->cpu_s / o->rows, 0), "delay_s",
                              o->delay_s / o->rows);
        if (s && o->fused_into != o->position)
            json_object_set_new(s, "fused_into", json_integer(o->fused_into));
        if (s && isfinite(o->bytes))
            json_object_set_new(s, "bytes", json_real(o->bytes));
        if (s && o->call_s > 0)
            json_object_set_new(s, "call_s", json_real(o->call_s / o->rows));
        if (s && o->alone_s >= 0 && o->alone_s != o->busy_s)
            json_object_set_new(s, "alone_s", json_real(o->alone_s / o->rows));
        json_array_append_new(list, s);
    }
    return list;
}

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *cw_costs_json(const struct cw_costs *c)
{
    double limits[CW_N_RESOURCES];
    enum cw_resource least = cw_costs_limits(c, limits);
    json_t *l = json_object();
    for (int i = 0; i < CW_N_RESOURCES; i++)
        json_object_set_new(l, cw_resource_names[i], real_or_null(limits[i]));
    return json_pack(
        "{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:{s:f, s:f, s:f, s:f, s:f, s:f, s:f}, s:{s:f, "
        "s:f, s:f, s:o}, s:o, s:s}",
        "elements_per_s", c->rate, "threads", (int)c->threads, "cpus", c->cpus, "thread_s",
        cw_costs_occupied(c), "cpu_s", c->cpu_s, "delay_s", c->delay_s, "consumer_s", c->consumer_s,
        "calls_s", c->calls_s, "taken_per_s", c->taken > 0 ? json_real(c->taken) : json_null(), "stages",
        costs_stages_json(c), "parts", "delay_s", c->late_s, "reading_s", c->read_s, "planning_s", c->plan_s,
        "copying_s", c->emit_s, "scheduling_s", c->other_s, "memory_s", c->idle_s[CW_IDLE_MEMORY], "order_s",
        c->idle_s[CW_IDLE_OTHER], "storage", "bytes_per_element", c->read_bytes, "cold_bytes_per_element",
        c->cold_bytes, "needed_bytes_per_s", c->read_bytes * c->rate, "had_bytes_per_s",
        c->storage_bytes_per_s > 0 ? json_real(c->storage_bytes_per_s) : json_null(), "limits", l, "limit",
        cw_resource_names[least]);
}
