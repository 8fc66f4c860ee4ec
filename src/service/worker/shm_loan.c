/* Batches in shared memory that clients on this host use. The loop's thread only; called by clients.c and
 * answers.c. */
#include "service/worker/shm_loan.h"

#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_REGIONS 4096 /* most regions in one message Keep */
/* Most shm_loans of a client. Each needs about 500 bytes here, and is named when the client reconnects. */
#define MAX_LOANS 1024

static void shm_loan_unlink(struct cw_client *c, struct cw_answer *a)
{
    cw_link_out(&a->delivery.link);
    c->loans.n--;
    c->loans.bytes -= a->bytes;
}

static void shm_loan_append(struct cw_client *c, struct cw_answer *a)
{
    cw_list_add(&c->loans.list, &a->delivery.link);
    c->loans.n++;
    c->loans.bytes += a->bytes;
}

/* ---- sending ---- */

void cw_shm_loans_init(struct cw_client *c, const Cachew__Hello *hello)
{
    bool shared = cw_conn_is_local(c->conn) && strcmp(hello->host, c->clients->common->host) == 0 &&
                  cw_conn_has(c->conn, "shm");
    atomic_store(&c->peer.shared, shared);
    cw_list_init(&c->loans.list);
    c->loans.process = cw_conn_is_local(c->conn) ? cw_conn_peer_process(c->conn) : -1;
    if (hello->incarnation.len == sizeof(c->incarnation))
        memcpy(c->incarnation, hello->incarnation.data, sizeof(c->incarnation));
}

/* Sets *ret to the id of the slab's region. If the client does not have the region yet, sends it. */
static int region_name(struct cw_client *c, const struct cw_worker_stream *s, const struct cw_slab *slab,
                       uint64_t *ret, struct cw_error *err)
{
    if (cw_slab_is_private(slab, err))
        return err->status = CW_E_IO;
    for (const struct cw_region *r = c->loans.regions; r; r = r->next)
        if (r->stream == s->serial && r->fd == slab->fd) {
            *ret = r->id;
            return 0;
        }
    struct stat st;
    if (fstat(slab->fd, &st) < 0)
        return cw_error_set(err, CW_E_IO, "the shared memory of batches does not exist any more");
    struct cw_region *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "shared memory");
    *r = (struct cw_region){.stream = s->serial, .fd = slab->fd, .id = ++c->clients->next_region};
    Cachew__Region message = {CW_MESSAGE(region), .size = (uint64_t)st.st_size};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REGION, .region = &message};
    message.region = *ret = r->id;
    int status = cw_client_send(c, &m, NULL, 0, NULL, &slab->fd, 1, err);
    if (status < 0) {
        free(r);
        return status;
    }
    r->next = c->loans.regions;
    c->loans.regions = r;
    return 0;
}

bool cw_shm_loan_room(const struct cw_client *c, const struct cw_answer *a)
{
    return atomic_load(&c->peer.shared) && a->handed_out && a->bytes && c->loans.n < MAX_LOANS &&
           c->loans.bytes + a->bytes <= cw_budget_left(&c->clients->handed_out);
}

int cw_shm_loan_name(struct cw_client *c, struct cw_answer *a, Cachew__Slab slabs[2], struct cw_error *err)
{
    const struct cw_batch *b = a->batch;
    size_t n = 0;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++) {
        if (!b->slabs[i])
            continue;
        slabs[n] = (Cachew__Slab){CW_MESSAGE(slab), .offset = b->slabs[i]->offset, .size = b->slabs[i]->size};
        int r = region_name(c, a->delivery.stream, b->slabs[i], &slabs[n].region, err);
        if (r < 0)
            return r;
        slabs[n].slab = a->delivery.slabs[n] = ++c->clients->next_slab;
        n++;
    }
    return (int)n;
}

void cw_shm_loan_add(struct cw_client *c, struct cw_answer *a)
{
    shm_loan_append(c, a);
    a->delivery.loan = true;
    cw_client_give_room(c, a->bytes); /* the batch itself is not on its way, only a message */
}

/* Ends a shm_loan if the client has returned all of its slabs. */
static void shm_loan_settle(struct cw_client *c, struct cw_answer *a)
{
    if (a->delivery.slabs[0] || a->delivery.slabs[1])
        return;
    shm_loan_unlink(c, a);
    cw_delivery_free(a);
}

int cw_shm_loan_return(struct cw_client *c, uint64_t slab, struct cw_error *err)
{
    CW_LIST_EACH_OF (a, struct cw_answer, delivery.link, &c->loans.list)
        for (size_t i = 0; slab && i < CW_COUNT_OF(a->delivery.slabs); i++)
            if (a->delivery.slabs[i] == slab) {
                a->delivery.slabs[i] = 0;
                shm_loan_settle(c, a);
                return 0;
            }
    if (c->loans.kept) /* it may be a slab of an earlier connection that is not known here any more */
        return 0;
    return cw_error_set(err, CW_E_SERVICE,
                        "the client returned the memory (slab) %llu, which it does not have, or has returned "
                        "before" CW_OTHER_VERSION,
                        (unsigned long long)slab);
}

/* ---- connections that end ---- */

/* Frees a client without a connection. retire: its process may still read the slabs of its shm_loans, which
 * are never used again. */
