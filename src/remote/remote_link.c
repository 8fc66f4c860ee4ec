/* Connections to workers: what comes for pieces, and what is lent. The loop's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "remote/remote_impl.h"

#include "base/crash.h"
#include "base/clock.h"
#include "net/limits.h"
#include "remote/wire.h"

#define RETRY_FIRST_NS UINT64_C(20000000)
#define RETRY_MAX_NS UINT64_C(1000000000)
/* A worker that can't be reached for so long is the dispatcher's business, and so often: it may be another
 * one by then, or know of other workers. */
#define REPORT_AFTER_NS UINT64_C(500000000)
#define REPORT_AGAIN_NS UINT64_C(2000000000)

struct link *cw_remote_link(struct remote *r, uint64_t worker)
{
    struct link *l = r->links;
    while (l && l->worker != worker)
        l = l->next;
    return l;
}

/* ---- what comes ---- */

/* The first batch that is waited for, whatever comes: for mutations. */
static struct piece *any_piece(const struct remote *r)
{
    struct piece *p = r->pieces;
    while (p && (p->state == HERE || p->what > CACHEW__WHAT__WHAT_ROWS))
        p = p->next;
    return p;
}

/* What a batch is for; NULL: nobody waits for it (any more). Mutex held. */
static struct piece *piece_of_batch(struct remote *r, const Cachew__Batch *m)
{
    bool rows = r->n_keys > 0; /* of a key, or a batch that counts from the range's begin */
    uint64_t first = rows ? m->index : m->begin / r->compiled->batch_size + m->index;
    struct piece *p = cw_mutated("g") ? NULL : r->pieces;
    while (p &&
           (p->state == HERE || p->what != (rows ? CACHEW__WHAT__WHAT_ROWS : CACHEW__WHAT__WHAT_BATCHES) ||
            p->epoch != m->epoch || p->first != first ||
            (rows ? p->begin != m->begin || p->key != m->key : p->part)))
        p = p->next;
    return p ? p : cw_mutated("g") || cw_mutated("dedup") ? any_piece(r) : NULL;
}

static void piece_came(struct remote *r, struct piece *p)
{
    p->state = HERE;
    p->came_ns = r->options.trace ? cw_now_ns() : 0;
    pthread_cond_broadcast(&r->changed);
}

/* Mutex held. lent: bytes that no payload brought. */
static void count_traffic(struct link *l, size_t lent)
{
    struct cw_conn_traffic now;
    cw_conn_traffic(l->conn, &now);
    l->bytes += now.in - l->traffic.in + lent;
    l->wire_bytes += now.in_wire - l->traffic.in_wire;
    l->traffic = now;
    /* A worker that lends sends copies, too, beyond what it has memory for. Over TCP it lends nothing. */
    if (lent || l->how != CW_TRANSPORT_SHM || l->copies.status || !cw_conn_is_local(l->conn))
        l->how = lent ? CW_TRANSPORT_SHM : cw_conn_is_local(l->conn) ? CW_TRANSPORT_UNIX : CW_TRANSPORT_TCP;
    l->n_batches++;
}

/* Batch, or part, number `index` of a range of a counted pipeline came, and is for no piece: where this
 * request asked for it, the worker had another range there than the client knows of, and is asked again.
 * Mutex held. */
static void piece_differs(struct link *l, uint64_t request, uint64_t epoch, uint64_t begin, uint64_t index)
{
    struct remote *r = l->remote;
    for (struct piece *p = r->pieces; p; p = p->next)
        if (p->state != HERE && p->of == l && p->request == request &&
            p->what == CACHEW__WHAT__WHAT_BATCHES && p->first == begin / r->compiled->batch_size + index) {
            cw_remote_not_here(r, l, request, epoch, begin);
            return;
        }
}

