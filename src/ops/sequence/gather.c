/* Reads elements of inputs whose records an operator puts together itself (zip, window). */
#include "ops/sequence/gather.h"

#include "base/clock.h"
#include "storage/file.h"

/* Reads n records into ret, and checks that their files have not changed since they were indexed. */
static int gather_read(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_arena *arena,
                       struct cw_tensor *ret, struct cw_error *err)
{
    struct cw_extent *e = cw_arena_alloc(arena, n * sizeof(*e), err);
    int r = e ? 0 : err->status;
    for (size_t i = 0; i < n && r >= 0; i++) {
        r = s->ops->locate(s, rows[i], &e[i], err);
        void *data = r < 0 ? NULL : cw_arena_alloc(arena, e[i].length, err);
        if (r >= 0)
            r = data ? cw_extent_read(&e[i], data, false, err) : err->status;
        if (r >= 0)
            ret[i] = (struct cw_tensor){.data = data, .size = e[i].length};
    }
    uint64_t read_ns = cw_now_ns();
    for (size_t i = 0; i < n && r >= 0; i++)
        r = cw_file_check(e[i].file, read_ns, false, err);
    return r;
}

int cw_gather_load(struct cw_epoch *e, unsigned k, const struct cw_load *l, struct cw_gathered *to,
                   size_t stride, struct cw_error *err)
{
    const struct cw_source *s = e->sequence->sources[k];
    bool bytes = cw_gather_has_bytes(s);
    struct cw_load own = *l;
    struct cw_ref *refs = cw_arena_alloc(l->arena, l->n * sizeof(*refs), err);
    uint64_t *rows = cw_arena_alloc(l->arena, l->n * sizeof(*rows), err);
    struct cw_tensor *raw = bytes ? cw_arena_alloc(l->arena, l->n * sizeof(*raw), err) : NULL;
    if (!refs || !rows || (bytes && !raw))
        return err->status;
    for (size_t i = 0; i < l->n; i++)
        refs[i] = cw_ref_at(l->rows[i], l->passes[i]);
    int r = cw_epoch_lookup(e, e->sequence->root->children[k], refs, l->n, err);
    for (size_t i = 0; i < l->n; i++)
        rows[i] = refs[i].row;
    for (size_t i = 0; raw && i < l->n; i++)
        raw[i] = (struct cw_tensor){0};
    if (r >= 0 && s->ops->locate)
        r = gather_read(s, rows, l->n, l->arena, raw, err);
    own.rows = rows;
    if (r >= 0 && s->ops->load)
        r = s->ops->load(s, &own, raw, err);
    for (size_t i = 0; i < l->n && r >= 0; i++)
        to[i * stride] = (struct cw_gathered){
            .row = rows[i], .data = raw ? raw[i].data : NULL, .size = raw ? raw[i].size : 0};
    return r;
}
