/*
 * The event loop of one thread. All functions of net/ are called on the thread that runs the loop, except
 * cw_loop_post and cw_loop_stop, which any thread may call.
 */
#pragma once
#include <stdint.h>

#include "base/error.h"

struct cw_loop;
struct cw_timer;

int cw_loop_new(struct cw_loop **ret, struct cw_error *err) _must_check_;
/* Waits until everything on the loop is closed, and frees it. Timers, watches, connections and listeners of
 * the loop must be freed or closed before. Returns NULL. */
struct cw_loop *cw_loop_free(struct cw_loop *l);
/* Runs until cw_loop_stop. */
void cw_loop_run(struct cw_loop *l);
/* Makes cw_loop_run return soon. Any thread. */
void cw_loop_stop(struct cw_loop *l);

/* A call of fn(arg) on the loop's thread; calls run in the order of posting. The poster owns the struct, so
 * posting allocates nothing. While a post is pending, posting it again does nothing. */
struct cw_post {
    struct cw_post *next;
    void (*fn)(void *arg);
    void *arg;
    _Atomic int posted;
};

/* Any thread. */
void cw_loop_post(struct cw_loop *l, struct cw_post *post);
/* Cancels a post before the poster frees it: fn is not called any more. Loop thread only, and no thread may
 * post it any more. May be called from fn, after which the post may be pending again. */
void cw_loop_unpost(struct cw_loop *l, struct cw_post *post);
/* A timer that calls fn(arg) after first_ns, then every repeat_ns (0: once). */
int cw_timer_new(struct cw_loop *l, void (*fn)(void *arg), void *arg, struct cw_timer **ret,
                 struct cw_error *err) _must_check_;
void cw_timer_start(struct cw_timer *t, uint64_t first_ns, uint64_t repeat_ns);
void cw_timer_stop(struct cw_timer *t);
struct cw_timer *cw_timer_free(struct cw_timer *t);
/* Lets the loop call fn(arg, signal) for SIGINT and SIGTERM until it is freed. */
int cw_loop_signals(struct cw_loop *l, void (*fn)(void *arg, int signal), void *arg,
                    struct cw_error *err) _must_check_;
/* A watched file descriptor: fn(arg, events) is called when fd is readable (1) or writable (2),
 * level-triggered, as far as cw_watch_set asks for these events. The caller keeps fd. */
struct cw_watch;
int cw_watch_new(struct cw_loop *l, int fd, void (*fn)(void *arg, int events), void *arg,
                 struct cw_watch **ret, struct cw_error *err) _must_check_;
void cw_watch_set(struct cw_watch *w, int events);
struct cw_watch *cw_watch_free(struct cw_watch *w);
