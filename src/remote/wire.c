/* Converts batches and parts (rows of a batch that lie in one range) to messages, and back
 * (docs/protocol.md). Any thread. */
#include "remote/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/envelope.h"
#include "ops/table.h"

#define COMPONENT_ALIGN 64
#define ID_BYTES 32 /* bytes of a record id in a message: ID_USED bytes as in memory, then zeros */
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

/* Reads n ids into *ret, which has room for them. */
static int wire_read_ids(const ProtobufCBinaryData *m, uint64_t n, const struct cw_compiled *c,
                         struct cw_record_id *ret, struct cw_error *err)
{
    if (m->len != n * ID_BYTES)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker sent the ids of %llu records in %zu bytes, which is not 32 bytes "
                            "each" CW_OTHER_VERSION,
                            (unsigned long long)n, m->len);
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&ret[i], m->data + i * ID_BYTES, ID_USED);
        if (ret[i].leaf >= c->n_programs)
            return cw_error_set(err, CW_E_SERVICE,
                                "the worker sent a record id that names source %u: expected less than %u, "
                                "the pipeline's number of sources" CW_OTHER_VERSION,
                                (unsigned)ret[i].leaf, c->n_programs);
    }
    return 0;
}

/* Reads n ids into new memory. The caller owns *ret, also after an error. */
static int wire_copy_ids(const ProtobufCBinaryData *m, uint64_t n, const struct cw_compiled *c,
                         struct cw_record_id **ret, struct cw_error *err)
{
    *ret = calloc(CW_MAX(m->len / ID_BYTES, 1), sizeof(**ret));
    return *ret ? wire_read_ids(m, n, c, *ret, err) : cw_error_nomem(err, m->len, "record ids");
}

/* ---- records that were skipped or replaced ---- */

static size_t quarantined_count(const struct cw_quarantined *q)
{
    size_t n = 0;
    for (; q; q = q->next)
        n++;
    return n;
}

/* The fields of a message that describe the records of a batch or a part. */
struct wire_records {
    ProtobufCBinaryData ids;
    Cachew__Quarantined **quarantined;
    size_t n_quarantined;
};

/* Returns the bytes that wire_write_records needs. */
static size_t wire_records_bytes(uint64_t n, const struct cw_quarantined *q)
{
    return quarantined_count(q) * (sizeof(Cachew__Quarantined) + sizeof(void *) + 2 * ID_BYTES) +
           n * ID_BYTES;
}

/* Writes n ids, and a list of records that were skipped or replaced, to `at`. */
static struct wire_records wire_write_records(const struct cw_record_id *ids, uint64_t n,
                                              const struct cw_quarantined *q, uint8_t *at)
{
    size_t n_quarantined = quarantined_count(q);
    Cachew__Quarantined *messages = (Cachew__Quarantined *)(void *)at,
                        **list = (Cachew__Quarantined **)(void *)(messages + n_quarantined);
    at = (uint8_t *)(list + n_quarantined);
    for (size_t i = 0; q; q = q->next, i++, at += 2 * ID_BYTES) {
        wire_write_id(at, &q->id);
        wire_write_id(at + ID_BYTES, &q->by);
        messages[i] = (Cachew__Quarantined){CW_MESSAGE(quarantined),
                                            .id = {.data = at, .len = ID_BYTES},
                                            .by = {.data = at + ID_BYTES, .len = ID_BYTES},
                                            .op = (char *)(uintptr_t)q->op,
                                            .file = q->file,
                                            .message = (char *)(uintptr_t)q->message,
                                            .action = q->note ? 2 : q->replaced};
        list[i] = &messages[i];
    }
    for (uint64_t i = 0; i < n; i++)
        wire_write_id(at + i * ID_BYTES, &ids[i]);
    return (struct wire_records){
        .ids = {.data = at, .len = n * ID_BYTES}, .quarantined = list, .n_quarantined = n_quarantined};
}

/* Reads one skipped or replaced record, and adds it at the front of a list. */
static int wire_read_record(const Cachew__Quarantined *m, const struct cw_compiled *c,
                            struct cw_quarantined **list, struct cw_error *err)
{
    struct cw_quarantined *q = calloc(1, sizeof(*q));
    int r = q ? wire_read_ids(&m->id, 1, c, &q->id, err)
              : cw_error_nomem(err, sizeof(*q), "a skipped record");
    if (r >= 0)
        r = wire_read_ids(&m->by, 1, c, &q->by, err);
    if (r < 0) {
        free(q);
        return r;
    }
    const struct cw_op_desc *op = cw_op_find(cw_ops(), m->op); /* use the constant name of the operator */
    q->op = op ? op->name : "";
    q->note = m->action == 2;
    q->replaced = m->action == 1;
    q->file = *m->file ? strdup(m->file) : NULL;
    snprintf(q->message, sizeof(q->message), "%s", m->message);
    q->next = *list;
    *list = q;
    return 0;
}

