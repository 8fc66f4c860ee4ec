/* A peer: a client that is connected to this worker, as streams see it. It counts the bytes that are on their
 * way to the client. Any thread. */
#include "service/worker/peer.h"

#include <stdlib.h>

static bool peer_has_room(const struct cw_peer *p)
{
    size_t out = atomic_load(&p->out);
    return out == 0 || (out < CW_PEER_WINDOW && out < cw_budget_left(p->handed_out));
}

bool cw_peer_room(struct cw_peer *p)
{
    if (peer_has_room(p))
        return true;
    atomic_store(&p->blocked, true);
    return peer_has_room(p); /* bytes may have been given back before `blocked` was set */
}

void cw_peer_take(struct cw_peer *p, size_t bytes)
{
    atomic_fetch_add(&p->out, bytes);
}

bool cw_peer_give(struct cw_peer *p, size_t bytes)
{
    atomic_fetch_sub(&p->out, bytes);
    return peer_has_room(p) && atomic_exchange(&p->blocked, false);
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
