/* States: writes the position of an iterator as JSON, and reads it back. iterator.c and remote/ call it. */
#include "order/iterator_impl.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define STATE_VERSION 4
/* raised by each change of docs/semantics.md that changes the batches of a pipeline */
#define PLAN_VERSION 3

/* Lists by key in a state have the form "value value key:value". A value without a key belongs to the key
 * after the one before. 100 numbers below 36^6 take at most 700 bytes, so that a state with 100 keys stays
 * within 1 KB. */
/* Writes the separator and, unless it is *next, the key before the key's value. *next: the key that need not
 * be written; 0 at first. It is set to key + 1. */
static void state_add_key(struct cw_text *t, unsigned key, unsigned *next)
{
    if (t->size)
        cw_text_add(t, " ");
    if (key != *next)
        cw_text_add(t, "%u:", key);
    *next = key + 1;
}

/* Returns where the value begins in the text at `at`. If a key is written before the value, sets *key. */
static const char *state_read_key(const char *at, unsigned *key)
{
    uint64_t named;
    int used = 0;
    if (sscanf(at, "%" SCNu64 ":%n", &named, &used) == 1 && used > 0)
        *key = (unsigned)CW_MIN(named, UINT_MAX);
    return at + used;
}

/* Adds `skip` for keys that skip something, `limits` ("limit:pass:elements") for limits that counted
 * something, and `group` ("key:batches") if a group of batches has begun. */
static int state_add_entry(const struct cw_compiled *c, json_t *state, const struct cw_entry *e)
{
    struct cw_text skip = {0}, limits = {0};
    unsigned next = 0;
    for (unsigned k = 0; k < cw_n_keys(c); k++)
        if (e->skip[k]) {
            state_add_key(&skip, k, &next);
            cw_text_add_base36(&skip, e->skip[k]);
        }
    for (unsigned k = 0; k < c->n_limits; k++)
        if (e->limits[k].started)
            cw_text_add(&limits, "%s%u:%" PRIu64 ":%" PRIu64, limits.size ? " " : "", k, e->limits[k].pass,
                        e->limits[k].count);
    int r = skip.failed || limits.failed ||
                    (skip.size && json_object_set_new(state, "skip", json_string(skip.data)) < 0) ||
                    (limits.size && json_object_set_new(state, "limits", json_string(limits.data)) < 0) ||
                    (e->group_given &&
                     json_object_set_new(state, "group",
                                         json_sprintf("%u:%u", e->group_key, e->group_given)) < 0)
                ? -1
                : 0;
    cw_text_deinit(&skip);
    cw_text_deinit(&limits);
    return r;
}

/* Adds `handed_out`, the batches that were handed out before their turn: a hexadecimal number whose bit i
 * stands for the batch of round i, counted from g. Adds the rank if the state is valid for that rank only. */
static int state_add_rank(const struct cw_iterator *it, json_t *state)
{
    char bits[17];
    bool own = it->options.own_ranges, handed = it->round.handed != 0;
    snprintf(bits, sizeof(bits), "%" PRIx64, it->round.handed);
    return (!handed || json_object_set_new(state, "handed_out", json_string(bits)) == 0) &&
                   (!own || json_object_set_new(state, "own_ranges", json_true()) == 0) &&
                   (!(own || handed) ||
                    (json_object_set_new(state, "rank", json_integer(it->options.rank)) == 0 &&
                     json_object_set_new(state, "world_size", json_integer(it->options.world_size)) == 0))
               ? 0
               : -1;
}

json_t *cw_iterator_state(const struct cw_iterator *it)
{
    char fingerprint[33], snapshot[17];
    const struct cw_cursor *at = &it->round;
    cw_hash128_print(it->compiled->pipeline->fingerprint, fingerprint);
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    json_t *state = json_pack("{s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:I}", "cachew_state", STATE_VERSION,
                              "plan", PLAN_VERSION, "pipeline", fingerprint, "snapshot", snapshot, "seed",
                              (json_int_t)it->producer->seed, "epoch", (json_int_t)at->epoch, "g",
                              (json_int_t)at->g, "position", (json_int_t)at->entry.position);
    if (!state || state_add_entry(it->compiled, state, &at->entry) < 0 || state_add_rank(it, state) < 0) {
        json_decref(state);
        return NULL;
    }
    return state;
}

