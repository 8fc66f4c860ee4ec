/* The position of an iterator as JSON, and back. */
#include "engine/iterator_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define STATE_VERSION 1
#define PLAN_VERSION 2 /* of docs/semantics.md: a change there that changes a plan raises it */

/* "key:splits back:skip", where it is not the usual "from the state's split on, none skipped". */
static int add_remnants(json_t *state, const struct cw_cursor *at, const struct unused *unused, unsigned n_keys)
{
    struct cw_text t = {0};
    for (unsigned k = 0; k < n_keys; k++)
        if (unused[k].from != at->split || unused[k].skip)
            cw_text_add(&t, "%s%u:%" PRIi64 ":%" PRIu64, t.size ? " " : "", k, (int64_t)(at->split - unused[k].from), unused[k].skip);
    int r = t.failed || (t.size && json_object_set_new(state, "remnants", json_string(t.data)) < 0) ? -1 : 0;
    cw_text_deinit(&t);
    return r;
}

json_t *cw_iterator_state(const struct cw_iterator *it)
{
    char fingerprint[33], snapshot[17];
    cw_hash128_print(it->compiled->pipeline->fingerprint, fingerprint);
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    struct cw_cursor p = it->round;
    _cleanup_free_ struct unused *by_key = calloc(it->n_keys + 1, sizeof(*by_key));
    if (!by_key)
        return NULL;
    memcpy(by_key, it->round_unused, it->n_keys * sizeof(*by_key));
    if (it->any)
        cw_any_place(it, &p, by_key);
    json_t *state = json_pack("{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "cachew_state", STATE_VERSION, "plan", PLAN_VERSION, "pipeline",
                              fingerprint, "snapshot", snapshot, "seed", (json_int_t)it->splits->seed, "epoch", (json_int_t)p.epoch, "g",
                              (json_int_t)p.g, "split", (json_int_t)p.split, "batch", (json_int_t)p.batch);
    if (!state || add_remnants(state, &p, by_key, it->n_keys) < 0 || (it->any && cw_any_state(it, state) < 0)) {
        json_decref(state);
        state = NULL;
    }
    return state;
}

/* The text of a number is right, and no 64 bits hold it: says of which field. */
static int state_overflow(const char *name, const char *text, size_t size, const json_error_t *je, struct cw_error *err)
{
    json_t *wide = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL), *v;
    const char *key;
    char shown[64] = "";
    json_object_foreach(wide, key, v) {
        double value = json_is_real(v) ? json_real_value(v) : 0;
        if (value < -0x1p63 || value >= 0x1p63) {
            snprintf(shown, sizeof(shown), "%.17g", value);
            cw_error_attribute(err, key, shown, "an integer, at least 0 and less than 2^63");
            (void)cw_error_set(err, CW_E_STATE, "%.300s: %.60s is %s: expected an integer of at least 0, less than 2^63", name, key, shown);
            break;
        }
    }
    json_decref(wide);
    return *shown ? CW_E_STATE : cw_error_set(err, CW_E_STATE, "%.300s is not valid JSON: line %d: %s", name, je->line, je->text);
}

int cw_state_parse(const char *name, const char *text, size_t size, json_t **ret, struct cw_error *err)
{
    json_error_t je;
    *ret = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (*ret)
        return 0;
    if (json_error_code(&je) == json_error_numeric_overflow)
        return state_overflow(name, text, size, &je, err);
    return cw_error_set(err, CW_E_STATE, "%.300s is not valid JSON: line %d: %s (is it cut off?)", name, je.line, je.text);
}

int cw_state_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err)
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
    if ((r = cw_state_u64(state, "cachew_state", &version, err)) < 0 || (r = cw_state_u64(state, "plan", &plan, err)) < 0)
        return r;
    if (version != STATE_VERSION || plan != PLAN_VERSION)
        return cw_error_set(err, CW_E_STATE, "state: version %" PRIu64 " of plan %" PRIu64 ": expected version %d of plan %d; another cachew wrote it",
                            version, plan, STATE_VERSION, PLAN_VERSION);
    cw_hash128_print(c->pipeline->fingerprint, fingerprint);
    if ((r = state_text(state, "pipeline", fingerprint, "pipeline", err)) < 0 || (r = cw_state_u64(state, "seed", &saved, err)) < 0)
        return r;
    return saved == seed ? 0 : cw_error_set(err, CW_E_STATE, "state: seed is %" PRIu64 ", this run has %" PRIu64, saved, seed);
}

