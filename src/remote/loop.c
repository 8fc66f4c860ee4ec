/* Starts and stops the client's loop thread, which communicates with the dispatcher and the workers. struct
 * remote owns the thread. */
#include "remote/loop.h"

#include "base/clock.h"
#include "base/thread.h"
#include "remote/arrivals.h"
#include "remote/internal.h"
#include "remote/requests.h"

/* One turn of the loop's thread: returns shared memory to workers, and does everything else that is due. */
static void loop_turn(void *user)
{
    struct remote *r = user;
    struct shm_loan *done = NULL;
    uint64_t now = cw_now_ns();
    CW_WITH (&r->mutex) {
        cw_shm_loans_return(&r->released, &done);
        if (r->run.phase != REMOTE_RUNNING)
            cw_dispatcher_leave(r);
        cw_dispatcher_connect(r, now);
        if (r->run.phase == REMOTE_RUNNING) {
            cw_dispatcher_report(r, now);
            cw_requests_send(r);
        }
        cw_remote_end_if_done(r);
        for (struct shm_loan *l = done; l; l = l->next)
            cw_shm_loan_end(l);
        cw_links_close_retired(r);
    }
    cw_remote_batches_free(done);
}

/* The timer may end a little early: then nothing is due yet, and it is set again. */
static void loop_on_timer(void *user)
{
    struct remote *r = user;
    CW_WITH (&r->mutex)
        r->loop.timer_ns = 0;
    loop_turn(r);
}

static void *loop_main(void *user)
{
    struct remote *r = user;
    cw_loop_run(r->loop.loop);
    return NULL;
}

int cw_remote_loop_start(struct remote *r, struct cw_error *err)
{
    struct remote_loop *l = &r->loop;
    int status = cw_timer_new(l->loop, loop_on_timer, r, &l->timer, err);
    if (status < 0)
        return status;
    l->wake = (struct cw_post){.fn = loop_turn, .arg = r};
    l->link_ops = &cw_arrivals_ops;
    l->started_ns = cw_now_ns();
    int e = pthread_create(&l->thread, NULL, loop_main, r);
    if (e)
        return cw_error_errno(err, CW_E_MEMORY, e, "can't start a thread");
    l->running = true;
    cw_remote_wake(r);
    return 0;
}

static void loop_goodbye(void *user)
{
    struct remote *r = user;
    loop_turn(r); /* returns the remaining shared memory */
    CW_GUARD(&r->mutex);
    r->run.phase = REMOTE_CLOSING;
    /* start the time limit again: it is for closing the connections, too */
    r->loop.goodbye_ns = 0;
    cw_dispatcher_leave(r);
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links)
        cw_link_close(l);
    cw_remote_wake_at(r, r->loop.goodbye_ns);
    cw_remote_end_if_done(r);
}

void cw_remote_loop_stop(struct remote *r)
{
    struct cw_post post = {.fn = loop_goodbye, .arg = r};
    if (!r->loop.running)
        return;
    cw_loop_post(r->loop.loop, &post);
    pthread_join(r->loop.thread, NULL);
    r->loop.running = false;
    /* do not wait for peers that do not close their side */
    CW_LIST_EACH_OF (l, struct link, in_list, &r->links)
        if (l->conn)
            cw_conn_abort(l->conn);
    if (r->dispatcher.conn)
        cw_conn_abort(r->dispatcher.conn);
}