/* Sets the error about JSON with a number that does not fit in 64 bits: it names the field. */
static int state_overflow(const char *name, const char *text, size_t size, const json_error_t *je,
                          struct cw_error *err)
{
    json_t *wide = json_loadb(text, size, JSON_DECODE_INT_AS_REAL, NULL), *v;
    const char *key;
    char shown[64] = "";
    json_object_foreach(wide, key, v)
    {
        double value = json_is_real(v) ? json_real_value(v) : 0;
        if (value < -0x1p63 || value >= 0x1p63) {
            snprintf(shown, sizeof(shown), "%.17g", value);
            (void)cw_error_value(err, CW_E_STATE, key, shown, "an integer, at least 0 and less than 2^63",
                                 "%.300s: %.60s is %s: expected an integer of at least 0, less than 2^63",
                                 name, key, shown);
            break;
        }
    }
    json_decref(wide);
    return *shown ? CW_E_STATE
                  : cw_error_set(err, CW_E_STATE, "%.300s is not valid JSON: line %d: %s", name, je->line,
                                 je->text);
}

int cw_state_parse(const char *name, const char *text, size_t size, json_t **ret, struct cw_error *err)
{
    json_error_t je;
    *ret = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (*ret)
        return 0;
    if (json_error_code(&je) == json_error_numeric_overflow)
        return state_overflow(name, text, size, &je, err);
    return cw_error_set(err, CW_E_STATE,
                        "%.300s is not valid JSON: line %d: %s (is the end of the file missing?)", name,
                        je.line, je.text);
}

