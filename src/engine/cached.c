/*
 * What the cache has of a cache point: its sets, and which positions they know. Pieces are looked up when
 * they are planned, and blocks are cut where what the cache has begins and ends. No lock is held here.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "engine/cached.h"
#include "storage/file.h"

/* Positions looked up at a time: on the stack. */
#define LOOK_UP 256
/* Of a piece, where it is enough to know about how many are there. */
#define SAMPLES 64

const struct cw_op *cw_cached_cache_point(const struct cached *c)
{
    return c ? c->m->op : NULL;
}

/* ---- sets ---- */

/* What is kept, for people. */
static char *describe(const struct cw_program *g, const struct cw_cache_point *m)
{
    json_t *operators = json_array(), *components = json_object();
    char type[160];
    for (unsigned i = 0; g->ops[i] != m->op; i++) {
        json_t *o = cw_attrs_identity(g->ops[i]->desc, g->ops[i]->attrs);
        json_object_set_new(o, "op", json_string(g->ops[i]->desc->name));
        json_array_append_new(operators, o);
    }
    for (unsigned k = 0; k < m->n; k++)
        json_object_set_new(components, m->components[k].name,
                            json_string(cw_type_print(&m->components[k].type, type)));
    json_auto_t *meta = json_pack("{s:o, s:o, s:I}", "operators", operators, "components", components,
                                  "created", (json_int_t)time(NULL));
    return meta ? json_dumps(meta, JSON_INDENT(2)) : NULL;
}

/* The key of the set: with the draws before the cache point, which may be others in each epoch. */
static struct cw_hash128 key_of(const struct cw_runner *r, const struct cached *c, unsigned leaf,
                                const struct cw_epoch *e)
{
    const struct cw_program *g = &r->compiled->programs[leaf];
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    (void)XXH3_128bits_update(&state, &c->identity, sizeof(c->identity));
    for (unsigned i = 0; g->ops[i] != c->m->op; i++)
        if (g->ops[i]->desc->effects.random || g->ops[i]->desc->function)
            (void)XXH3_128bits_update(&state, &e->keys[g->ops[i]->position], sizeof(*e->keys));
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    return (struct cw_hash128){.lo = h.low64, .hi = h.high64};
}

struct cw_cache_set *cw_cached_set(const struct cw_runner *r, unsigned leaf, struct cached *c,
                                   const struct cw_epoch *e, struct cw_error *err)
{
    struct cw_hash128 key = c->m->draws ? key_of(r, c, leaf, e) : c->identity;
    struct cw_cache_set *set = NULL;
    CW_GUARD(&c->mutex);
    if (!c->asked || key.lo != c->key.lo || key.hi != c->key.hi) {
        cw_cache_set_unref(CW_STEAL(c->set));
        if (cw_cache_set_open(c->cache, key, c->meta, &c->set, err) < 0)
            c->set = NULL;
        c->key = key;
        c->asked = true;
    }
    if (c->set)
        set = cw_cache_set_ref(c->set);
    return set;
}

struct cached *cw_cached_free(struct cached *c)
{
    if (!c)
        return NULL;
    cw_cache_set_unref(c->set);
    pthread_mutex_destroy(&c->mutex);
    free(c->meta);
    free(c);
    return NULL;
}

int cw_cached_new(struct cw_runner *r, unsigned leaf, const struct cw_cache_point *m, struct cached **ret,
                  struct cw_error *err)
{
    const struct cw_program *g = &r->compiled->programs[leaf];
    struct cached *c = calloc(1, sizeof(*c));
    if (!c || !(c->meta = describe(g, m))) {
        free(c);
        return cw_error_nomem(err, sizeof(*c), "a cache");
    }
    pthread_mutex_init(&c->mutex, NULL);
    c->m = m;
    c->cache = r->options.cache;
    const uint64_t parts[3] = {m->identity.lo, m->identity.hi, r->sequence->sources[leaf]->context};
    XXH128_hash_t h = XXH3_128bits(parts, sizeof(parts));
    c->identity = (struct cw_hash128){.lo = h.low64, .hi = h.high64};
    for (unsigned k = 0; k < m->n; k++) {
        c->fixed[k] = cw_type_fixed(&m->components[k].type);
        c->fixed_bytes += c->fixed[k] ? cw_type_bytes(&m->components[k].type) : 0;
        c->n_varying += !c->fixed[k];
    }
    *ret = c;
    return 0;
}

int cw_cached_check(struct cw_runner *r, unsigned leaf, struct cached *c, struct cw_error *err)
{
    if (c->m->draws) /* the set is not known before there is an epoch */
        return 0;
    struct cw_cache_set *set = cw_cached_set(r, leaf, c, NULL, err);
    cw_cache_set_unref(set);
    return set ? 0 : err->status;
}

char *cw_cached_profile(struct cw_runner *r, unsigned leaf, struct cached *c)
{
    struct cw_error ignored = {0};
    struct cw_cache_set *set = c->m->draws ? NULL : cw_cached_set(r, leaf, c, NULL, &ignored);
    char *text = set ? cw_cache_set_profile(set) : NULL;
    cw_cache_set_unref(set);
    return text;
}

void cw_cached_put_profile(struct cached *c, const char *text)
{
    if (c->set && !c->m->draws)
        cw_cache_set_put_profile(c->set, text);
}

/* ---- looking up ---- */

/* What names the content of a row's file: its key where that covers all of it, else the file's times too. */
static uint64_t content_of(const struct cw_source *source, uint64_t row, uint64_t file_key)
{
    bool partial = false;
    const struct cw_file *file = source->ops->file ? source->ops->file(source, row, &partial) : NULL;
    if (!partial)
        return file_key;
    struct cw_key k = {0};
    cw_key_u64(&k, file_key);
    cw_key_u64(&k, cw_file_stamp(file));
    return cw_key_hash(&k);
}