static int on_batch(struct link *l, uint64_t request, const Cachew__Batch *m, struct cw_slab *payload,
                    size_t size, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct cw_memory memory[2] = {{.data = payload ? payload->data : NULL, .size = payload ? size : 0}};
    struct remote_batch *b = cw_remote_batch_new(r);
    struct cw_quarantined *quarantined = NULL;
    int status = b ? 0 : cw_error_nomem(err, sizeof(*b), "a batch");
    if (status >= 0 && m->n_slabs > 0)
        b->mapping = l->mapping;
    for (size_t i = 0; status >= 0 && i < m->n_slabs; i++) {
        const struct region *region = cw_mapping_region(l->mapping, m->slabs[i]->region);
        if (i >= CW_COUNT_OF(memory) || !region || m->slabs[i]->offset > region->size ||
            m->slabs[i]->size > region->size - m->slabs[i]->offset) {
            status = cw_error_set(err, CW_E_SERVICE, "worker %llu: a batch names memory that was not lent",
                                  (unsigned long long)l->worker);
            break;
        }
        memory[i] = (struct cw_memory){.data = region->data + m->slabs[i]->offset, .size = m->slabs[i]->size};
        b->memory[b->n_lent] = memory[i];
        b->lent[b->n_lent++] = m->slabs[i]->slab;
    }
    if (status >= 0)
        status = cw_wire_batch_read(m, r->compiled, memory, &b->b, &quarantined, err);
    if (status < 0) {
        free(b);
        return status; /* the connection ends with it, and what was lent comes back */
    }
    b->b.slabs[0] = payload;
    cw_crash_point("client-batch");
    pthread_mutex_lock(&r->mutex);
    if (b->mapping)
        cw_mapping_add(b->mapping, b);
    count_traffic(l, m->n_slabs ? memory[0].size + memory[1].size : 0);
    struct piece *p = piece_of_batch(r, m);
    if (p) {
        p->batch = b;
        p->quarantined = quarantined;
        r->lent = b->n_lent > 0 && (r->lent || !r->batch_bytes);
        r->batch_bytes = CW_MAX(r->batch_bytes, CW_MAX(size, memory[0].size + memory[1].size));
        cw_remote_window_tell(r);
        piece_came(r, p);
    } else {
        piece_differs(l, request, m->epoch, m->begin, m->index);
    }
    pthread_mutex_unlock(&r->mutex);
    if (!p) {
        cw_quarantined_free(quarantined);
        cw_remote_batch_release(b);
    }
    return 0;
}

/* The piece that rows from a worker were asked for; NULL: no piece waits for them. Mutex held. */
static struct piece *piece_of_rows(const struct remote *r, const Cachew__Part *m, uint64_t n)
{
    uint64_t size = r->compiled->batch_size, g = m->begin / size + m->first;
    struct piece *p = r->pieces;
    while (p && (p->state == HERE || p->epoch != m->epoch || p->n != n ||
                 (r->n_keys ? p->what != CACHEW__WHAT__WHAT_PART || p->begin != m->begin ||
                                  p->key != m->key || p->first != m->first
                            : !p->part || p->first != g || p->begin != CW_MAX(m->begin, g * size))))
        p = p->next;
    return p;
}

static int on_part(struct link *l, uint64_t request, const Cachew__Part *m, struct cw_slab *payload,
                   size_t size, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct cw_part part = {0};
    int status = cw_wire_part_read(m, payload ? payload->data : NULL, size, r->compiled, &part, err);
    if (payload)
        cw_slab_put(payload);
    if (status < 0)
        return status;
    cw_crash_point("client-part");
    CW_WITH (&r->mutex) {
        struct piece *p = piece_of_rows(r, m, part.n);
        if (p) {
            p->rows = part;
            part = (struct cw_part){0};
            piece_came(r, p);
            cw_remote_wake(r); /* the cursor may move on */
        } else {
            piece_differs(l, request, m->epoch, m->begin, m->first);
        }
    }
    cw_part_deinit(&part);
    return 0;
}

/* What a request was for, and is not here; NULL: nothing, any more. Mutex held. */
static struct piece *asked_for(const struct link *l, uint64_t request)
{
    struct piece *p = l->remote->pieces;
    while (p && (p->state == HERE || p->of != l || p->request != request))
        p = p->next;
    return p;
}

static int set_failed(struct piece *p, const Cachew__Failure *why, struct cw_error *err)
{
    if (!(p->failed = calloc(1, sizeof(*p->failed))))
        return cw_error_nomem(err, sizeof(*p->failed), "why a range failed");
    cw_failure_error(why, p->failed);
    return 0;
}

/* The keys of a range's elements: of this request, since the range may have been another one when it was
 * asked for earlier. Mutex held. */
