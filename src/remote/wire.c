#include "remote/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/envelope.h"
#include "ops/table.h"

#define COMPONENT_ALIGN 64
#define ID_BYTES 32 /* of a record id in a message: as in memory, then zeros */
#define ID_USED 28
_Static_assert(offsetof(struct cw_record_id, row) == 8 && offsetof(struct cw_record_id, pass) == 16 &&
                   offsetof(struct cw_record_id, leaf) == 20 && offsetof(struct cw_record_id, flags) == 22 &&
                   offsetof(struct cw_record_id, element) + sizeof(uint32_t) == ID_USED &&
                   sizeof(((struct cw_record_id *)0)->flags) == 2,
               "a record id is sent as it lies");

static const uint8_t zeros[COMPONENT_ALIGN];

/* ---- record ids ---- */

static void wire_write_id(uint8_t *to, const struct cw_record_id *id)
{
    memcpy(to, id, ID_USED);
    memset(to + ID_USED, 0, ID_BYTES - ID_USED);
}

static int wire_read_ids(const ProtobufCBinaryData *m, uint64_t n, const struct cw_compiled *c,
                         struct cw_record_id **ret, struct cw_error *err)
{
    if (m->len != n * ID_BYTES)
        return cw_error_set(err, CW_E_SERVICE, "%llu record ids came in %zu bytes", (unsigned long long)n,
                            m->len);
    struct cw_record_id *ids = calloc(CW_MAX(n, 1), sizeof(*ids));
    if (!ids)
        return cw_error_nomem(err, n * sizeof(*ids), "record ids");
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&ids[i], m->data + i * ID_BYTES, ID_USED);
        unsigned leaf = ids[i].leaf;
        if (leaf >= c->n_programs) {
            free(ids);
            return cw_error_set(err, CW_E_SERVICE, "a record id names source %u of %u", leaf, c->n_programs);
        }
    }
    *ret = ids;
    return 0;
}

/* ---- records that were skipped or replaced ---- */

static size_t quarantined_count(const struct cw_quarantined *q)
{
    size_t n = 0;
    for (; q; q = q->next)
        n++;
    return n;
}

/* Writes a list of records into arrays, which have room for all. */
static void wire_write_quarantined(const struct cw_quarantined *q, Cachew__Quarantined *messages,
                                   Cachew__Quarantined **list, uint8_t *ids)
{
    for (; q; q = q->next, messages++, list++, ids += 2 * ID_BYTES) {
        wire_write_id(ids, &q->id);
        wire_write_id(ids + ID_BYTES, &q->by);
        *messages = (Cachew__Quarantined){CW_MESSAGE(quarantined),
                                          .id = {.data = ids, .len = ID_BYTES},
                                          .by = {.data = ids + ID_BYTES, .len = ID_BYTES},
                                          .op = (char *)(uintptr_t)q->op,
                                          .file = q->file,
                                          .message = (char *)(uintptr_t)q->message,
                                          .action = q->note ? 2 : q->replaced};
        *list = messages;
    }
}

static int wire_read_quarantined(Cachew__Quarantined *const *m, size_t n, const struct cw_compiled *c,
                                 struct cw_quarantined **ret, struct cw_error *err)
{
    struct cw_quarantined *list = NULL;
    int r = 0;
    for (size_t i = n; i-- > 0 && r >= 0;) {
        struct cw_record_id *id = NULL, *by = NULL;
        struct cw_quarantined *q = calloc(1, sizeof(*q));
        r = q ? wire_read_ids(&m[i]->id, 1, c, &id, err)
              : cw_error_nomem(err, sizeof(*q), "a skipped record");
        if (r >= 0)
            r = wire_read_ids(&m[i]->by, 1, c, &by, err);
        if (r >= 0) {
            const struct cw_op_desc *op = cw_op_find(cw_ops(), m[i]->op); /* its name is a constant */
            *q = (struct cw_quarantined){.next = list,
                                         .id = *id,
                                         .by = *by,
                                         .op = op ? op->name : "",
                                         .note = m[i]->action == 2,
                                         .replaced = m[i]->action == 1};
            q->file = *m[i]->file ? strdup(m[i]->file) : NULL;
            snprintf(q->message, sizeof(q->message), "%s", m[i]->message);
            list = q;
        } else {
            free(q);
        }
        free(id);
        free(by);
    }
    if (r < 0) {
        cw_quarantined_free(list);
        return r;
    }
    *ret = list;
    return 0;
}

/* ---- batches ---- */

