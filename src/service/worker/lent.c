#include "service/worker/lent.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_REGIONS 4096 /* that a client may name at once */
/* shm_loans of a client: each costs some 500 bytes here, and is named when the client connects again. */
#define MAX_LOANS 1024

static const char shared_capability[] = "shm";

static void unlink_lent(struct client *c, struct sent *x)
{
    cw_link_out(&x->link);
    c->n_loans--;
    c->loan_bytes -= x->bytes;
}

static void append_lent(struct client *c, struct sent *x)
{
    cw_list_add(&c->lent, &x->link);
    c->n_loans++;
    c->loan_bytes += x->bytes;
}

/* ---- lending ---- */

void cw_lent_open(struct client *c, const Cachew__Hello *hello)
{
    bool shared = cw_conn_is_local(c->conn) && strcmp(hello->host, c->w->host) == 0 &&
                  cw_conn_has(c->conn, shared_capability);
    atomic_store(&c->peer.shared, shared);
    c->process = cw_conn_is_local(c->conn) ? cw_conn_peer_process(c->conn) : -1;
    if (hello->incarnation.len == sizeof(c->incarnation))
        memcpy(c->incarnation, hello->incarnation.data, sizeof(c->incarnation));
}

/* Names a piece of shared memory to a client, the first time. */
static int region_for(struct client *c, const struct worker_stream *s, const struct cw_slab *slab,
                      uint64_t *ret, struct cw_error *err)
{
    if (cw_slab_is_private(slab, err))
        return err->status = CW_E_IO;
    for (const struct region *r = c->regions; r; r = r->next)
        if (r->stream == s->serial && r->fd == slab->fd) {
            *ret = r->id;
            return 0;
        }
    struct stat st;
    if (fstat(slab->fd, &st) < 0)
        return cw_error_set(err, CW_E_IO, "the shared memory of batches is not there");
    struct region *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "shared memory");
    *r = (struct region){.stream = s->serial, .fd = slab->fd, .id = next_number(&c->w->next_region)};
    Cachew__Region message = {CW_MESSAGE(region), .size = (uint64_t)st.st_size};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REGION, .region = &message};
    message.region = *ret = r->id;
    int status = cw_client_send(c, &m, NULL, 0, NULL, &slab->fd, 1, err);
    if (status < 0) {
        free(r);
        return status;
    }
    r->next = c->regions;
    c->regions = r;
    return 0;
}

bool cw_lent_room(const struct client *c, const struct sent *x)
{
    return atomic_load(&c->peer.shared) && x->handed_out && x->bytes && c->n_loans < MAX_LOANS &&
           c->loan_bytes + x->bytes <= cw_budget_left(&c->w->handed_out);
}

int cw_lend(struct client *c, const struct worker_stream *s, struct sent *x, Cachew__Slab slabs[2],
            struct cw_error *err)
{
    const struct cw_batch *b = x->batch;
    size_t n = 0;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++) {
        if (!b->slabs[i])
            continue;
        slabs[n] = (Cachew__Slab){CW_MESSAGE(slab), .offset = b->slabs[i]->offset, .size = b->slabs[i]->size};
        int r = region_for(c, s, b->slabs[i], &slabs[n].region, err);
        if (r < 0)
            return r;
        slabs[n].slab = x->slabs[n] = next_number(&c->w->next_slab);
        n++;
    }
    return (int)n;
}

void cw_lent_add(struct client *c, struct sent *x)
{
    append_lent(c, x);
    x->loan = true;
    if (cw_peer_give(&c->peer, x->bytes)) /* it is nowhere on its way */
        cw_streams_wake(c->w);
}

/* Ends a loan of which all slabs came back. */
static void loan_settle(struct client *c, struct sent *x)
{
    if (x->slabs[0] || x->slabs[1])
        return;
    unlink_lent(c, x);
    cw_sent_free(x);
}

int cw_lent_return(struct client *c, uint64_t slab, struct cw_error *err)
{
    CW_LIST_EACH_OF (x, struct sent, link, &c->lent)
        for (size_t i = 0; slab && i < CW_COUNT_OF(x->slabs); i++)
            if (x->slabs[i] == slab) {
                x->slabs[i] = 0;
                loan_settle(c, x);
                return 0;
            }
    if (c->keeps) /* of an earlier connection, perhaps, of which nothing is known here */
        return 0;
    return cw_error_set(err, CW_E_SERVICE, "slab %llu was returned, which was not lent, or came back before",
                        (unsigned long long)slab);
}

/* ---- connections that end ---- */

