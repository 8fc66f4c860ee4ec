/* Where the time went, in words. */
#include <stdio.h>
#include <string.h>

#include "cli/output.h"

struct share {
    const struct cw_node *node;
    double seconds;
    uint64_t rows;
    unsigned fused_into;
};

static unsigned collect_nodes(const struct cw_chain *chain, struct share *shares)
{
    unsigned n = 0;
    for (size_t i = 0; i < chain->n; i++) {
        for (size_t k = 0; k < chain->nodes[i].n_inputs; k++)
            n += collect_nodes(&chain->nodes[i].inputs[k], shares);
        shares[chain->nodes[i].position].node = &chain->nodes[i];
        n++;
    }
    return n;
}

/* Seconds per operator; the time of fused ones divides as in the blocks that ran unfused. Caller frees. */
static struct share *collect(const struct cw_local *l, struct cw_profile *p)
{
    unsigned n = l->pipeline->n_ops;
    struct share *shares = calloc(n + 1, sizeof(*shares));
    *p = (struct cw_profile){.ops = calloc(n + 1, sizeof(*p->ops)), .n_ops = n};
    unsigned *into = calloc(n + 1, sizeof(*into));
    if (!shares || !p->ops || !into) {
        free(shares);
        free(p->ops);
        free(into);
        p->ops = NULL;
        return NULL;
    }
    collect_nodes(&l->pipeline->chain, shares);
    cw_iterator_profile(l->iterator, p);
    cw_iterator_fused(l->iterator, into);
    for (unsigned i = 0; i < n; i++) {
        double sampled = 0, total = 0;
        for (unsigned k = 0; k < n; k++)
            if (into[k] == into[i]) {
                sampled += (double)p->ops[k].sampled_ns;
                total += (double)(p->ops[k].ns - p->ops[k].sampled_ns);
            }
        double part = sampled > 0 ? (double)p->ops[i].sampled_ns / sampled : into[i] == i;
        shares[i].seconds = (into[i] == i && total == (double)(p->ops[i].ns - p->ops[i].sampled_ns) && sampled == (double)p->ops[i].sampled_ns
                                 ? (double)p->ops[i].ns
                                 : total * part + (double)p->ops[i].sampled_ns) * 1e-9;
        shares[i].rows = p->ops[i].rows ? p->ops[i].rows : p->ops[into[i]].rows;
        shares[i].fused_into = into[i];
    }
    free(into);
    return shares;
}

json_t *cw_profile_json(const struct cw_local *l)
{
    struct cw_profile p;
    struct share *shares = collect(l, &p);
    json_t *list = json_array();
    double busy = 0;
    for (unsigned i = 0; shares && i < p.n_ops; i++)
        busy += shares[i].seconds;
    busy += (double)(p.read_ns + p.plan_ns + p.emit_ns) * 1e-9;
    for (unsigned i = 0; shares && i < p.n_ops; i++) {
        json_t *o = json_pack("{s:s, s:i, s:f, s:f, s:I}", "op", shares[i].node->desc->name, "position", (int)i, "seconds", shares[i].seconds, "share",
                              busy > 0 ? shares[i].seconds / busy : 0.0, "elements", (json_int_t)shares[i].rows);
        if (shares[i].fused_into != i)
            json_object_set_new(o, "fused_into", json_integer(shares[i].fused_into));
        json_array_append_new(list, o);
    }
    const struct { const char *name; uint64_t ns; } rest[] = {{"reading", p.read_ns}, {"planning", p.plan_ns}, {"copying into batches", p.emit_ns}};
    for (size_t i = 0; shares && i < CW_COUNT_OF(rest); i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "part", rest[i].name, "seconds", (double)rest[i].ns * 1e-9, "share",
                                              busy > 0 ? (double)rest[i].ns * 1e-9 / busy : 0.0));
    free(shares);
    free(p.ops);
    return list;
}

const char *cw_profile_bottleneck(const struct cw_local *l)
{
    struct cw_profile p;
    struct share *shares = collect(l, &p);
    const char *name = "unknown";
    double most = 0;
    if (!shares)
        return name;
    /* Threads that mostly have nothing they may do: batches are not taken fast enough, or bytes don't come. */
    if (p.run_ns && (double)p.idle_ns > 0.5 * (double)p.run_ns)
        name = (double)p.wait_ns < 0.5 * (double)p.run_ns / p.threads ? "the consumer" : "reading";
    else
        for (unsigned i = 0; i < p.n_ops; i++)
            if (shares[i].seconds > most) {
                most = shares[i].seconds;
                name = shares[i].node->desc->name;
            }
    free(shares);
    free(p.ops);
    return name;
}
