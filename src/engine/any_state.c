/* The position of an iterator in order "any": which split gave how many batches. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "engine/any_impl.h"

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

/* Of a key: what no batch handed out has of what splits left over. */
static struct unused unused_of(const struct any *a, unsigned key)
{
    for (const struct joined *j = a->joined; j; j = j->next)
        if (j->key == key)
            return j->before;
    return a->unused[key];
}

/* "splits back.skip" by key, where it is not the usual "from the state's split on, none skipped". Splits are
 * counted back from the one behind the state's. */
static void add_remnants(struct cw_text *t, const struct any *a)
{
    unsigned next = 0;
    for (unsigned k = 0; k < a->n_keys; k++) {
        const struct unused u = unused_of(a, k);
        if (u.from != a->split || u.skip) {
            cw_state_add_key(t, k, &next);
            cw_text_add_base36(t, a->split + 1 - u.from);
            cw_text_add(t, ".");
            cw_text_add_base36(t, u.skip);
        }
    }
}

static void add_batches(struct cw_text *t, const struct cw_iterator *it)
{
    uint64_t step = it->options.world_size, from = it->any->split;
    unsigned n = 0;
    for (unsigned i = 1; i < ANY_POSITIONS && from + i * step < cw_any_splits(it); i++)
        n = taken(it, from + i * step) ? i : n;
    for (unsigned i = 1; i <= n; i++)
        cw_text_add(t, "%s%" PRIu64, i > 1 ? " " : "", taken(it, from + i * step));
}

int cw_any_state(const struct cw_iterator *it, json_t *state)
{
    const struct any *a = it->any;
    struct cw_text batches = {0}, remnants = {0};
    json_t *more;
    if (!a->handed) { /* at an epoch's beginning, that of any order and rank */
        more = json_pack("{s:I, s:i, s:i}", "epoch", (json_int_t)it->at.epoch, "g", 0, "position", 0);
    } else {
        add_batches(&batches, it);
        add_remnants(&remnants, a);
        more = json_pack("{s:I, s:I, s:I, s:I, s:s, s:i, s:i, s:s*, s:s*}", "epoch", (json_int_t)it->at.epoch, "g", (json_int_t)a->g, "split", (json_int_t)a->split,
                         "batch", (json_int_t)a->batch, "order", "any", "rank", (int)it->options.rank, "world_size", (int)it->options.world_size, "batches",
                         batches.size ? batches.data : NULL, "remnants", remnants.size ? remnants.data : NULL);
    }
    int r = !more || batches.failed || remnants.failed || json_object_update(state, more) < 0 ? -1 : 0;
    json_decref(more);
    cw_text_deinit(&batches);
    cw_text_deinit(&remnants);
    return r;
}

/* unused has room for n_keys. */
static int state_remnants(const json_t *state, uint64_t split, unsigned n_keys, struct unused *unused, struct cw_error *err)
{
    const char *text = json_string_value(json_object_get(state, "remnants")), *at = text;
    for (unsigned k = 0; k < n_keys; k++)
        unused[k] = (struct unused){.from = split};
    for (unsigned key = 0; at && *at; at += strspn(at, " "), key++) {
        uint64_t back, skip;
        at = cw_state_key(at, &key);
        if (!cw_text_base36(&at, &back) || *at++ != '.' || !cw_text_base36(&at, &skip) ||
            (*at && *at != ' ') || key >= n_keys || back > split + 1)
            return cw_error_set(err, CW_E_STATE,
                                "state: remnants is \"%.60s\": expected \"splits.elements\" or "
                                "\"key:splits.elements\" for keys below %u, numbers in base 36", text, n_keys);
        unused[key] = (struct unused){.from = split + 1 - back, .skip = skip};
    }
    return 0;
}

int cw_any_state_begin(const struct cw_compiled *c, const json_t *state, uint64_t *ret_split, uint64_t *ret_batch, struct cw_error *err)
{
    unsigned n_keys = cw_n_keys(c);
    _cleanup_free_ struct unused *unused = calloc(n_keys + 1, sizeof(*unused));
    uint64_t split = 0, batch = 0;
    int r = unused ? 0 : cw_error_nomem(err, 0, "a state");
    if (r >= 0 && json_object_get(state, "order") && ((r = cw_state_u64(state, "split", &split, err)) >= 0) && (r = cw_state_u64(state, "batch", &batch, err)) >= 0)
        r = state_remnants(state, split, n_keys, unused, err);
    for (unsigned k = 0; k < n_keys && r >= 0 && json_object_get(state, "order"); k++)
        if (unused[k].from < split) {
            split = unused[k].from;
            batch = 0;
        }
    *ret_split = split;
    *ret_batch = batch;
    return r;
}

/* A split that this rank has, or the end of the epoch. */
static bool is_own(const struct cw_iterator *it, uint64_t split)
{
    return split == cw_any_splits(it) || (split < cw_any_splits(it) && split % it->options.world_size == it->options.rank);
}

int cw_any_load(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    struct any *a = it->any;
    const char *text = json_string_value(json_object_get(state, "batches")), *at = text;
    int r;
    if (!json_object_get(state, "order")) /* the beginning of an epoch */
        return 0;
    if ((r = cw_state_u64(state, "g", &a->g, err)) < 0 || (r = cw_state_u64(state, "split", &a->split, err)) < 0 || (r = cw_state_u64(state, "batch", &a->batch, err)) < 0 ||
        (r = state_remnants(state, a->split, a->n_keys, a->unused, err)) < 0)
        return r;
    a->handed = a->g / it->options.world_size;
    bool good = a->g % it->options.world_size == 0 && is_own(it, a->split);
    for (unsigned k = 0; k < a->n_keys; k++)
        good &= is_own(it, a->unused[k].from);
    a->resumed = a->split;
    a->taken[a->n_taken++] = a->batch;
    while (at && *at && good) {
        int used = 0;
        good = a->n_taken < ANY_POSITIONS && sscanf(at, "%" SCNu64 "%n", &a->taken[a->n_taken], &used) == 1 && a->taken[a->n_taken] < UINT64_MAX;
        a->n_taken += good;
        at += used;
        at += strspn(at, " ");
    }
    return good ? 0 : cw_error_set(err, CW_E_STATE, "state: split %" PRIu64 " with batches \"%.60s\" and remnants of others is no position of rank %u of %u", a->split,
                                   text ? text : "", it->options.rank, it->options.world_size);
}
