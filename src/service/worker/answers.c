/* Sends the answers of streams to the clients that made the requests. The loop's thread only; called by
 * clients.c and control.c. */
#include "service/worker/answers.h"

#include "base/clock.h"
#include "base/crash.h"
#include "remote/wire.h"
#include "service/worker/shm_loan.h"

static const struct cw_error out_of_memory = {
    .status = CW_E_MEMORY, .message = "out of memory: the reason why a range failed is not known"};

static void answer_count_quarantined(struct cw_clients_stats *stats, const struct cw_quarantined *list)
{
    for (; list; list = list->next) {
        stats->n_skipped += !list->note && !list->replaced;
        stats->n_replaced += !list->note && list->replaced;
    }
}

/* ---- senders: one for each kind of answer; each takes ownership of the answer ---- */

static int answer_send_batch(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                             struct cw_error *err)
{
    Cachew__Slab slabs[2], *list[2] = {&slabs[0], &slabs[1]};
    struct cw_clients *all = c->clients;
    struct cw_batch *b = a->batch;
    struct cw_wire_batch wire;
    cw_crash_point("worker-batch");
    int n = cw_shm_loan_room(c, a) ? cw_shm_loan_name(c, a, slabs, err) : 0;
    if (n == CW_E_IO) {
        if (!all->copies_logged)
            cw_common_log(
                all->common,
                "clients on this host get batches as copies, because their memory can't be shared: %s",
                err->message);
        all->copies_logged = true;
        atomic_store(&c->peer.shared, false);
        n = 0;
    }
    int r = n < 0 ? n : cw_wire_batch_write(b, a->quarantined, n > 0, &wire, err);
    if (r < 0) {
        cw_delivery_free(a);
        return r;
    }
    wire.message.begin = a->begin;
    wire.message.end = a->end;
    wire.message.key = a->key;
    m->of_case = CACHEW__ENVELOPE__OF_BATCH;
    m->batch = &wire.message;
    if (n > 0) {
        wire.message.n_slabs = (size_t)n;
        wire.message.slabs = list;
        cw_shm_loan_add(c, a);
        r = cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
        /* the client may keep the batch for long, and only its slabs are needed meanwhile */
        free(CW_STEAL(b->ids));
        free(CW_STEAL(b->components));
        a->quarantined = cw_quarantined_free(a->quarantined);
    } else {
        r = cw_client_send(c, m, wire.pieces, wire.n_pieces, a, NULL, 0, err);
    }
    free(wire.memory);
    return r;
}

/* Sends rows, which the client joins to a batch. */
static int answer_send_rows(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                            struct cw_error *err)
{
    const struct iovec piece = {.iov_base = a->rows.data, .iov_len = a->rows.size};
    struct cw_wire_part wire;
    cw_crash_point("worker-part");
    int r = cw_wire_part_write(&a->rows, &wire, err);
    if (r < 0) {
        cw_delivery_free(a);
        return r;
    }
    wire.message.epoch = a->epoch;
    wire.message.begin = a->begin;
    wire.message.end = a->end;
    wire.message.key = a->key;
    wire.message.first = a->at;
    m->of_case = CACHEW__ENVELOPE__OF_PART;
    m->part = &wire.message;
    r = cw_client_send(c, m, &piece, 1, a, NULL, 0, err);
    free(wire.memory);
    return r;
}

static int answer_send_keys(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                            struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Keys keys = {CW_MESSAGE(keys),
                         .epoch = a->epoch,
                         .begin = a->begin,
                         .end = a->end,
                         .first = a->at,
                         .over = a->over,
                         .keys = {.data = a->data, .len = a->bytes}};
    if (a->why) {
        cw_failure_init(&why, a->why);
        keys.why = &why;
    }
    m->of_case = CACHEW__ENVELOPE__OF_KEYS;
    m->keys = &keys;
    return cw_client_send(c, m, NULL, 0, a, NULL, 0, err);
}

