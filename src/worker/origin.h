/*
 * A source that is entered at its begin alone (`iterable`) runs in one worker of a service, its origin, which keeps what may be asked for again. Whoever plans
 * a range asks the origin for elements, also on the origin itself. The dispatcher names it.
 */
#pragma once
#include "pipeline/source.h"
#include "worker/worker_impl.h"

struct cw_origin;

/* The stream's thread. The source is s->local.sequence->stream. */
int cw_origin_new(struct cw_stream *s, struct cw_origin **ret, struct cw_error *err) _must_check_;
const struct cw_pull_away *cw_origin_away(const struct cw_origin *o);
/* Once nobody plans any more, before the source goes: what is served ends. NULL is ignored. */
void cw_origin_stop(struct cw_origin *o);

/* ---- the loop's thread ---- */

/* Who it is, as the dispatcher says. */
void cw_origin_is(struct cw_origin *o, struct cw_worker *w, const Cachew__WorkerAddress *a, const Cachew__Place *passed);
/* A request of another worker. */
int cw_origin_serve(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const Cachew__Pull *m, struct cw_error *err) _must_check_;
/* The stream ends: nobody is asked any more. NULL is ignored. */
void cw_origin_close(struct cw_origin *o);
/* After EXITED. NULL is ignored. */
void cw_origin_free(struct cw_origin *o);
