/* flat_map: the rows of a block become others, one or more for each. */
#include <string.h>

#include "engine/internal.h"

#include "base/hash.h"

/* Faults name rows: those of a record become its first row's. */
static void move_faults(struct block *b, const struct cw_expansion *e)
{
    for (struct fault *f = b->faults; f; f = f->next)
        f->row = CW_FIRST(i, 0, e->n, e->origin[i] >= f->row);
}

int cw_block_expand(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    struct cw_block *c = &b->b;
    const struct cw_expansion *e = CW_STEAL(c->expansion);
    uint32_t *origin = cw_block_alloc(c, e->n * sizeof(*origin), err),
             *element = cw_block_alloc(c, e->n * sizeof(*element), err);
    uint64_t *rows = cw_block_alloc(c, e->n * sizeof(*rows), err),
             *eids = c->eids ? cw_block_alloc(c, e->n * sizeof(*eids), err) : NULL;
    if (!origin || !element || !rows || (c->eids && !eids))
        return err->status;
    c->all_ok = true;
    uint32_t given = 0; /* of the record */
    for (size_t i = 0; i < e->n; i++) {
        origin[i] = b->origin ? b->origin[e->origin[i]] : e->origin[i];
        given = i > 0 && origin[i] == origin[i - 1] ? given : 0;
        /* What is dropped or failed was given by no one: it takes no number, and keeps the id that errors
         * name. */
        element[i] = e->status[i] == CW_ROW_OK ? ++given : b->element ? b->element[e->origin[i]] : 0;
        rows[i] = c->rows[e->origin[i]];
        c->all_ok &= e->status[i] == CW_ROW_OK;
    }
    move_faults(b, e);

    struct {
        uint64_t before, origin, status;
    } shape = {b->shape, cw_hash64(e->origin, e->n * sizeof(*e->origin)), cw_hash64(e->status, e->n)};

    b->shape = cw_hash64(&shape, sizeof(shape));
    b->origin = origin;
    b->element = element;
    c->n = e->n;
    c->status = e->status;
    c->rows = rows;
    c->raw = NULL; /* the bytes were the source's */
    c->columns = e->columns;
    for (size_t i = 0; eids && i < e->n; i++) {
        struct cw_record_id id;
        cw_row_id(r, b, i, &id);
        eids[i] = cw_element_id(b->program, &id);
    }
    c->eids = eids;
    return 0;
}
