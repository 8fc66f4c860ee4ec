#include "service/worker/answers.h"

#include "base/clock.h"
#include "base/crash.h"
#include "remote/wire.h"
#include "service/worker/shm_loan.h"

static const struct cw_error out_of_memory = {
    .status = CW_E_MEMORY, .message = "out of memory: the reason why a range failed is not known"};

/* Releases what an answer that won't be sent brought. */
static void answer_drop(struct cw_client *c, struct cw_worker_stream *s, struct cw_answer *a)
{
    if (a->batch)
        cw_stream_release(s->stream, CW_STEAL(a->batch));
    if (a->handed_out)
        cw_budget_give(&c->clients->handed_out, a->bytes);
    if (a->kind == CW_ANSWER_BATCH || a->kind == CW_ANSWER_PART || a->kind == CW_ANSWER_KEYS)
        cw_client_give_room(c, a->bytes);
}

static void answer_count_quarantined(struct cw_clients_stats *stats, const struct cw_quarantined *list)
{
    for (; list; list = list->next) {
        stats->n_skipped += !list->note && !list->replaced;
        stats->n_replaced += !list->note && list->replaced;
    }
}

/* Returns a delivery of an answer's batch or rows. NULL: out of memory; the answer is dropped. */
static struct cw_delivery *answer_delivery(struct cw_client *c, struct cw_worker_stream *s,
                                           struct cw_answer *a, struct cw_error *err)
{
    struct cw_delivery *d = cw_delivery_new(c, s, a);
    if (!d) {
        answer_drop(c, s, a);
        (void)cw_error_nomem(err, sizeof(*d), "a message");
    }
    return d;
}

/* Sends a batch whose data lies in n slabs, or (0) in pieces of the payload. Takes d over; as a shm_loan, it
 * is the client's already. */
static int answer_send_data(struct cw_client *c, const struct cw_answer *a, struct cw_delivery *d,
                            Cachew__Slab **slabs, size_t n, Cachew__Envelope *m, struct cw_error *err)
{
    struct cw_wire_batch wire;
    int r = cw_wire_batch_write(d->batch, a->quarantined, n > 0, &wire, err);
    if (r < 0) {
        cw_delivery_free(d);
        return r;
    }
    wire.message.begin = a->begin;
    wire.message.end = a->end;
    wire.message.key = a->key;
    m->of_case = CACHEW__ENVELOPE__OF_BATCH;
    m->batch = &wire.message;
    if (n > 0) {
        wire.message.n_slabs = n;
        wire.message.slabs = slabs;
        cw_shm_loan_add(c, d);
        r = cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
    } else {
        r = cw_client_send(c, m, wire.pieces, wire.n_pieces, d, NULL, 0, err);
    }
    cw_wire_batch_deinit(&wire);
    if (n > 0) { /* it may be out for long, and only its slabs are needed */
        free(CW_STEAL(d->batch->ids));
        free(CW_STEAL(d->batch->components));
    }
    return r;
}

static int answer_send_batch(struct cw_client *c, struct cw_worker_stream *s, struct cw_answer *a,
                             Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Slab slabs[2], *list[2] = {&slabs[0], &slabs[1]};
    struct cw_clients *all = c->clients;
    struct cw_delivery *d = answer_delivery(c, s, a, err);
    if (!d)
        return CW_E_MEMORY;
    all->stats.n_batches++;
    all->stats.n_bytes += d->bytes;
    answer_count_quarantined(&all->stats, a->quarantined);
    int n = cw_shm_loan_room(c, d) ? cw_shm_loan_name(c, d, slabs, err) : 0;
    if (n == CW_E_IO) {
        if (!all->copies_logged)
            cw_common_log(all->common,
                          "batches can't be lent to clients of this machine, they are sent as copies: %s",
                          err->message);
        all->copies_logged = true;
        atomic_store(&c->peer.shared, false);
        n = 0;
    }
    if (n < 0) {
        cw_delivery_free(d);
        return n;
    }
    return answer_send_data(c, a, d, list, (size_t)n, m, err);
}

/* Sends rows that the client joins. */
static int answer_send_rows(struct cw_client *c, struct cw_worker_stream *s, struct cw_answer *a,
                            Cachew__Envelope *m, struct cw_error *err)
{
    struct iovec piece = {.iov_base = a->rows->data, .iov_len = a->rows->size};
    struct cw_clients_stats *stats = &c->clients->stats;
    struct cw_wire_part wire;
    stats->n_batches++;
    stats->n_bytes += a->rows->size;
    int r = cw_wire_part_write(a->rows, &wire, err);
    if (r < 0) {
        answer_drop(c, s, a);
        return r;
    }
    answer_count_quarantined(stats, a->rows->quarantined);
    wire.message.epoch = a->epoch;
    wire.message.begin = a->begin;
    wire.message.end = a->end;
    wire.message.key = a->key;
    wire.message.first = a->at;
    m->of_case = CACHEW__ENVELOPE__OF_PART;
    m->part = &wire.message;
    struct cw_delivery *d = answer_delivery(c, s, a, err);
    r = d ? cw_client_send(c, m, &piece, 1, d, NULL, 0, err) : CW_E_MEMORY;
    cw_wire_part_deinit(&wire);
    return r;
}

