#include "worker/peer.h"

#include <stdlib.h>

static bool room(const struct cw_peer *p)
{
    return atomic_load(&p->shared) ? atomic_load(&p->n_out) < CW_PEER_LENT : atomic_load(&p->out) < CW_PEER_WINDOW;
}

bool cw_peer_room(struct cw_peer *p)
{
    if (room(p))
        return true;
    atomic_store(&p->blocked, true);
    return room(p); /* it may have been given between the two */
}

void cw_peer_take(struct cw_peer *p, size_t bytes)
{
    atomic_fetch_add(&p->out, bytes);
    atomic_fetch_add(&p->n_out, 1);
}

void cw_peer_arrived(struct cw_peer *p, size_t bytes) { atomic_fetch_sub(&p->out, bytes); }

bool cw_peer_give(struct cw_peer *p, size_t bytes)
{
    atomic_fetch_sub(&p->out, bytes);
    atomic_fetch_sub(&p->n_out, 1);
    return room(p) && atomic_exchange(&p->blocked, false);
}

struct cw_peer *cw_peer_ref(struct cw_peer *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void cw_peer_unref(struct cw_peer *p)
{
    if (p && atomic_fetch_sub(&p->refs, 1) == 1)
        free(p);
}
