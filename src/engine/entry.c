/* An entry: a place in an epoch between two records, and all that the batches after it depend on. It names no
 * range or thread, so any iterator can continue from it. */
#include "engine/entry.h"

#include <stdlib.h>
#include <string.h>

void cw_entry_deinit(struct cw_entry *e)
{
    free(e->skip);
    free(e->limits);
    *e = (struct cw_entry){0};
}

int cw_entry_init(const struct cw_compiled *c, struct cw_entry *e, struct cw_error *err)
{
    unsigned n_keys = cw_n_keys(c);
    *e = (struct cw_entry){0};
    if ((n_keys && !(e->skip = calloc(n_keys, sizeof(*e->skip)))) ||
        (c->n_limits && !(e->limits = calloc(c->n_limits, sizeof(*e->limits))))) {
        cw_entry_deinit(e);
        return cw_error_nomem(err, 0, "a position");
    }
    return 0;
}

struct cw_entry *cw_entry_new(const struct cw_compiled *c)
{
    unsigned n_keys = cw_n_keys(c);
    struct cw_entry *e = calloc(1, sizeof(*e) + n_keys * sizeof(*e->skip) + c->n_limits * sizeof(*e->limits));
    if (!e)
        return NULL;
    e->skip = n_keys ? (uint64_t *)(e + 1) : NULL;
    e->limits = c->n_limits ? (struct cw_limit_count *)((uint64_t *)(e + 1) + n_keys) : NULL;
    return e;
}

void cw_entry_set(const struct cw_compiled *c, struct cw_entry *to, const struct cw_entry *from)
{
    static const struct cw_entry begin;
    from = from ? from : &begin;
    to->position = from->position;
    to->group_given = from->group_given;
    to->group_key = from->group_key;
    for (unsigned k = 0; k < cw_n_keys(c); k++)
        to->skip[k] = from->skip ? from->skip[k] : 0;
    for (unsigned k = 0; k < c->n_limits; k++)
        to->limits[k] = from->limits ? from->limits[k] : (struct cw_limit_count){0};
}

bool cw_entry_is_begin(const struct cw_compiled *c, const struct cw_entry *e)
{
    bool begin = e->position == 0;
    for (unsigned k = 0; k < cw_n_keys(c) && e->skip; k++)
        begin &= e->skip[k] == 0;
    for (unsigned k = 0; k < c->n_limits && e->limits; k++)
        begin &= !e->limits[k].started;
    return begin;
}