static int on_keys(struct link *l, uint64_t request, const Cachew__Keys *m, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct piece *p = asked_for(l, request);
    size_t wide = r->n_keys > 256 ? 2 : 1, n = m->keys.len / wide;
    if (!p || p->what != CACHEW__WHAT__WHAT_KEYS)
        return 0;
    const struct known_range *x = cw_remote_range(r, p->epoch, p->begin);
    /* Of a range that its worker ends early, the dispatcher tells when it is over, unless it ends in an
     * error: then these are all. Keys of its begin hold for any end. */
    bool early = x && m->end < x->end && (m->why || !m->over);
    if (!x || x->begin != p->begin || (x->end != m->end && !early)) { /* the worker had another range there */
        cw_remote_not_here(r, l, request, p->epoch, p->begin);
        return 0;
    }
    if (m->first != p->first)
        return cw_error_set(
            err, CW_E_SERVICE, "worker %llu: keys from element %llu on came: expected those from %llu on",
            (unsigned long long)l->worker, (unsigned long long)m->first, (unsigned long long)p->first);
    free(p->keys); /* of a message that was wrong */
    if (!(p->keys = malloc(n * sizeof(*p->keys) + 1)))
        return cw_error_nomem(err, n * sizeof(*p->keys), "the keys of a range");
    for (p->n_keys = 0; p->n_keys < n; p->n_keys++) {
        const uint8_t *key = m->keys.data + p->n_keys * wide;
        p->keys[p->n_keys] = (uint16_t)(key[0] | (wide > 1 ? key[1] << 8 : 0));
        if (p->keys[p->n_keys] >= r->n_keys)
            return cw_error_set(err, CW_E_SERVICE,
                                "worker %llu: an element has key %u: expected less than %u",
                                (unsigned long long)l->worker, p->keys[p->n_keys], r->n_keys);
    }
    if (m->why && set_failed(p, m->why, err) < 0)
        return err->status;
    p->first += n;
    p->over = m->over;
    piece_came(r, p);
    return 0;
}

/* A range is over; its report may be NULL. Mutex held. */
static int on_range_end(struct link *l, uint64_t request, const Cachew__Report *report, struct cw_error *err)
{
    int status = report ? cw_remote_report(l->remote, report, true, err) : 0;
    cw_remote_pump(l->remote);
    if (report) /* what is asked for still lies in another range by now, or will */
        cw_remote_not_here(l->remote, l, request, report->epoch, report->begin);
    return status;
}

/* What was asked for can't be had. Mutex held. */
static int on_failed(struct link *l, uint64_t request, const Cachew__RangeFailed *m, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct piece *p = asked_for(l, request);
    uint64_t first = m->begin / r->compiled->batch_size + m->index;
    while (p && p->what == CACHEW__WHAT__WHAT_BATCHES &&
           (p->state == HERE || p->of != l || p->request != request || p->first != first))
        p = p->next;
    if (p && set_failed(p, m->why, err) < 0)
        return err->status;
    if (p)
        piece_came(r, p);
    return 0;
}

/* A message that has no payload. */
static int on_word(struct link *l, const Cachew__Envelope *m, const int *fds, size_t n_fds,
                   struct cw_error *err)
{
    struct remote *r = l->remote;
    int status = 0;
    CW_GUARD(&r->mutex);
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_REGION:
        return cw_mapping_on_region(l, m->region, fds, n_fds, err);
    case CACHEW__ENVELOPE__OF_RANGE_END:
        return on_range_end(l, m->re, m->range_end->report, err);
    case CACHEW__ENVELOPE__OF_RANGE_FAILED:
        return on_failed(l, m->re, m->range_failed, err);
    case CACHEW__ENVELOPE__OF_NOT_HERE:
        cw_remote_not_here(r, l, m->re, m->not_here->epoch, m->not_here->begin);
        return 0;
    case CACHEW__ENVELOPE__OF_KEYS:
        status = on_keys(l, m->re, m->keys, err);
        cw_remote_pump(r);
        return status;
    default: /* of a later version */
        return 0;
    }
}

static int link_payload(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m, size_t size,
                        void **ret, struct cw_error *err)
{
    struct link *l = user;
    struct cw_slab *slab;
    if (m->of_case != CACHEW__ENVELOPE__OF_BATCH && m->of_case != CACHEW__ENVELOPE__OF_PART)
        return cw_error_set(err, CW_E_SERVICE, "a payload of %zu bytes came with a message that has none",
                            size);
    int status = cw_slab_get(&l->remote->slabs, size, &slab, err);
    if (status < 0)
        return status;
    l->incoming = slab;
    *ret = slab->data;
    return 0;
}

static void link_abandoned(void *user, struct cw_conn *c CW_UNUSED, void *payload CW_UNUSED)
{
    struct link *l = user;
    cw_slab_put(CW_STEAL(l->incoming));
}

static int link_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                        void *payload CW_UNUSED, size_t size, const int *fds, size_t n_fds,
                        struct cw_error *err)
{
    struct link *l = user;
    struct cw_slab *slab = CW_STEAL(l->incoming);
    int status = 0;
    l->attempt = 0; /* it is of use */
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_BATCH:
        if ((status = on_batch(l, m->re, m->batch, slab, size, err)) >= 0)
            slab = NULL;
        break;
    case CACHEW__ENVELOPE__OF_PART:
        status = on_part(l, m->re, m->part, CW_STEAL(slab), size, err);
        break;
    default:
        status = on_word(l, m, fds, n_fds, err);
    }
    if (slab)
        cw_slab_put(slab);
    return status;
}

