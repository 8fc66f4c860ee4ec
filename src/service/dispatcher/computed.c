#include "service/dispatcher/computed.h"

#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"

/* The place of an operator, mostly where it stands in the message too. DP_OPERATORS: it has none. */
static size_t place_of(struct computed *c, const char *name, size_t guess)
{
    size_t size = strlen(name);
    if (guess < c->n && strcmp(c->operators[guess].name, name) == 0)
        return guess;
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->operators[i].name, name) == 0)
            return i;
    if (c->n == DP_OPERATORS || size == 0 || size > DP_OPERATOR_NAME || !cw_text_utf8(name, size))
        return DP_OPERATORS;
    struct computed_operator *grown = realloc(c->operators, (c->n + 1) * sizeof(*grown));
    if (!grown)
        return DP_OPERATORS;
    c->operators = grown;
    grown[c->n] = (struct computed_operator){.name = strdup(name)};
    return grown[c->n].name ? c->n++ : DP_OPERATORS;
}

/* What goes back began anew: from there on it is added. */
static double more(uint64_t now, uint64_t *before)
{
    double more = now > *before ? (double)(now - *before) : 0;
    *before = now;
    return more;
}

void cw_computed_add(struct computed *sum, struct computed_seen *seen, const Cachew__StreamWork *m,
                     bool counts)
{
    double weight = counts ? 1 : 0;
    for (size_t i = 0; i < m->n_operators; i++) {
        size_t at = place_of(sum, m->operators[i]->name, i);
        if (at == DP_OPERATORS)
            continue;
        double compute_s = weight * more(m->operators[i]->ns, &seen->operators[at].ns) / 1e9;
        sum->operators[at].compute_s += compute_s;
        sum->operators[at].elements += weight *
                                       more(m->operators[i]->elements, &seen->operators[at].elements);
        sum->compute_s += compute_s;
    }
    sum->read_s += weight * more(m->read_ns, &seen->read_ns) / 1e9;
    sum->read_bytes += weight * more(m->read_bytes, &seen->read_bytes);
    sum->positions += weight * more(m->positions, &seen->positions);
    sum->cached_positions += weight * more(m->cached_positions, &seen->cached_positions);
}

void cw_computed_deinit(struct computed *sum)
{
    for (size_t i = 0; i < sum->n; i++)
        free(sum->operators[i].name);
    free(sum->operators);
    *sum = (struct computed){0};
}

json_t *cw_computed_json(const struct computed *sum)
{
    json_t *operators = json_array();
    for (size_t i = 0; i < sum->n; i++) {
        const struct computed_operator *o = &sum->operators[i];
        if (json_array_append_new(operators, json_pack("{s:s, s:f, s:f}", "name", o->name, "compute_s",
                                                       o->compute_s, "elements", o->elements)) < 0) {
            json_decref(operators);
            return NULL;
        }
    }
    return json_pack("{s:o, s:f, s:f, s:f, s:f}", "operators", operators, "read_s", sum->read_s, "read_bytes",
                     sum->read_bytes, "positions", sum->positions, "cached_positions", sum->cached_positions);
}
