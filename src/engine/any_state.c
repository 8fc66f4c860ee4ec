/* The position of an iterator in order "any": which split gave how many batches. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/any_impl.h"

void cw_any_place(const struct cw_iterator *it, struct cw_cursor *ret, struct unused *ret_unused)
{
    const struct any *a = it->any;
    *ret = a->handed ? it->at : (struct cw_cursor){.epoch = it->at.epoch}; /* at an epoch's beginning, that of any order and rank */
    for (unsigned k = 0; k < it->n_keys; k++) {
        const struct joined *j = a->joined;
        while (j && j->key != k)
            j = j->next;
        ret_unused[k] = !a->handed ? (struct unused){0} : j ? j->before : it->unused[k];
    }
}

/* Batches of a split of this epoch that were handed out. */
static uint64_t taken(const struct cw_iterator *it, uint64_t index)
{
    struct any *a = it->any;
    for (unsigned i = 0; i < a->n_open; i++) {
        const struct own *o = cw_any_own(a, i);
        if (o->epoch == it->at.epoch && o->index == index)
            return o->taken;
    }
    return cw_any_resumed(a, it->at.epoch, index, it->options.world_size);
}

int cw_any_state(const struct cw_iterator *it, json_t *state)
{
    struct cw_text t = {0};
    uint64_t step = it->options.world_size;
    unsigned n = 0;
    if (!it->any->handed)
        return 0;
    for (unsigned i = 1; i < ANY_POSITIONS && it->at.split + i * step < it->plan.n_splits; i++)
        n = taken(it, it->at.split + i * step) ? i : n;
    for (unsigned i = 1; i <= n; i++)
        cw_text_add(&t, "%s%" PRIu64, i > 1 ? " " : "", taken(it, it->at.split + i * step));
    int r = t.failed || (n && json_object_set_new(state, "batches", json_string(t.data)) < 0) ||
            json_object_set_new(state, "order", json_string("any")) < 0 || json_object_set_new(state, "rank", json_integer(it->options.rank)) < 0 ||
            json_object_set_new(state, "world_size", json_integer((json_int_t)step)) < 0 ? -1 : 0;
    cw_text_deinit(&t);
    return r;
}

/* A split that this rank has, or the end of the epoch. */
static bool is_own(const struct cw_iterator *it, uint64_t split)
{
    return split == it->plan.n_splits || (split < it->plan.n_splits && split % it->options.world_size == it->options.rank);
}

int cw_any_load(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    struct any *a = it->any;
    const char *text = json_string_value(json_object_get(state, "batches")), *at = text;
    a->handed = it->at.g / it->options.world_size;
    if (!json_object_get(state, "order")) /* the beginning of an epoch */
        return 0;
    bool good = it->at.g % it->options.world_size == 0 && is_own(it, it->at.split);
    for (unsigned k = 0; k < it->n_keys; k++)
        good &= is_own(it, it->unused[k].from);
    a->resumed = it->at.split;
    a->taken[a->n_taken++] = it->at.batch;
    while (at && *at && good) {
        int used = 0;
        good = a->n_taken < ANY_POSITIONS && sscanf(at, "%" SCNu64 "%n", &a->taken[a->n_taken], &used) == 1 && a->taken[a->n_taken] < UINT64_MAX;
        a->n_taken += good;
        at += used;
        at += strspn(at, " ");
    }
    return good ? 0 : cw_error_set(err, CW_E_STATE, "state: split %" PRIu64 " with batches \"%.60s\" and remnants of others is no position of rank %u of %u", it->at.split,
                                   text ? text : "", it->options.rank, it->options.world_size);
}