int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err)
{
    struct tail { /* that the message points to */
        Cachew__Component components[CW_MAX_COMPONENTS], *component_list[CW_MAX_COMPONENTS];
        int64_t dims[CW_MAX_COMPONENTS][CW_MAX_NDIM + 1];
        struct iovec pieces[4 * CW_MAX_COMPONENTS];
    };

    size_t n_quarantined = quarantined_count(q);
    struct tail *t = NULL;
    uint8_t *at = NULL;
    size_t head = CW_ALIGN_UP(offsetof(struct tail, pieces) + sizeof(t->pieces), 64);
    if (b->n_components <= CW_MAX_COMPONENTS)
        t = malloc(head + n_quarantined * (sizeof(Cachew__Quarantined) + sizeof(void *) + 2 * ID_BYTES) +
                   (size_t)b->n * ID_BYTES);
    if (!t)
        return cw_error_nomem(err, head, "a batch's message");
    at = (uint8_t *)t + head;
    *ret = (struct cw_wire_batch){.memory = t, .pieces = t->pieces};
    Cachew__Batch *m = &ret->message;
    *m = (Cachew__Batch){CW_MESSAGE(batch),
                         .epoch = b->epoch,
                         .index = b->index,
                         .n = b->n,
                         .flags = b->flags,
                         .leading = b->leading,
                         .n_components = b->n_components,
                         .components = t->component_list};
    size_t offset = 0;
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *c = &b->components[k];
        Cachew__Component *o = &t->components[k];
        const void *parts[2] = {c->lengths, c->data};
        size_t sizes[2] = {c->lengths ? b->n * sizeof(uint64_t) : 0, c->size}, places[2] = {0, 0};
        t->component_list[k] = o;
        memcpy(t->dims[k], c->dims, (size_t)c->ndim * sizeof(c->dims[0]));
        *o = (Cachew__Component){CW_MESSAGE(component),       .name = (char *)(uintptr_t)c->name,
                                 .dtype = (uint32_t)c->dtype, .n_dims = (size_t)c->ndim,
                                 .dims = t->dims[k],          .size = c->size};
        for (int i = 0; i < 2; i++) {
            const uint8_t *data = parts[i];
            if (!sizes[i])
                continue;
            if (in_slabs) {
                const struct cw_slab *s = b->slabs[0];
                bool second = !(s && data >= s->data && data < s->data + s->size);
                o->slab = second && s; /* slabs that are NULL are not counted */
                places[i] = (size_t)(data - b->slabs[second]->data);
                continue;
            }
            size_t pad = CW_ALIGN_UP(sizes[i], COMPONENT_ALIGN) - sizes[i];
            places[i] = offset;
            offset += sizes[i] + pad;
            t->pieces[ret->n_pieces++] = (struct iovec){.iov_base = (void *)(uintptr_t)data,
                                                        .iov_len = sizes[i]};
            if (pad)
                t->pieces[ret->n_pieces++] = (struct iovec){.iov_base = (void *)(uintptr_t)zeros,
                                                            .iov_len = pad};
        }
        o->lengths_offset = places[0];
        o->offset = places[1];
    }
    m->ids = (ProtobufCBinaryData){.data = at, .len = (size_t)b->n * ID_BYTES};
    for (uint32_t i = 0; i < b->n; i++, at += ID_BYTES)
        wire_write_id(at, &b->ids[i]);
    Cachew__Quarantined *messages = (Cachew__Quarantined *)(void *)at;
    Cachew__Quarantined **list = (Cachew__Quarantined **)(void *)(messages + n_quarantined);
    wire_write_quarantined(q, messages, list, (uint8_t *)(list + n_quarantined));
    m->n_quarantined = n_quarantined;
    m->quarantined = list;
    return 0;
}

void cw_wire_batch_deinit(struct cw_wire_batch *w)
{
    free(w->memory);
    *w = (struct cw_wire_batch){0};
}

static bool memory_holds(const struct cw_memory *m, uint64_t offset, uint64_t size)
{
    return offset <= m->size && size <= m->size - offset;
}