static int wire_read_quarantined(Cachew__Quarantined *const *m, size_t n, const struct cw_compiled *c,
                                 struct cw_quarantined **ret, struct cw_error *err)
{
    struct cw_quarantined *list = NULL;
    int r = 0;
    for (size_t i = n; i-- > 0 && r >= 0;)
        r = wire_read_record(m[i], c, &list, err);
    *ret = r < 0 ? cw_quarantined_free(list) : list;
    return r;
}

/* ---- batches ---- */

int cw_wire_batch_write(const struct cw_batch *b, const struct cw_quarantined *q, bool in_slabs,
                        struct cw_wire_batch *ret, struct cw_error *err)
{
    struct tail { /* what the message points to */
        Cachew__Component components[CW_MAX_COMPONENTS], *component_list[CW_MAX_COMPONENTS];
        int64_t dims[CW_MAX_COMPONENTS][CW_MAX_NDIM + 1];
        struct iovec pieces[4 * CW_MAX_COMPONENTS];
    };

    struct tail *t = NULL;
    size_t head = CW_ALIGN_UP(offsetof(struct tail, pieces) + sizeof(t->pieces), 64);
    if (b->n_components <= CW_MAX_COMPONENTS)
        t = malloc(head + wire_records_bytes(b->n, q));
    if (!t)
        return cw_error_nomem(err, head, "a batch's message");
    struct wire_records records = wire_write_records(b->ids, b->n, q, (uint8_t *)t + head);
    *ret = (struct cw_wire_batch){
        .memory = t,
        .pieces = t->pieces,
        .message = {CW_MESSAGE(batch), .epoch = b->epoch, .index = b->index, .n = b->n, .flags = b->flags,
                    .leading = b->leading, .n_components = b->n_components, .components = t->component_list,
                    .ids = records.ids, .n_quarantined = records.n_quarantined,
                    .quarantined = records.quarantined}};
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
                o->slab = second && s; /* messages number slabs without those that are NULL */
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
    return 0;
}

static bool memory_holds(const struct cw_memory *m, uint64_t offset, uint64_t size)
{
    return offset <= m->size && size <= m->size - offset;
}

/* Reads a component, and checks that it has the pipeline's name, type and shape, and lies in its memory. */
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
        bool element = d >= lead; /* a dimension of an element, not of the batch */
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
                : cw_error_set(
                      err, CW_E_SERVICE,
                      "the worker sent a batch whose component \"%.80s\" differs from the pipeline's output "
                      "in name, type or shape, or lies outside the batch's memory" CW_OTHER_VERSION,
                      from->name);
}

int cw_wire_batch_read(const Cachew__Batch *m, const struct cw_compiled *c, const struct cw_memory memory[2],
                       struct cw_batch *b, struct cw_quarantined **ret_quarantined, struct cw_error *err)
{
    unsigned n;
    const struct cw_component *expected = cw_delivered(c, &n);
    bool leading = c->batcher || m->n == 0;
    if (m->n_components != n || m->leading != leading || (!leading && m->n != 1))
        return cw_error_set(
            err, CW_E_SERVICE,
            "the worker sent a batch of %u elements with %zu components: expected %u components, and exactly "
            "one element if the batch has no leading dimension" CW_OTHER_VERSION,
            m->n, m->n_components, n);
    struct cw_batch_component *components = calloc(CW_MAX(n, 1), sizeof(*components));
    struct cw_record_id *ids = NULL;
    int r = components ? wire_copy_ids(&m->ids, m->n, c, &ids, err)
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
    size_t bytes = wire_records_bytes(r->n, r->quarantined);
    if (!(ret->memory = malloc(CW_MAX(bytes, 1))))
        return cw_error_nomem(err, bytes, "a part's message");
    struct wire_records records = wire_write_records(r->ids, r->n, r->quarantined, ret->memory);
    ret->message = (Cachew__Part){CW_MESSAGE(part), .n = (uint32_t)r->n, .ids = records.ids,
                                  .n_quarantined = records.n_quarantined, .quarantined = records.quarantined};
    return 0;
}

int cw_wire_part_read(const Cachew__Part *m, const void *payload, size_t size, const struct cw_compiled *c,
                      struct cw_part *ret, struct cw_error *err)
{
    struct cw_part r = {.n = m->n, .size = size};
    int status = wire_copy_ids(&m->ids, m->n, c, &r.ids, err);
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