static int answer_send_keys(struct cw_client *c, struct cw_worker_stream *s, struct cw_answer *a,
                            Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Keys keys = {CW_MESSAGE(keys),
                         .epoch = a->epoch,
                         .begin = a->begin,
                         .end = a->end,
                         .first = a->at,
                         .over = a->over,
                         .keys = {.data = a->keys, .len = a->bytes}};
    if (a->why) {
        cw_failure_init(&why, a->why);
        keys.why = &why;
    }
    m->of_case = CACHEW__ENVELOPE__OF_KEYS;
    m->keys = &keys;
    struct cw_delivery *d = answer_delivery(c, s, a, err);
    return d ? cw_client_send(c, m, NULL, 0, d, NULL, 0, err) : CW_E_MEMORY;
}

/* Sends elements of a source to another worker. They count as on their way to no client. */
static int answer_send_pulled(struct cw_client *c, struct cw_answer *a, Cachew__Envelope *m,
                              struct cw_error *err)
{
    Cachew__Failure why;
    Cachew__Pulled pulled = {CW_MESSAGE(pulled)};
    const struct iovec piece = {a->pulled, a->bytes};
    m->of_case = CACHEW__ENVELOPE__OF_PULLED;
    m->pulled = &pulled;
    if (a->pulled)
        return cw_conn_send(c->conn, m, &piece, 1, free, CW_STEAL(a->pulled), NULL, 0, err);
    cw_failure_init(&why, a->why ? a->why : &out_of_memory);
    pulled.why = &why;
    return cw_conn_send(c->conn, m, NULL, 0, NULL, NULL, NULL, 0, err);
}

static int answer_send_end(struct cw_client *c, const struct cw_answer *a, Cachew__Envelope *m,
                           struct cw_error *err)
{
    Cachew__Report report = {
        CW_MESSAGE(report),        .epoch = a->epoch,       .begin = a->begin,          .end = a->end,
        .n_batches = a->n_batches, .elements = a->elements, .n_elements = a->n_elements};
    Cachew__RangeEnd end = {CW_MESSAGE(range_end), .report = &report};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_END;
    m->range_end = &end;
    return cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
}

static int answer_send_failed(struct cw_client *c, const struct cw_answer *a, Cachew__Envelope *m,
                              struct cw_error *err)
{
    Cachew__Failure why;
    cw_failure_init(&why, a->why ? a->why : &out_of_memory);
    Cachew__RangeFailed failed = {CW_MESSAGE(range_failed), .epoch = a->epoch, .begin = a->begin,
                                  .index = a->at,           .what = a->what,   .why = &why};
    m->of_case = CACHEW__ENVELOPE__OF_RANGE_FAILED;
    m->range_failed = &failed;
    return cw_client_send(c, m, NULL, 0, NULL, NULL, 0, err);
}

int cw_answers_send_not_here(struct cw_client *c, uint64_t re, uint64_t epoch, uint64_t begin,
                             struct cw_error *err)
{
    Cachew__NotHere not_here = {CW_MESSAGE(not_here), .epoch = epoch, .begin = begin};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = re, .of_case = CACHEW__ENVELOPE__OF_NOT_HERE,
                          .not_here = &not_here};
    return cw_client_send(c, &m, NULL, 0, NULL, NULL, 0, err);
}

void cw_answers_send(struct cw_worker_stream *s, struct cw_answer *a)
{
    struct cw_client *c = CW_CONTAINER(a->peer, struct cw_client, peer);
    struct cw_error err = {0};
    int r = 0;
    Cachew__Envelope m = {CW_MESSAGE(envelope), .re = a->re};
    if (!c->conn || c->closing) {
        answer_drop(c, s, a);
        return;
    }
    switch (a->kind) {
    case CW_ANSWER_BATCH:
        cw_crash_point("worker-batch");
        r = answer_send_batch(c, s, a, &m, &err);
        break;
    case CW_ANSWER_PART:
        cw_crash_point("worker-part");
        r = answer_send_rows(c, s, a, &m, &err);
        break;
    case CW_ANSWER_KEYS:
        r = answer_send_keys(c, s, a, &m, &err);
        break;
    case CW_ANSWER_PULLED:
        r = answer_send_pulled(c, a, &m, &err);
        break;
    case CW_ANSWER_END:
        r = answer_send_end(c, a, &m, &err);
        break;
    case CW_ANSWER_RANGE_FAILED:
        r = answer_send_failed(c, a, &m, &err);
        break;
    default:
        r = cw_answers_send_not_here(c, a->re, a->epoch, a->begin, &err);
    }
    if (a->kind == CW_ANSWER_BATCH || a->kind == CW_ANSWER_PART)
        cw_trace_span(c->clients->common->options.trace, "answer",
                      &(struct cw_traced){s->stream->name, a->epoch, a->begin, a->at, a->key},
                      a->requested_ns, cw_now_ns());
    if (r < 0) {
        cw_common_log(c->clients->common, "client %s: %s", cw_conn_peer(c->conn), err.message);
        cw_client_close(c, &err);
    }
}