void cw_cached_keys(const struct cw_runner *r, unsigned leaf, const struct cached *c,
                    const struct cw_ref *refs, size_t n, uint64_t *rows, struct cw_record_id *ids,
                    struct cw_cache_key *ret)
{
    const struct cw_source *source = r->sequence->sources[leaf];
    bool draws = c->m->draws;
    for (size_t i = 0; i < n; i++)
        rows[i] = refs[i].row;
    source->ops->ids(source, rows, n, ids);
    for (size_t i = 0; i < n; i++) {
        ids[i].pass = refs[i].pass;
        ids[i].element = 0;
        ret[i] = (struct cw_cache_key){.file_key = content_of(source, rows[i], ids[i].file_key),
                                       .row = ids[i].row,
                                       .variant = draws ? cw_element_id(&r->compiled->programs[leaf], &ids[i])
                                                        : 0};
    }
}

size_t cw_cached_find(const struct cw_runner *r, unsigned leaf, struct cw_cache_set *set,
                      const struct cw_epoch *e, const uint64_t *rows, const struct cw_cache_key *keys,
                      size_t n, struct cw_cache_place *ret)
{
    const struct cw_source *source = r->sequence->sources[leaf];
    size_t found = cw_cache_find(set, keys, n, ret);
    bool partial;
    for (size_t i = 0; i < n && source->ops->file; i++) {
        struct cw_file *file = ret[i].segment ? source->ops->file(source, rows[i], &partial) : NULL;
        if (file && !cw_file_unchanged(file, e->epoch, partial)) {
            ret[i].segment = NULL;
            found--;
        }
    }
    return found;
}

/* Which of n positions of one source, at most LOOK_UP, are there under a choice; found may be NULL. Returns
 * how many. */
static size_t look_up(const struct cw_runner *r, const struct cached *c, struct cw_cache_set *set,
                      const struct cw_epoch *e, const struct cw_ref *refs, size_t n, uint8_t *found)
{
    uint64_t rows[LOOK_UP];
    struct cw_record_id ids[LOOK_UP];
    struct cw_cache_key keys[LOOK_UP];
    struct cw_cache_place places[LOOK_UP];
    cw_cached_keys(r, refs->leaf, c, refs, n, rows, ids, keys);
    size_t there = cw_cached_find(r, refs->leaf, set, e, rows, keys, n, places);
    for (size_t k = 0; found && k < n; k++)
        found[k] = places[k].segment != NULL;
    return there;
}

/* How many positions of a piece from `at` on have one source, as far as they are looked up at a time. */
static uint64_t same_source(const struct piece *p, uint64_t at)
{
    uint64_t n = 1;
    while (n < LOOK_UP && at + n < p->n && p->refs[at + n].leaf == p->refs[at].leaf)
        n++;
    return n;
}

struct looking { /* under a choice, in the set of one source after the other */
    const struct cw_runner *r;
    const struct choice *choice;
    const struct cw_epoch *epoch;
    struct cw_cache_set *set;
    unsigned leaf;
};

/* The set of a source, or NULL. */
static struct cw_cache_set *set_of(struct looking *l, unsigned leaf)
{
    struct cw_error err = {0};
    struct cached *c = l->choice->ways[leaf].cached;
    if (leaf != l->leaf) {
        cw_cache_set_unref(l->set);
        l->set = c ? cw_cached_set(l->r, leaf, c, l->epoch, &err) : NULL;
        l->leaf = leaf;
    }
    return l->set;
}

static size_t look_at(struct looking *l, const struct piece *p, uint64_t at, uint64_t n, uint8_t *found)
{
    unsigned leaf = p->refs[at].leaf;
    struct cw_cache_set *set = set_of(l, leaf);
    return set ? look_up(l->r, l->choice->ways[leaf].cached, set, l->epoch, p->refs + at, n, found) : 0;
}

/* Of the choices that are not in use it is enough to know about how much the cache has. */
static void look_elsewhere(struct cw_runner *r, const struct cw_range *s, const struct piece *p)
{
    uint64_t step = CW_MAX(p->n / SAMPLES, (uint64_t)1);
    for (unsigned k = 1; k < r->n_choices; k++) {
        struct looking l = {.r = r, .choice = &r->choices[k], .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
        uint64_t looked = 0, found = 0;
        if (k == p->choice)
            continue;
        for (uint64_t i = 0; i < p->n; i += step, looked++)
            found += look_at(&l, p, i, 1, NULL);
        cw_cache_set_unref(l.set);
        CW_WITH (&r->mutex)
            cw_choice_looked(&r->choices[k], s->epoch->epoch.epoch, looked, found);
    }
}

void cw_piece_look_up(struct cw_runner *r, const struct cw_range *s, struct piece *p)
{
    struct looking l = {.r = r, .epoch = &s->epoch->epoch, .leaf = UINT32_MAX};
    free(CW_STEAL(p->kept));
    p->choice = atomic_load(&r->choice);
    if (r->options.adaptive)
        look_elsewhere(r, s, p);
    l.choice = &r->choices[p->choice];
    if (p->choice == 0 || !(p->kept = calloc(CW_MAX(p->n, 1), 1)))
        return;
    for (uint64_t i = 0, n; i < p->n; i += n) {
        n = same_source(p, i);
        (void)look_at(&l, p, i, n, p->kept + i);
    }
    cw_cache_set_unref(l.set);
}
