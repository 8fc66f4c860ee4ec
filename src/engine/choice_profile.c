/* What earlier runs measured of choices, and what this one leaves to later ones: beside the sets, as JSON.
 * Sets whose key changes with the epoch have none. */
#include <math.h>

#include "engine/internal.h"

/* What an earlier run measured counts as much as so long of this one. */
#define STORED_NS 2e8
/* No measurement is longer, or larger, than this: a stored one that says so is nonsense. */
#define PROFILE_MOST 1e15

/* Numbers of a list, where they make sense. */
static bool read_numbers(const json_t *profile, const char *key, double *ret, size_t n)
{
    const json_t *list = json_object_get(profile, key);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        ret[i] = json_number_value(v);
        if (!json_is_number(v) || !(ret[i] >= 0) || ret[i] > PROFILE_MOST)
            return false;
    }
    return true;
}

static void read_pace(const json_t *profile, const char *key, struct pace *ret)
{
    double v[3];
    if (!read_numbers(profile, key, v, CW_COUNT_OF(v)) || !(v[0] > 0))
        return;
    double rows = fmax(STORED_NS / (v[0] + v[1]), CW_CHOICE_KNOWN_ROWS);
    *ret = (struct pace){
        .rows = rows, .ns = rows * v[0], .cold_ns = rows * v[1], .prefix_ns = rows * fmin(v[2], v[0])};
}

static char *profile_of(struct cw_runner *r, const struct choice *c)
{
    for (unsigned i = 0; i < r->compiled->n_programs; i++)
        if (c->ways[i].cached)
            return cw_cached_profile(c->ways[i].cached);
    return NULL;
}

void cw_choice_recall(struct choice *none, struct choice *c, const char *text)
{
    json_auto_t *profile = json_loads(text, 0, NULL);
    double bytes;
    read_pace(profile, "none", &none->computed);
    read_pace(profile, "computed", &c->computed);
    read_pace(profile, "read", &c->hit);
    c->stored = c->computed.rows > 0 || c->hit.rows > 0;
    if (read_numbers(profile, "bytes", &bytes, 1)) {
        c->content_rows = 1;
        c->content_bytes = bytes;
    }
}

void cw_choices_load(struct cw_runner *r)
{
    for (unsigned k = 1; k < r->n_choices; k++) {
        _cleanup_free_ char *text = profile_of(r, &r->choices[k]);
        if (text)
            cw_choice_recall(&r->choices[0], &r->choices[k], text);
    }
}

static json_t *pace_json(const struct pace *p)
{
    return json_pack("[f, f, f]", p->ns / p->rows, p->cold_ns / p->rows, p->prefix_ns / p->rows);
}

void cw_choice_save(const struct choice *none, const struct choice *c, struct cw_cached *to)
{
    json_auto_t *profile = json_object();
    if (none->computed.rows > 0)
        json_object_set_new(profile, "none", pace_json(&none->computed));
    if (c->computed.rows > 0)
        json_object_set_new(profile, "computed", pace_json(&c->computed));
    if (c->hit.rows > 0)
        json_object_set_new(profile, "read", pace_json(&c->hit));
    if (c->content_rows > 0)
        json_object_set_new(profile, "bytes", json_pack("[f]", c->content_bytes / c->content_rows));
    _cleanup_free_ char *text = profile ? json_dumps(profile, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    if (text && json_object_size(profile))
        cw_cached_put_profile(to, text);
}
