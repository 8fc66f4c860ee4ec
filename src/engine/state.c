/* The position of an iterator as JSON, and back. */
#include "engine/iterator_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define STATE_VERSION 1
#define PLAN_VERSION 1 /* of docs/semantics.md: a change there that changes a plan raises it */

json_t *cw_iterator_state(const struct cw_iterator *it)
{
    char fingerprint[33], snapshot[17];
    cw_hash128_print(it->compiled->pipeline->fingerprint, fingerprint);
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    const struct cw_cursor *p = &it->round;
    json_t *state = json_pack("{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "cachew_state", STATE_VERSION, "plan", PLAN_VERSION, "pipeline",
                              fingerprint, "snapshot", snapshot, "seed", (json_int_t)it->splits->seed, "epoch", (json_int_t)p->epoch, "g",
                              (json_int_t)p->g, "split", (json_int_t)p->split, "batch", (json_int_t)p->batch);
    struct cw_text t = {0};
    for (unsigned k = 0; k < it->n_keys; k++) { /* "key:splits back:skip", where it is not the usual "from at.split, none skipped" */
        const struct unused *u = &it->round_unused[k];
        if (u->from != p->split || u->skip)
            cw_text_add(&t, "%s%u:%" PRIi64 ":%" PRIu64, t.size ? " " : "", k, (int64_t)(p->split - u->from), u->skip);
    }
    if (t.failed || (t.size && json_object_set_new(state, "remnants", json_string(t.data)) < 0)) {
        json_decref(state);
        state = NULL;
    }
    cw_text_deinit(&t);
    return state;
}

static int state_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err)
{
    const json_t *v = json_object_get(state, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        _cleanup_free_ char *shown = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        cw_error_attribute(err, key, shown ? shown : "missing", "an integer, at least 0");
        return cw_error_set(err, CW_E_STATE, "state: %s is %.60s: expected an integer of at least 0", key, shown ? shown : "missing");
    }
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int state_text(const json_t *state, const char *key, const char *expected, const char *what, struct cw_error *err)
{
    const char *have = json_string_value(json_object_get(state, key));
    if (have && strcmp(have, expected) == 0)
        return 0;
    cw_error_attribute(err, key, have ? have : "missing", expected);
    return cw_error_set(err, CW_E_STATE, "state: %s is %.60s, this run has %s: the state belongs to another %s", key, have ? have : "missing", expected,
                        what);
}

/* unused has room for n_keys. */
static int state_remnants(const json_t *state, uint64_t split, unsigned n_keys, struct unused *unused, struct cw_error *err)
{
    const char *text = json_string_value(json_object_get(state, "remnants")), *at = text;
    for (unsigned k = 0; k < n_keys; k++)
        unused[k] = (struct unused){.from = split};
    while (at && *at) {
        unsigned key;
        int64_t back;
        uint64_t skip;
        int used = 0;
        if (sscanf(at, "%u:%" SCNi64 ":%" SCNu64 "%n", &key, &back, &skip, &used) < 3 || key >= n_keys || back < -1 || (back > 0 && (uint64_t)back > split))
            return cw_error_set(err, CW_E_STATE, "state: remnants is \"%.60s\": expected \"key:splits:elements\" for keys below %u", text, n_keys);
        unused[key] = (struct unused){.from = split - (uint64_t)back, .skip = skip};
        at += used;
        at += strspn(at, " ");
    }
    return 0;
}

/* Whether it was saved by a run of this pipeline and seed, as far as that is known without the data. */
static int state_owner(const struct cw_compiled *c, uint64_t seed, const json_t *state, struct cw_error *err)
{
    char fingerprint[33];
    uint64_t version, plan, saved;
    int r;
    if (!json_is_object(state))
        return cw_error_set(err, CW_E_STATE, "state: expected a JSON object");
    if ((r = state_u64(state, "cachew_state", &version, err)) < 0 || (r = state_u64(state, "plan", &plan, err)) < 0)
        return r;
    if (version != STATE_VERSION || plan != PLAN_VERSION)
        return cw_error_set(err, CW_E_STATE, "state: version %" PRIu64 " of plan %" PRIu64 ": expected version %d of plan %d; another cachew wrote it",
                            version, plan, STATE_VERSION, PLAN_VERSION);
    cw_hash128_print(c->pipeline->fingerprint, fingerprint);
    if ((r = state_text(state, "pipeline", fingerprint, "pipeline", err)) < 0 || (r = state_u64(state, "seed", &saved, err)) < 0)
        return r;
    return saved == seed ? 0 : cw_error_set(err, CW_E_STATE, "state: seed is %" PRIu64 ", this run has %" PRIu64, saved, seed);
}

int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const json_t *state, struct cw_cursor *ret, struct cw_error *err)
{
    unsigned n_keys = cw_n_keys(c);
    _cleanup_free_ struct unused *unused = calloc(n_keys + 1, sizeof(*unused));
    struct cw_cursor at;
    int r = unused ? 0 : cw_error_nomem(err, 0, "a state");
    if (r < 0 || (r = state_owner(c, seed, state, err)) < 0 || (r = state_u64(state, "epoch", &at.epoch, err)) < 0 || (r = state_u64(state, "split", &at.split, err)) < 0 ||
        (r = state_u64(state, "batch", &at.batch, err)) < 0 || (r = state_u64(state, "g", &at.g, err)) < 0 ||
        (r = state_remnants(state, at.split, n_keys, unused, err)) < 0)
        return r;
    *ret = cw_cursor_least(&at, unused, n_keys);
    return 0;
}

int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    char snapshot[17];
    uint64_t n_splits = CW_MAX(it->plan.n_splits, 1);
    int r;
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    if ((r = state_owner(it->compiled, it->splits->seed, state, err)) < 0 ||
        (r = state_text(state, "snapshot", snapshot, "data set (files were added, removed or changed)", err)) < 0 ||
        (r = state_u64(state, "epoch", &it->at.epoch, err)) < 0 ||
        (r = state_u64(state, "g", &it->at.g, err)) < 0 || (r = state_u64(state, "split", &it->at.split, err)) < 0 ||
        (r = state_u64(state, "batch", &it->at.batch, err)) < 0)
        return r;
    if (it->at.split >= n_splits)
        return cw_error_set(err, CW_E_STATE, "state: split is %" PRIu64 ": expected less than %" PRIu64, it->at.split, n_splits);
    return state_remnants(state, it->at.split, it->n_keys, it->unused, err);
}
