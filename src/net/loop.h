/*
 * The event loop of one thread, and what other threads may ask of it. Everything in net/ happens on the
 * thread that runs the loop, but for cw_loop_post and cw_loop_stop.
 */
#pragma once
#include <stdint.h>

#include "base/error.h"

struct cw_loop;
struct cw_timer;

int cw_loop_new(struct cw_loop **ret, struct cw_error *err) _must_check_;
/* Everything that was made on it must be freed or closed before; what is closing is waited for. */
struct cw_loop *cw_loop_free(struct cw_loop *l);
/* Runs until cw_loop_stop. */
void cw_loop_run(struct cw_loop *l);
/* From any thread: cw_loop_run returns soon. */
void cw_loop_stop(struct cw_loop *l);

/* From any thread: calls fn(arg) on the loop's thread soon, in the order of posting. Never fails for want of
 * memory once `post` was prepared: the caller provides it, and may use it again once fn was called. Posting
 * it again before that does nothing. */
struct cw_post {
    struct cw_post *next;
    void (*fn)(void *arg);
    void *arg;
    _Atomic int posted;
};

void cw_loop_post(struct cw_loop *l, struct cw_post *post);
/* On the loop's thread, before `post` is freed, when nobody posts it any more: fn is not called. While fn
 * runs it may have been posted again. */
void cw_loop_unpost(struct cw_loop *l, struct cw_post *post);
/* fn(arg) after first_ns, then every repeat_ns (0: once). */
int cw_timer_new(struct cw_loop *l, void (*fn)(void *arg), void *arg, struct cw_timer **ret,
                 struct cw_error *err) _must_check_;
void cw_timer_start(struct cw_timer *t, uint64_t first_ns, uint64_t repeat_ns);
void cw_timer_stop(struct cw_timer *t);
struct cw_timer *cw_timer_free(struct cw_timer *t);
/* SIGINT and SIGTERM, caught while the loop lives: fn(arg, signal). */
int cw_loop_signals(struct cw_loop *l, void (*fn)(void *arg, int signal), void *arg,
                    struct cw_error *err) _must_check_;
/* Calls fn(arg, events) when fd is readable (1) or writable (2), level-triggered; for libraries with
 * descriptors of their own. */
struct cw_watch;
int cw_watch_new(struct cw_loop *l, int fd, void (*fn)(void *arg, int events), void *arg,
                 struct cw_watch **ret, struct cw_error *err) _must_check_;
void cw_watch_set(struct cw_watch *w, int events);
struct cw_watch *cw_watch_free(struct cw_watch *w);
