/* The connection to the dispatcher: attaches to the job, reports progress, receives the addresses of workers
 * and the placement of ranges, and detaches at the end. The loop's thread, with the mutex held. */
#pragma once
#include "net/conn.h"
#include "remote/range_table.h"

struct remote;

enum dispatcher_state {
    DISPATCHER_DOWN,     /* not connected, or connecting */
    DISPATCHER_OPEN,     /* Attach or Detach was sent, and is not answered yet */
    DISPATCHER_ATTACHED, /* the last Attach was answered: progress may be sent */
    DISPATCHER_PARTED,   /* left for good: nothing more is sent */
};

struct dispatcher {
    struct cw_conn *conn; /* NULL: none */
    enum dispatcher_state state;
    bool reached;      /* a connection was open at least once */
    uint64_t retry_ns; /* when to connect again */
    uint64_t attach_id,
        detach_id; /* ids of the last requests; detach_id 0: none was sent on this connection */
    /* the values that were sent last: */
    struct epoch_position cursor;
    uint64_t last_report_ns, reported_batches;
};

/* Sends a message. False: there is no open connection. If sending fails, the connection ends, and the next
 * connection sends again what matters. */
static inline bool cw_dispatcher_send(struct dispatcher *d, const Cachew__Envelope *m)
{
    bool there = d->state == DISPATCHER_OPEN || d->state == DISPATCHER_ATTACHED;
    if (there)
        (void)!cw_conn_send(d->conn, m, NULL, 0, NULL, NULL, NULL, 0, NULL);
    return there;
}

/* If there is no connection and one is needed: connects, or (before d->retry_ns) wakes the loop to do so
 * later. */
void cw_dispatcher_connect(struct remote *r, uint64_t now);
/* Sends the cursor and the consumer's numbers if a report is due, and sets the loop's timer for the next
 * report. */
void cw_dispatcher_report(struct remote *r, uint64_t now);
/* Sends Detach: this client leaves. A rank that is finished repeats it on new connections until it is
 * answered, or r->loop.goodbye_ns (set by the first call) has passed, because otherwise its job would wait
 * for it. Other ranks just close the connection. */
void cw_dispatcher_leave(struct remote *r);