/* In the middle of an epoch a state is good for the order that it was saved in, and in order "any" for the rank: at its beginning it is good for all. */
static int state_order(const struct cw_compiled *c, const struct cw_iterator_options *o, const json_t *state, struct cw_error *err)
{
    const json_t *order = json_object_get(state, "order"), *remnants = json_object_get(state, "remnants");
    bool any = cw_any_order(c, o), saved_any = json_is_string(order) && strcmp(json_string_value(order), "any") == 0;
    uint64_t g, split, batch, rank, world_size;
    char have[64], expected[64];
    int r;
    if ((r = cw_state_u64(state, "g", &g, err)) < 0 || (r = cw_state_u64(state, "split", &split, err)) < 0 ||
        (r = cw_state_u64(state, "batch", &batch, err)) < 0)
        return r;
    if (any != saved_any && (saved_any || g || split || batch || remnants)) {
        cw_error_attribute(err, "order", saved_any ? "any" : "exact", any ? "any" : "exact");
        return cw_error_set(err, CW_E_STATE, "state: order is %s, this run has %s: what was handed out in one order can't be left out of the other; expected order %s, or a state "
                            "of the beginning of an epoch", saved_any ? "any" : "exact", any ? "any" : "exact", saved_any ? "any" : "exact");
    }
    if (!saved_any)
        return 0;
    if ((r = cw_state_u64(state, "rank", &rank, err)) < 0 || (r = cw_state_u64(state, "world_size", &world_size, err)) < 0)
        return r;
    if (rank == o->rank && world_size == o->world_size)
        return 0;
    snprintf(have, sizeof(have), "%" PRIu64 " of %" PRIu64, rank, world_size);
    snprintf(expected, sizeof(expected), "%u of %u", o->rank, o->world_size);
    cw_error_attribute(err, "rank", have, expected);
    return cw_error_set(err, CW_E_STATE, "state: rank is %s, this run is rank %s: in order any each rank has splits, and a state, of its own", have, expected);
}

int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const struct cw_iterator_options *o, const json_t *state, struct cw_cursor *ret, struct cw_error *err)
{
    unsigned n_keys = cw_n_keys(c);
    _cleanup_free_ struct unused *unused = calloc(n_keys + 1, sizeof(*unused));
    struct cw_cursor at;
    int r = unused ? 0 : cw_error_nomem(err, 0, "a state");
    if (r < 0 || (r = state_owner(c, seed, state, err)) < 0 || (r = state_order(c, o, state, err)) < 0 ||
        (r = cw_state_u64(state, "epoch", &at.epoch, err)) < 0 || (r = cw_state_u64(state, "split", &at.split, err)) < 0 ||
        (r = cw_state_u64(state, "batch", &at.batch, err)) < 0 || (r = cw_state_u64(state, "g", &at.g, err)) < 0 ||
        (r = state_remnants(state, at.split, n_keys, unused, err)) < 0)
        return r;
    *ret = cw_cursor_least(&at, unused, n_keys);
    return 0;
}

/* Where the length of an epoch is known, a place in it has one number. */
static int state_number(const struct cw_iterator *it, struct cw_error *err)
{
    const struct cw_compiled *c = it->compiled;
    uint64_t each = it->plan.split_size / c->batch_size, last = cw_split_batches(c, &it->plan, it->at.split), g = it->at.split * each + it->at.batch;
    char have[32], expected[64];
    if (it->at.batch > last) {
        snprintf(have, sizeof(have), "%" PRIu64, it->at.batch);
        snprintf(expected, sizeof(expected), "at most %" PRIu64, last);
        cw_error_attribute(err, "batch", have, expected);
        return cw_error_set(err, CW_E_STATE, "state: batch is %s: expected %s, which split %" PRIu64 " has", have, expected, it->at.split);
    }
    if (it->at.g == g)
        return 0;
    snprintf(have, sizeof(have), "%" PRIu64, it->at.g);
    snprintf(expected, sizeof(expected), "%" PRIu64, g);
    cw_error_attribute(err, "g", have, expected);
    return cw_error_set(err, CW_E_STATE, "state: g is %s: expected %s, the number of batches before batch %" PRIu64 " of split %" PRIu64, have, expected, it->at.batch, it->at.split);
}

int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    char snapshot[17];
    uint64_t n_splits = CW_MAX(it->plan.n_splits, 1);
    int r;
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    if ((r = state_owner(it->compiled, it->splits->seed, state, err)) < 0 ||
        (r = state_text(state, "snapshot", snapshot, "data set (files were added, removed or changed)", err)) < 0 ||
        (r = state_order(it->compiled, &it->options, state, err)) < 0 || (r = cw_state_u64(state, "epoch", &it->at.epoch, err)) < 0 ||
        (r = cw_state_u64(state, "g", &it->at.g, err)) < 0 || (r = cw_state_u64(state, "split", &it->at.split, err)) < 0 ||
        (r = cw_state_u64(state, "batch", &it->at.batch, err)) < 0)
        return r;
    if (it->at.split >= n_splits + (it->any != NULL)) /* there it is one past the last where that gave all its batches */
        return cw_error_set(err, CW_E_STATE, "state: split is %" PRIu64 ": expected less than %" PRIu64, it->at.split, n_splits + (it->any != NULL));
    r = state_remnants(state, it->at.split, it->n_keys, it->unused, err);
    if (r >= 0 && it->any)
        return cw_any_load(it, state, err);
    return r >= 0 && it->compiled->counted && !it->n_keys ? state_number(it, err) : r;
}
