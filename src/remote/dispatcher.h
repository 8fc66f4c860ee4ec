/*
 * The connection to the dispatcher: attaches to the job, reports progress, hears which ranges and workers
 * there are, and says goodbye at the end. The loop's thread, with the mutex held.
 */
#pragma once
#include "net/conn.h"
#include "remote/range_table.h"

struct remote;

enum dispatcher_state {
    DISPATCHER_DOWN,     /* no connection, or it is being made */
    DISPATCHER_OPEN,     /* Attach, or Detach, was sent and not answered */
    DISPATCHER_ATTACHED, /* the last Attach was answered: progress may be sent */
    DISPATCHER_PARTED,   /* for good: nothing is sent any more */
};

struct dispatcher {
    struct cw_conn *conn; /* NULL: none */
    enum dispatcher_state state;
    bool reached;      /* a connection was open, once */
    uint64_t retry_ns; /* when to connect again */
    uint64_t attach_id,
        detach_id; /* ids of the last requests; detach_id 0: none was sent on this connection */
    /* as they were last sent: */
    struct epoch_position cursor;
    uint64_t last_report_ns, reported_batches;
};

/* Sends a message. False: the dispatcher is not there. Where sending fails, the connection ends, and what
 * matters is sent again on the next one. */
static inline bool cw_dispatcher_send(struct dispatcher *d, const Cachew__Envelope *m)
{
    bool there = d->state == DISPATCHER_OPEN || d->state == DISPATCHER_ATTACHED;
    if (there)
        (void)!cw_conn_send(d->conn, m, NULL, 0, NULL, NULL, NULL, 0, NULL);
    return there;
}

/* Connects, or retries later, where there is no connection and one is needed. */
void cw_dispatcher_connect(struct remote *r, uint64_t now);
/* Sends the cursor and the numbers of the consumer, where that is due, and wakes the loop when it is next. */
void cw_dispatcher_report(struct remote *r, uint64_t now);
/* Says that this client leaves, until that is answered or the goodbye takes too long: r->loop.goodbye_ns, set
 * by the first call. A rank that is finished has to: its job would wait
 * for it. Of others the end of the connection tells. */
void cw_dispatcher_leave(struct remote *r);
