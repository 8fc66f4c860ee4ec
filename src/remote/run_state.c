/* Wakes the client's loop thread, and records how a run ends: closing, or the first failure. Owns nothing;
 * changes r->loop and r->run. The files of src/remote call it on the loop's thread (cw_remote_wake: on any
 * thread), with r->mutex held. */
#include "remote/run_state.h"

#include "base/clock.h"
#include "base/text.h"
#include "remote/internal.h"

void cw_remote_wake(struct remote *r)
{
    cw_loop_post(r->loop.loop, &r->loop.wake);
}

void cw_remote_wake_at(struct remote *r, uint64_t when_ns)
{
    struct remote_loop *l = &r->loop;
    uint64_t now = cw_now_ns();
    /* no timer: the loop is being freed. Its last connections close, and their callbacks call this function
     */
    if (!l->timer)
        return;
    if (l->timer_ns && l->timer_ns <= when_ns && l->timer_ns > now)
        return;
    l->timer_ns = CW_MAX(when_ns, now + 1);
    cw_timer_start(l->timer, l->timer_ns - now, 0);
}

void cw_remote_end_if_done(struct remote *r)
{
    const struct remote_loop *l = &r->loop;
    if (r->run.phase != REMOTE_CLOSING)
        return;
    if ((l->n_conns == 0 && r->dispatcher.state == DISPATCHER_PARTED) || cw_now_ns() >= l->goodbye_ns)
        cw_loop_stop(l->loop);
    else /* the timer may end earlier, for another reason; then this function runs again and sets it again */
        cw_remote_wake_at(r, l->goodbye_ns);
}

void cw_remote_fail(struct remote *r, const struct cw_error *why)
{
    if (!r->run.failed.status)
        r->run.failed = *why;
    pthread_cond_broadcast(&r->changed);
}

void cw_remote_fail_text(struct remote *r, int status, const char *fmt, ...)
{
    struct cw_error why = {0};
    char text[sizeof(why.message)];
    CW_FORMAT(text, fmt);
    (void)cw_error_set(&why, status, "%s", text);
    cw_remote_fail(r, &why);
}