static int state_read_u64(const json_t *state, const char *key, uint64_t *ret, struct cw_error *err)
{
    const json_t *v = json_object_get(state, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        _cleanup_free_ char *shown = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        return cw_error_value(err, CW_E_STATE, key, shown ? shown : "missing", "an integer, at least 0",
                              "state: %s is %.60s: expected an integer of at least 0", key,
                              shown ? shown : "missing");
    }
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int state_check_text(const json_t *state, const char *key, const char *expected, const char *what,
                            struct cw_error *err)
{
    const char *have = json_string_value(json_object_get(state, key));
    if (have && strcmp(have, expected) == 0)
        return 0;
    return cw_error_value(err, CW_E_STATE, key, have ? have : "missing", expected,
                          "state: %s is %.60s, this run has %s: the state belongs to another %s", key,
                          have ? have : "missing", expected, what);
}

/* e has room for all keys. */
static int state_read_skip(const struct cw_compiled *c, const char *skip, struct cw_entry *e,
                           struct cw_error *err)
{
    unsigned key = 0;
    for (const char *at = skip; *at; at += strspn(at, " "), key++) {
        uint64_t n;
        at = state_read_key(at, &key);
        if (!cw_text_base36(&at, &n) || (*at && *at != ' ') || key >= cw_n_keys(c) || n >= CW_ENDLESS)
            return cw_error_set(err, CW_E_STATE,
                                "state: skip is \"%.60s\", so the state is damaged: expected \"elements\" or "
                                "\"key:elements\", with keys below %u and elements in base 36",
                                skip, cw_n_keys(c));
        e->skip[key] = n;
    }
    return 0;
}

/* Reads `group`: text, which may be NULL. */
static int state_read_group(const struct cw_compiled *c, const char *text, struct cw_entry *e,
                            struct cw_error *err)
{
    int used = 0;
    if (!text || (sscanf(text, "%u:%u%n", &e->group_key, &e->group_given, &used) == 2 && !text[used] &&
                  e->group_key < c->n_buckets && e->group_given < c->grouping.size))
        return 0;
    return cw_error_set(
        err, CW_E_STATE,
        "state: group is \"%.60s\", so the state is damaged: expected \"bucket:batches\", with "
        "a bucket below %u and fewer than %u batches",
        text, c->n_buckets, c->grouping.size);
}

/* e has room for all keys. */
static int state_read_entry(const struct cw_compiled *c, const json_t *state, struct cw_entry *e,
                            struct cw_error *err)
{
    const char *skip = json_string_value(json_object_get(state, "skip")),
               *limits = json_string_value(json_object_get(state, "limits"));
    int r = state_read_u64(state, "position", &e->position, err), used;
    unsigned k;
    if (r >= 0 && skip)
        r = state_read_skip(c, skip, e, err);
    if (r >= 0)
        r = state_read_group(c, json_string_value(json_object_get(state, "group")), e, err);
    for (const char *at = limits; r >= 0 && at && *at; at += used, at += strspn(at, " ")) {
        struct cw_limit_count l = {.started = true};
        used = 0;
        if (sscanf(at, "%u:%" SCNu64 ":%" SCNu64 "%n", &k, &l.pass, &l.count, &used) < 3 || used == 0 ||
            k >= c->n_limits || l.count >= CW_ENDLESS)
            return cw_error_set(err, CW_E_STATE,
                                "state: limits is \"%.60s\", so the state is damaged: expected "
                                "\"limit:pass:elements\" with limits below %u",
                                limits, c->n_limits);
        e->limits[k] = l;
    }
    return r;
}

/* Checks, as far as possible without the data, that a run of this pipeline and seed saved the state. */
static int state_check_owner(const struct cw_compiled *c, uint64_t seed, const json_t *state,
                             struct cw_error *err)
{
    char fingerprint[33];
    uint64_t version, plan, saved;
    int r;
    if (!json_is_object(state))
        return cw_error_set(err, CW_E_STATE, "state: expected a JSON object");
    if ((r = state_read_u64(state, "cachew_state", &version, err)) < 0 ||
        (r = state_read_u64(state, "plan", &plan, err)) < 0)
        return r;
    if (version != STATE_VERSION || plan != PLAN_VERSION)
        return cw_error_set(err, CW_E_STATE,
                            "state: another version of Cachew wrote it (version %" PRIu64
                            " of states and %" PRIu64
                            " of plans; this Cachew has %d and %d): resume with the Cachew that wrote it",
                            version, plan, STATE_VERSION, PLAN_VERSION);
    cw_hash128_print(c->pipeline->fingerprint, fingerprint);
    if ((r = state_check_text(state, "pipeline", fingerprint, "pipeline", err)) < 0 ||
        (r = state_read_u64(state, "seed", &saved, err)) < 0)
        return r;
    return saved == seed ? 0
                         : cw_error_set(err, CW_E_STATE,
                                        "state: it was saved by a run with seed %" PRIu64
                                        ", but this run has seed %" PRIu64,
                                        saved, seed);
}

static int state_read_handed(const struct cw_iterator_options *o, const json_t *state, uint64_t *ret,
                             struct cw_error *err)
{
    const char *bits = json_string_value(json_object_get(state, "handed_out"));
    char *end;
    *ret = 0;
    if (!json_object_get(state, "handed_out"))
        return 0;
    *ret = strtoull(bits ? bits : "", &end, 16);
    if (!bits || !*bits || *end || strlen(bits) > 16)
        return cw_error_set(
            err, CW_E_STATE,
            "state: handed_out is %.60s, so the state is damaged: expected 1 to 16 hexadecimal digits",
            bits ? bits : "no text");
    if (!o->unordered)
        return cw_error_value(
            err, CW_E_STATE, "order", "any", "exact",
            "state: it was saved by a run with order \"any\", which had delivered some batches out of order; "
            "a run with order \"exact\" would deliver them again; expected order \"any\"");
    return 0;
}

/* Checks the rank. A state is valid for its own rank only if batches were handed out before their turn, or if
 * the rank has ranges of its own. */
static int state_check_rank(const struct cw_iterator_options *o, const json_t *state, struct cw_error *err)
{
    bool own = json_is_true(json_object_get(state, "own_ranges")),
         begun = json_integer_value(json_object_get(state, "g")) > 0;
    uint64_t rank, world_size;
    char have[64], expected[64];
    int r;
    if (own != o->own_ranges && (own || begun))
        return cw_error_value(err, CW_E_STATE, "guarantee", own ? "at-most-once" : "exactly-once",
                              o->at_most_once ? "at-most-once" : "exactly-once",
                              "state: its batch %s made of data of one rank only (as guarantee "
                              "\"at-most-once\" does with several ranks), but this run's batches %s: "
                              "expected a state that a run with the same guarantee wrote",
                              own ? "is" : "is not", own ? "are not" : "are");
    if (!own && !json_object_get(state, "handed_out"))
        return 0;
    if ((r = state_read_u64(state, "rank", &rank, err)) < 0 ||
        (r = state_read_u64(state, "world_size", &world_size, err)) < 0)
        return r;
    if (rank == o->rank && world_size == o->world_size)
        return 0;
    snprintf(have, sizeof(have), "%" PRIu64 " of %" PRIu64, rank, world_size);
    snprintf(expected, sizeof(expected), "%u of %u", o->rank, o->world_size);
    return cw_error_value(err, CW_E_STATE, "rank", have, expected,
                          "state: it was saved by rank %s, and this run is rank %s: the state says only "
                          "which batches its own rank has got; load each rank's own state",
                          have, expected);
}

int cw_state_begin(const struct cw_compiled *c, uint64_t seed, const struct cw_iterator_options *o,
                   const json_t *state, struct cw_cursor *ret, struct cw_error *err)
{
    int r;
    if ((r = state_check_owner(c, seed, state, err)) < 0 ||
        (r = state_read_handed(o, state, &ret->handed, err)) < 0 ||
        (r = state_check_rank(o, state, err)) < 0 ||
        (r = state_read_u64(state, "epoch", &ret->epoch, err)) < 0 ||
        (r = state_read_u64(state, "g", &ret->g, err)) < 0)
        return r;
    return state_read_entry(c, state, &ret->entry, err);
}

static int state_wrong(struct cw_error *err, const char *key, uint64_t value, const char *fmt, ...)
    _printf_(4, 5);

static int state_wrong(struct cw_error *err, const char *key, uint64_t value, const char *fmt, ...)
{
    char have[32], expected[120];
    snprintf(have, sizeof(have), "%" PRIu64, value);
    CW_FORMAT(expected, fmt);
    return cw_error_value(err, CW_E_STATE, key, have, expected, "state: %s is %s: expected %s", key, have,
                          expected);
}

/* Checks that the position exists, and that a batch, or a window of `pack`, begins there. */
static int state_check_position(const struct cw_iterator *it, struct cw_error *err)
{
    const struct cw_compiled *c = it->compiled;
    uint64_t n = it->plan.n_positions, size = c->batch_size, position = it->at.entry.position, g = it->at.g,
             batches = c->grouping.full_only ? n / size : n / size + (n % size != 0);
    if (position > n)
        return state_wrong(err, "position", position,
                           "at most %" PRIu64 ", the number of positions of an epoch", n);
    if (c->counted && n < CW_ENDLESS && g > batches)
        return state_wrong(err, "g", g, "at most %" PRIu64 ", the number of batches of an epoch", batches);
    if (c->group && position < n && position % c->group != 0)
        return state_wrong(err, "position", position,
                           "a multiple of %" PRIu64 ", the window whose elements are packed together",
                           c->group);
    if (c->counted && position != CW_MIN(g * size, n))
        return state_wrong(err, "position", position, "%" PRIu64 ", where batch %" PRIu64 " begins",
                           CW_MIN(g * size, n), g);
    return 0;
}

int cw_iterator_load_state(struct cw_iterator *it, const json_t *state, struct cw_error *err)
{
    const struct cw_compiled *c = it->compiled;
    char snapshot[17];
    snprintf(snapshot, sizeof(snapshot), "%016" PRIx64, it->plan.snapshot);
    int r = cw_state_begin(c, it->producer->seed, &it->options, state, &it->at, err);
    if (r < 0 || (r = state_check_text(state, "snapshot", snapshot,
                                       "data set (files were added, removed or changed)", err)) < 0)
        return r;
    it->passed = it->at.g + (it->at.g ? c->batch_from : 0);
    return state_check_position(it, err);
}
