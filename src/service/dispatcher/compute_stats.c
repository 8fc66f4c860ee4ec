/* Sums up what the workers computed of a stream. */
#include "service/dispatcher/compute_stats.h"

#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"
#include "service/dispatcher/json_list.h"

/* Returns the index of the operator in the sums, and adds the operator if it is new. guess: its index in the
 * message, usually the same. DP_OPERATORS: there is no room for it. */
static size_t stats_operator(struct compute_stats *c, const char *name, size_t guess)
{
    size_t size = strlen(name);
    if (guess < c->n && strcmp(c->operators[guess].name, name) == 0)
        return guess;
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->operators[i].name, name) == 0)
            return i;
    if (c->n == DP_OPERATORS || size == 0 || size > DP_OPERATOR_NAME || !cw_text_utf8(name, size))
        return DP_OPERATORS;
    struct operator_stats *grown = realloc(c->operators, (c->n + 1) * sizeof(*grown));
    if (!grown)
        return DP_OPERATORS;
    c->operators = grown;
    grown[c->n] = (struct operator_stats){.name = strdup(name)};
    return grown[c->n].name ? c->n++ : DP_OPERATORS;
}

/* Returns by how much a counter grew since *before, and stores it there. 0: the counter is smaller, as it was
 * reset. */
static double stats_increase(uint64_t now, uint64_t *before)
{
    double increase = now > *before ? (double)(now - *before) : 0;
    *before = now;
    return increase;
}

double cw_compute_stats_add(struct compute_stats *sum, struct compute_report *last,
                            const Cachew__StreamWork *m, bool counts)
{
    double weight = counts ? 1 : 0;
    for (size_t i = 0; i < m->n_operators; i++) {
        size_t at = stats_operator(sum, m->operators[i]->name, i);
        if (at == DP_OPERATORS)
            continue;
        double compute_s = weight * stats_increase(m->operators[i]->ns, &last->operators[at].ns) / 1e9;
        sum->operators[at].compute_s += compute_s;
        sum->operators[at].elements += weight * stats_increase(m->operators[i]->elements,
                                                               &last->operators[at].elements);
        sum->compute_s += compute_s;
    }
    sum->read_s += weight * stats_increase(m->read_ns, &last->read_ns) / 1e9;
    sum->read_bytes += weight * stats_increase(m->read_bytes, &last->read_bytes);
    double positions = weight * stats_increase(m->positions, &last->positions);
    sum->positions += positions;
    sum->cached_positions += weight * stats_increase(m->cached_positions, &last->cached_positions);
    return positions;
}

void cw_compute_stats_deinit(struct compute_stats *sum)
{
    for (size_t i = 0; i < sum->n; i++)
        free(sum->operators[i].name);
    free(sum->operators);
    *sum = (struct compute_stats){0};
}

json_t *cw_compute_stats_json(const struct compute_stats *sum)
{
    json_t *operators = json_array();
    for (size_t i = 0; i < sum->n; i++) {
        const struct operator_stats *o = &sum->operators[i];
        cw_dp_json_append(&operators, json_pack("{s:s, s:f, s:f}", "name", o->name, "compute_s", o->compute_s,
                                                "elements", o->elements));
    }
    return json_pack("{s:o, s:f, s:f, s:f, s:f}", "operators", operators, "read_s", sum->read_s, "read_bytes",
                     sum->read_bytes, "positions", sum->positions, "cached_positions", sum->cached_positions);
}