/* Reads a component, and checks that it is what the pipeline makes and lies in its memory. */
static int wire_read_component(const Cachew__Batch *m, const Cachew__Component *from,
                               const struct cw_component *expected, const struct cw_memory memory[2],
                               struct cw_batch_component *ret, struct cw_error *err)
{
    const struct cw_type *type = &expected->type;
    size_t lead = m->leading ? 1 : 0;
    uint64_t size = from->dtype == CW_BYTES     ? 1
                    : from->dtype < CW_N_DTYPES ? cw_dtype_size((enum cw_dtype)from->dtype)
                                                : 0;
    bool good = strcmp(from->name, expected->name) == 0 && from->dtype == (uint32_t)type->dtype &&
                from->slab < 2 && from->n_dims <= CW_MAX_NDIM + 1 && from->n_dims >= lead &&
                (type->ndim < 0 || from->n_dims == (size_t)type->ndim + lead) &&
                (!m->leading || from->dims[0] == m->n);
    *ret = (struct cw_batch_component){
        .name = expected->name, .dtype = type->dtype, .ndim = (int)from->n_dims, .size = from->size};
    for (size_t d = 0; good && d < from->n_dims; d++) {
        bool element = d >= lead; /* a dimension of one element */
        good = from->dims[d] >= 0 && !__builtin_mul_overflow(size, (uint64_t)from->dims[d], &size);
        if (good && element && m->n && type->ndim >= 0 && type->dims[d - lead] != CW_VARIES)
            good = from->dims[d] == type->dims[d - lead];
        ret->dims[d] = from->dims[d];
    }
    const struct cw_memory *place = &memory[good ? from->slab : 0];
    if (good && from->size)
        good = from->offset % COMPONENT_ALIGN == 0 && memory_holds(place, from->offset, from->size);
    if (good && type->dtype != CW_BYTES)
        good = from->size == size;
    ret->data = place->data && good && from->size ? place->data + from->offset : place->data;
    if (good && type->dtype == CW_BYTES) {
        uint64_t total = 0, bytes = m->n * sizeof(uint64_t);
        good = from->lengths_offset % sizeof(uint64_t) == 0 &&
               (bytes == 0 || memory_holds(place, from->lengths_offset, bytes));
        ret->lengths = (const uint64_t *)(const void *)(good && bytes ? place->data + from->lengths_offset
                                                                      : place->data);
        for (uint32_t i = 0; good && i < m->n; i++)
            good = !__builtin_add_overflow(total, ret->lengths[i], &total) && total <= from->size;
        good = good && total == from->size;
    }
    return good ? 0
                : cw_error_set(err, CW_E_SERVICE,
                               "component \"%.80s\" of a batch is not what the pipeline makes, or lies "
                               "outside its memory",
                               from->name);
}

int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined, struct cw_error *err)
{
    unsigned n;
    const struct cw_component *expected = cw_delivered(c, &n);
    bool leading = c->batcher || m->n == 0;
    if (m->n_components != n || m->leading != leading || (!leading && m->n != 1))
        return cw_error_set(err, CW_E_SERVICE, "a batch of %u elements came with %zu components: expected %u",
                            m->n, m->n_components, n);
    struct cw_batch_component *components = calloc(CW_MAX(n, 1), sizeof(*components));
    struct cw_record_id *ids = NULL;
    int r = components ? wire_read_ids(&m->ids, m->n, c, &ids, err)
                       : cw_error_nomem(err, n * sizeof(*components), "a batch");
    for (unsigned k = 0; k < n && r >= 0; k++)
        r = wire_read_component(m, m->components[k], &expected[k], memory, &components[k], err);
    if (r >= 0)
        r = wire_read_quarantined(m->quarantined, m->n_quarantined, c, ret_quarantined, err);
    if (r < 0) {
        free(components);
        free(ids);
        return r;
    }
    *b = (struct cw_batch){.epoch = m->epoch,
                           .index = m->index,
                           .n = m->n,
                           .flags = m->flags,
                           .leading = m->leading,
                           .n_components = n,
                           .components = components,
                           .ids = ids};
    return 0;
}

/* ---- parts ---- */

int cw_wire_part_write(const struct cw_part *r, struct cw_wire_part *ret, struct cw_error *err)
{
    size_t n = quarantined_count(r->quarantined);
    uint8_t *memory = malloc(
        CW_MAX(n * (sizeof(Cachew__Quarantined) + sizeof(void *) + 2 * ID_BYTES) + r->n * ID_BYTES, 1));
    if (!memory)
        return cw_error_nomem(err, r->n * ID_BYTES, "a part's message");
    *ret = (struct cw_wire_part){.memory = memory};
    Cachew__Quarantined *messages = (Cachew__Quarantined *)(void *)memory,
                        **list = (Cachew__Quarantined **)(void *)(messages + n);
    uint8_t *at = (uint8_t *)(list + n);
    wire_write_quarantined(r->quarantined, messages, list, at);
    at += n * 2 * ID_BYTES;
    ret->message = (Cachew__Part){CW_MESSAGE(part), .n_quarantined = n, .quarantined = list,
                                  .n = (uint32_t)r->n, .ids = {.data = at, .len = r->n * ID_BYTES}};
    for (uint64_t i = 0; i < r->n; i++)
        wire_write_id(at + i * ID_BYTES, &r->ids[i]);
    return 0;
}

void cw_wire_part_deinit(struct cw_wire_part *w)
{
    free(w->memory);
    *w = (struct cw_wire_part){0};
}

int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err)
{
    struct cw_part r = {.n = m->n, .size = size};
    int status = wire_read_ids(&m->ids, m->n, c, &r.ids, err);
    if (status >= 0)
        status = wire_read_quarantined(m->quarantined, m->n_quarantined, c, &r.quarantined, err);
    if (status >= 0 && !(r.data = malloc(CW_MAX(size, 1))))
        status = cw_error_nomem(err, size, "a part");
    if (status < 0) {
        cw_part_deinit(&r);
        return status;
    }
    if (size)
        memcpy(r.data, payload, size);
    *ret = r;
    return 0;
}