/* Sends elements of a source to another worker. */
static int answer_send_pulled(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                              struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Pulled pulled = {CW_MESSAGE(pulled)};
    const struct iovec piece = {a->data, a->bytes};
    if (!a->data) {
        cw_failure_init(&why, a->why ? a->why : &out_of_memory);
        pulled.why = &why;
    }
    m->of_case = CACHEW__ENVELOPE__OF_PULLED;
    m->pulled = &pulled;
    return cw_client_send(c, m, &piece, a->data != NULL, a, NULL, 0, err);
}

static int answer_send_end(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                           struct cw_error *err)
{
    const struct cw_report *r = &a->report;
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = a->epoch,       .begin = a->begin,          .end = a->end,
        .n_batches = r->n_batches, .elements = r->elements, .n_elements = r->n_elements};
    Cachew__RangeEnd end = {CW_MESSAGE(range_end), .report = &report};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_END;
    m->range_end = &end;
    return cw_client_send(c, m, NULL, 0, a, NULL, 0, err);
}

static int answer_send_failed(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                              struct cw_error *err)
{
    Cachew__Failure why;
    cw_failure_init(&why, a->why ? a->why : &out_of_memory);
    Cachew__RangeFailed failed = {CW_MESSAGE(range_failed), .epoch = a->epoch, .begin = a->begin,
                                  .index = a->at,           .what = a->what,   .why = &why};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_FAILED;
    m->range_failed = &failed;
    return cw_client_send(c, m, NULL, 0, a, NULL, 0, err);
}

static int answer_send_not_here(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                                struct cw_error *err)
{
    Cachew__NotHere not_here = {CW_MESSAGE(not_here), .epoch = a->epoch, .begin = a->begin};
    m->of_case = CACHEW__ENVELOPE__OF_NOT_HERE;
    m->not_here = &not_here;
    return cw_client_send(c, m, NULL, 0, a, NULL, 0, err);
}

/* ---- all kinds ---- */

static int (*const answer_senders[])(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                                     struct cw_error *err) = {
    [CW_ANSWER_BATCH] = answer_send_batch,       [CW_ANSWER_PART] = answer_send_rows,
    [CW_ANSWER_KEYS] = answer_send_keys,         [CW_ANSWER_PULLED] = answer_send_pulled,
    [CW_ANSWER_END] = answer_send_end,           [CW_ANSWER_RANGE_FAILED] = answer_send_failed,
    [CW_ANSWER_NOT_HERE] = answer_send_not_here,
};

/* Counts an answer that contains a batch or rows, and returns its description for the trace. */
static struct cw_traced answer_count(struct cw_clients_stats *stats, const struct cw_answer *a)
{
    stats->n_batches++;
    stats->n_bytes += a->bytes;
    answer_count_quarantined(stats, a->quarantined ? a->quarantined : a->rows.quarantined);
    return (struct cw_traced){a->delivery.stream->stream->name, a->epoch, a->begin, a->at, a->key};
}

void cw_answers_send(struct cw_worker_stream *s, struct cw_answer *a)
{
    struct cw_client *c = cw_delivery_client(a);
    struct cw_clients *all = c->clients;
    struct cw_error err = {0};
    struct cw_traced traced = {0};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = a->re};
    bool data = cw_answer_has_rows(a);
    uint64_t requested_ns = a->requested_ns;
    a->delivery.stream = s;
    all->n_out += data;
    if (!c->conn || c->closing) {
        cw_delivery_free(a);
        return;
    }
    if (data)
        traced = answer_count(&all->stats, a);
    int r = answer_senders[a->kind](c, a, &m, &err);
    if (data)
        cw_trace_span(all->common->options.trace, "answer", &traced, requested_ns, cw_now_ns());
    if (r < 0) {
        cw_common_log(all->common, "client %s: %s", cw_conn_peer(c->conn), err.message);
        cw_client_close(c, &err);
    }
}

int cw_answers_send_not_here(struct cw_client *c, uint64_t re, uint64_t epoch, uint64_t begin,
                             struct cw_error *err)
{
    Cachew__NotHere not_here = {CW_MESSAGE(not_here), .epoch = epoch, .begin = begin};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_NOT_HERE,
                          .not_here = &not_here};
    return cw_client_send(c, &m, NULL, 0, NULL, NULL, 0, err);
}