static void shm_loans_free(struct cw_client *c, bool retire)
{
    CW_LIST_EACH_OF (a, struct cw_answer, delivery.link, &c->loans.list) {
        shm_loan_unlink(c, a);
        for (size_t i = 0; retire && i < CW_COUNT_OF(a->batch->slabs); i++)
            if (a->batch->slabs[i])
                cw_slab_retire(a->batch->slabs[i]);
        cw_delivery_free(a);
    }
    while (c->loans.regions)
        free(CW_POP(c->loans.regions));
    cw_watch_free(c->loans.watch);
    if (c->loans.process >= 0)
        close(c->loans.process);
    cw_peer_unref(&c->peer);
}

static void departed_free(struct cw_client *c, bool retire)
{
    CW_UNLINK(c->clients->departed, c);
    shm_loans_free(c, retire);
}

static void departed_on_process_end(void *arg, int events CW_UNUSED)
{
    struct cw_client *c = arg;
    struct cw_clients *all = c->clients;
    departed_free(c, false);
    cw_common_changed(all->common);
}

static bool client_process_lives(const struct cw_client *c)
{
    struct pollfd p = {.fd = c->loans.process, .events = POLLIN};
    return c->loans.process >= 0 && poll(&p, 1, 0) == 0;
}

void cw_shm_loans_close(struct cw_client *c)
{
    struct cw_clients *all = c->clients;
    bool gone = cw_list_empty(&c->loans.list) || (c->loans.process >= 0 && !client_process_lives(c));
    if (!gone && !all->common->stopping && c->loans.process >= 0 &&
        cw_watch_new(all->common->loop, c->loans.process, departed_on_process_end, c, &c->loans.watch,
                     NULL) >= 0) {
        cw_watch_set(c->loans.watch, 1);
        c->next = all->departed;
        all->departed = c;
    } else {
        shm_loans_free(c,
                       !gone); /* if the end of a process can't be noticed, assume that it lives for ever */
    }
}

void cw_shm_loans_stop(struct cw_clients *all)
{
    while (all->departed)
        departed_free(all->departed, true);
}

/* ---- clients that connect again ---- */

static int slab_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Ends the shm_loans of a client, except those with one of these n slabs, which are sorted. */
static void shm_loans_free_others(struct cw_client *c, const uint64_t *slabs, size_t n)
{
    CW_LIST_EACH_OF (a, struct cw_answer, delivery.link, &c->loans.list) {
        for (size_t i = 0; i < CW_COUNT_OF(a->delivery.slabs); i++)
            if (a->delivery.slabs[i] &&
                !(n && bsearch(&a->delivery.slabs[i], slabs, n, sizeof(*slabs), slab_compare)))
                a->delivery.slabs[i] = 0;
        shm_loan_settle(c, a);
    }
}

/* Moves all shm_loans of an earlier connection (from) to the client's new connection (c). */
static void shm_loans_take_over(struct cw_client *c, struct cw_client *from)
{
    CW_LIST_EACH_OF (a, struct cw_answer, delivery.link, &from->loans.list) {
        shm_loan_unlink(from, a);
        a->peer = cw_peer_ref(&c->peer);
        cw_peer_unref(&from->peer);
        shm_loan_append(c, a);
    }
    from->loans.watch = cw_watch_free(from->loans.watch);
    if (c->loans.process < 0) { /* the process of the new connection is not known */
        c->loans.process = from->loans.process;
        from->loans.process = -1;
    }
    *CW_LIST_END(c->loans.regions) = CW_STEAL(from->loans.regions);
}

/* Returns whether `other` is an earlier connection of the same client, over which it got one of the regions
 * of m. */
static bool client_had_region(const struct cw_client *c, const struct cw_client *other, const Cachew__Keep *m)
{
    if (c == other || memcmp(c->incarnation, other->incarnation, sizeof(c->incarnation)) != 0)
        return false;
    for (const struct cw_region *r = other->loans.regions; r; r = r->next)
        for (size_t i = 0; i < m->n_regions; i++)
            if (m->regions[i] == r->id)
                return true;
    return false;
}

int cw_shm_loans_keep(struct cw_client *c, const Cachew__Keep *m, struct cw_error *err)
{
    if (m->n_regions > MAX_REGIONS)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the client wants to keep %zu regions of shared memory: expected at most %d" CW_OTHER_VERSION,
            m->n_regions, MAX_REGIONS);
    _cleanup_free_ uint64_t *slabs = malloc(CW_MAX(m->n_slabs, 1) * sizeof(*slabs));
    if (!slabs)
        return cw_error_nomem(err, m->n_slabs * sizeof(*slabs), "the slabs that a client keeps");
    if (m->n_slabs)
        memcpy(slabs, m->slabs, m->n_slabs * sizeof(*slabs));
    qsort(slabs, m->n_slabs, sizeof(*slabs), slab_compare);
    c->loans.kept = true;
    if (!m->n_regions) {
        c->closing = true; /* nothing more is sent to this client */
        shm_loans_free_others(c, slabs, m->n_slabs);
    }
    for (struct cw_client *o = c->clients->departed, *next; o; o = next) {
        next = o->next;
        if (client_had_region(c, o, m)) {
            shm_loans_free_others(o, slabs, m->n_slabs);
            shm_loans_take_over(c, o);
            departed_free(o, false);
        }
    }
    for (struct cw_client *o = c->clients->list; o; o = o->next)
        if (client_had_region(c, o, m)) { /* the end of that connection was not noticed yet */
            shm_loans_free_others(o, slabs, m->n_slabs);
            shm_loans_take_over(c, o);
            cw_client_close(o, NULL);
        }
    return 0;
}