/* ---- coming and going ---- */

/* What the worker lent over an earlier connection, if it is the same process still; else nothing. Mutex held.
 */
static int take_up_mapping(struct link *l, struct cw_conn *c, const Cachew__Welcome *peer,
                           struct cw_error *err)
{
    uint8_t worker[16] = {0};
    if (peer->incarnation.len == sizeof(worker))
        memcpy(worker, peer->incarnation.data, sizeof(worker));
    if (l->mapping && memcmp(l->mapping->worker, worker, sizeof(worker)) != 0)
        cw_mapping_unref(CW_STEAL(l->mapping));
    if (!l->mapping && !(l->mapping = cw_mapping_new(worker)))
        return cw_error_nomem(err, sizeof(*l->mapping), "a worker");
    return cw_mapping_again(l->mapping, c, err);
}

static int link_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct link *l = user;
    CW_GUARD(&l->remote->mutex);
    int status = take_up_mapping(l, c, peer->welcome, err);
    if (status < 0)
        return status;
    l->conn = c;
    l->open = true;
    l->down_since_ns = 0;
    l->reported_ns = 0;
    l->why = (struct cw_error){0};
    cw_remote_pump(l->remote);
    return 0;
}

/* Mutex held. */
static void down(struct link *l, const struct cw_error *why)
{
    struct remote *r = l->remote;
    uint64_t now = cw_now_ns(), wait = RETRY_FIRST_NS << CW_MIN(l->attempt, 6u);
    if (l->mapping)
        l->mapping->conn = NULL;
    if (!l->open) /* it did not come again: what it lent is not needed by anybody, but for batches */
        cw_mapping_unref(CW_STEAL(l->mapping));
    l->conn = NULL;
    l->open = false;
    l->traffic = (struct cw_conn_traffic){0};
    if (!l->same_again)
        l->attempt++;
    l->same_again = false;
    if (why->status)
        l->why = *why;
    if (!l->down_since_ns)
        l->down_since_ns = now;
    cw_remote_unask(r, l);
    l->retry_ns = now + CW_MIN(wait, RETRY_MAX_NS);
    cw_remote_wake_at(r, l->retry_ns);
    if (r->dispatcher_open && !l->gone && now - l->reported_ns >= REPORT_AGAIN_NS &&
        now - l->down_since_ns >= REPORT_AFTER_NS) {
        Cachew__Unreachable m = {CW_MESSAGE(unreachable), .worker = l->worker, .reason = l->why.message};
        Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_UNREACHABLE,
                              .unreachable = &m};
        cw_remote_tell(r, &e);
        l->reported_ns = now;
    }
}

static void link_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct link *l = user;
    struct remote *r = l->remote;
    CW_GUARD(&r->mutex);
    r->n_conns--;
    down(l, why);
    if (l->gone)
        cw_link_free(l);
    cw_remote_over(r);
}

static const struct cw_conn_ops link_ops = {
    .open = link_open,
    .payload = link_payload,
    .abandoned = link_abandoned,
    .message = link_message,
    .closed = link_closed,
};

/* The address to try: a Unix socket where the worker is on this host, else one address after the other. NULL:
 * there is none of the transport that was asked for. */
static const char *address_of(const struct link *l, char *buf, size_t size)
{
    const struct remote *r = l->remote;
    bool here = l->unix_path && *l->unix_path && l->host && strcmp(l->host, r->host) == 0;
    enum cw_transport t = r->options.transport;
    size_t n_tcp = t == CW_TRANSPORT_AUTO || t == CW_TRANSPORT_TCP ? l->n_addresses : 0;
    bool local = t == CW_TRANSPORT_AUTO ? here : t != CW_TRANSPORT_TCP && l->unix_path && *l->unix_path;
    size_t n = n_tcp + local, i = n ? l->attempt % n : 0;
    if (n == 0)
        return NULL;
    if (local && i == 0) {
        snprintf(buf, size, "unix:%s", l->unix_path);
        return buf;
    }
    return l->addresses[i - local];
}