/* Nothing of it is left. retire: somebody may still have what it was lent. */
static void client_free(struct client *c, bool retire)
{
    CW_LIST_EACH_OF (x, struct sent, link, &c->lent) {
        unlink_lent(c, x);
        for (size_t i = 0; retire && i < CW_COUNT_OF(x->batch->slabs); i++)
            if (x->batch->slabs[i])
                cw_slab_retire(x->batch->slabs[i]);
        cw_sent_free(x);
    }
    while (c->regions)
        free(CW_POP(c->regions));
    cw_watch_free(c->process_watch);
    if (c->process >= 0)
        close(c->process);
    cw_peer_unref(&c->peer);
}

static void departed_free(struct client *c, bool retire)
{
    struct client **at = &c->w->departed;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    client_free(c, retire);
}

static void on_process_end(void *arg, int events CW_UNUSED)
{
    struct client *c = arg;
    struct cw_worker *w = c->w;
    departed_free(c, false);
    cw_worker_changed(w);
}

static bool process_lives(const struct client *c)
{
    struct pollfd p = {.fd = c->process, .events = POLLIN};
    return c->process >= 0 && poll(&p, 1, 0) == 0;
}

void cw_lent_closed(struct client *c)
{
    struct cw_worker *w = c->w;
    bool gone = cw_list_empty(&c->lent) || (c->process >= 0 && !process_lives(c));
    if (!gone && !w->stopping && c->process >= 0 &&
        cw_watch_new(w->loop, c->process, on_process_end, c, &c->process_watch, NULL) >= 0) {
        cw_watch_set(c->process_watch, 1);
        c->next = w->departed;
        w->departed = c;
    } else {
        client_free(c, !gone); /* whose end can't be seen may live for ever */
    }
}

void cw_lent_stop(struct cw_worker *w)
{
    while (w->departed)
        departed_free(w->departed, true);
}

/* ---- clients that come again ---- */

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* What a client does not have any more, of all that it was lent. */
static void free_others(struct client *c, const uint64_t *slabs, size_t n)
{
    CW_LIST_EACH_OF (x, struct sent, link, &c->lent) {
        for (size_t i = 0; i < CW_COUNT_OF(x->slabs); i++)
            if (x->slabs[i] && !(n && bsearch(&x->slabs[i], slabs, n, sizeof(*slabs), compare)))
                x->slabs[i] = 0;
        loan_settle(c, x);
    }
}

static void take_over(struct client *c, struct client *from)
{
    CW_LIST_EACH_OF (x, struct sent, link, &from->lent) {
        unlink_lent(from, x);
        cw_peer_ref(&c->peer);
        cw_peer_unref(&from->peer);
        x->client = c;
        append_lent(c, x);
    }
    from->process_watch = cw_watch_free(from->process_watch);
    if (c->process < 0) { /* it came by another way, on which its process is not to be seen */
        c->process = from->process;
        from->process = -1;
    }
    struct region **end = &c->regions;
    while (*end)
        end = &(*end)->next;
    *end = CW_STEAL(from->regions);
}

static bool had_region(const struct client *c, const struct client *other, const Cachew__Keep *m)
{
    if (c == other || memcmp(c->incarnation, other->incarnation, sizeof(c->incarnation)) != 0)
        return false;
    for (const struct region *r = other->regions; r; r = r->next)
        for (size_t i = 0; i < m->n_regions; i++)
            if (m->regions[i] == r->id)
                return true;
    return false;
}

int cw_lent_keep(struct client *c, const Cachew__Keep *m, struct cw_error *err)
{
    if (m->n_regions > MAX_REGIONS)
        return cw_error_set(err, CW_E_SERVICE, "%zu regions are to be kept, expected at most %d",
                            m->n_regions, MAX_REGIONS);
    _cleanup_free_ uint64_t *slabs = malloc(CW_MAX(m->n_slabs, 1) * sizeof(*slabs));
    if (!slabs)
        return cw_error_nomem(err, m->n_slabs * sizeof(*slabs), "slabs that are kept");
    if (m->n_slabs)
        memcpy(slabs, m->slabs, m->n_slabs * sizeof(*slabs));
    qsort(slabs, m->n_slabs, sizeof(*slabs), compare);
    c->keeps = true;
    if (!m->n_regions) {
        c->closing = true; /* what was not sent yet is not */
        free_others(c, slabs, m->n_slabs);
    }
    for (struct client *d = c->w->departed, *next; d; d = next) {
        next = d->next;
        if (had_region(c, d, m)) {
            free_others(d, slabs, m->n_slabs);
            take_over(c, d);
            departed_free(d, false);
        }
    }
    for (struct client *d = c->w->clients; d; d = d->next)
        if (had_region(c, d, m)) { /* the end of its connection was not seen here yet */
            free_others(d, slabs, m->n_slabs);
            take_over(c, d);
            d->closing = true;
            cw_conn_close(d->conn, NULL);
        }
    return 0;
}