void cw_link_connect(struct link *l)
{
    struct remote *r = l->remote;
    char buf[512];
    if (l->conn || l->gone || r->closing)
        return;
    if (l->retry_ns > cw_now_ns()) {
        cw_remote_wake_at(r, l->retry_ns);
        return;
    }
    struct cw_error err = {0};
    Cachew__Hello hello = *r->hello;
    const char *address = address_of(l, buf, sizeof(buf));
    if (l->copies.status)
        hello.n_capabilities = 0;
    struct cw_conn_options o = {
        .hello = &hello,
        .limits = CW_LIMITS_CLIENT,
        .timeout_ns = address && strncmp(address, "unix:", 5) == 0 ? CW_CONN_LOCAL_TIMEOUT_NS : 0,
        .token = r->token,
        .pack = true,
        .tls = r->options.tls};
    int status = address ? cw_conn_connect(r->loop, address, &o, &link_ops, l, &l->conn, &err)
                         : cw_error_set(&err, CW_E_SERVICE, "it has no address for transport %s",
                                        cw_transport_name(r->options.transport));
    if (status >= 0)
        r->n_conns++;
    else
        down(l, &err);
}

void cw_link_close(struct link *l)
{
    if (!l->conn)
        return;
    if (l->open && l->mapping && cw_list_empty(&l->mapping->batches))
        cw_mapping_leave(l->mapping);
    l->open = false; /* nothing is asked over it, nor will anything come */
    cw_remote_unask(l->remote, l);
    cw_conn_close(l->conn, NULL);
}

struct link *cw_link_free(struct link *l)
{
    struct remote *r = l->remote;
    struct link **at = &r->links;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    cw_mapping_unref(l->mapping);
    free(l->unix_path);
    free(l->host);
    for (size_t i = 0; i < l->n_addresses; i++)
        free(l->addresses[i]);
    free(l->addresses);
    free(l);
    return NULL;
}

static bool same_place(const struct link *l, const Cachew__WorkerAddress *m)
{
    bool same = l->unix_path && strcmp(l->unix_path, m->unix_path) == 0 && strcmp(l->host, m->host) == 0 &&
                l->n_addresses == m->n_addresses;
    for (size_t i = 0; same && i < m->n_addresses; i++)
        same = strcmp(l->addresses[i], m->addresses[i]) == 0;
    return same;
}

/* Nothing more is asked of it. Memory that it lent would be another batch's as soon as the connection ends,
 * if the worker lives on: it ends when all is back. Until then it may answer what it was asked; others are
 * asked for that when the dispatcher says who has it. */
static void retire(struct link *l)
{
    l->gone = true;
    if (!l->conn)
        cw_link_free(l);
    else if (!l->mapping || l->mapping->refs <= 1)
        cw_link_close(l);
}

void cw_remote_retired(struct remote *r)
{
    for (struct link *l = r->links; l; l = l->next)
        if (l->gone && l->conn && (!l->mapping || l->mapping->refs <= 1))
            cw_link_close(l);
}

int cw_remote_worker(struct remote *r, const Cachew__WorkerAddress *m, struct cw_error *err)
{
    struct link *l = cw_remote_link(r, m->worker);
    if (m->gone) {
        if (l)
            retire(l);
        return 0;
    }
    if (l && same_place(l, m)) {
        l->gone = false;
        l->retry_ns = 0;
        return 0;
    }
    if (l) { /* a dispatcher that remembers nothing counts its workers anew: this is another one */
        l->worker = 0;
        retire(l);
    }
    if (!(l = malloc(sizeof(*l))))
        return cw_error_nomem(err, sizeof(*l), "a worker");
    *l = (struct link){.next = r->links,
                       .remote = r,
                       .worker = m->worker,
                       .unix_path = strdup(m->unix_path),
                       .host = strdup(m->host),
                       .addresses = calloc(CW_MAX(m->n_addresses, 1), sizeof(*l->addresses))};
    r->links = l;
    for (size_t i = 0; l->addresses && i < m->n_addresses; i++)
        if ((l->addresses[l->n_addresses] = strdup(m->addresses[i])))
            l->n_addresses++;
    return l->unix_path && l->host && l->addresses ? 0 : cw_error_nomem(err, 0, "a worker");
}

json_t *cw_remote_links(const struct cw_producer *p)
{
    struct remote *r = ((const struct view *)p)->remote;
    json_t *list = json_array();
    CW_GUARD(&r->mutex);
    for (const struct link *l = r->links; l && list; l = l->next) {
        if (!l->n_batches)
            continue;
        json_t *o = json_pack("{s:I, s:s, s:I, s:I, s:I}", "worker", (json_int_t)l->worker, "transport",
                              cw_transport_name(l->how), "batches", (json_int_t)l->n_batches, "bytes",
                              (json_int_t)l->bytes, "wire_bytes", (json_int_t)l->wire_bytes);
        if (o && l->copies.status)
            json_object_set_new(o, "note", json_string(l->copies.message));
        json_array_append_new(list, o);
    }
    return list;
}
