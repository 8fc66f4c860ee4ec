/*
 * An iterable can only be read from its start, so one worker of a service reads it: the origin of the stream,
 * which the dispatcher names. All workers, the origin too, request the elements of their ranges from it. It
 * keeps elements that a range may need a second time.
 */
#pragma once
#include "pipeline/source.h"
#include "service/worker/worker_impl.h"

struct cw_origin;

/* The stream's thread. The source is s->local.sequence->stream. */
int cw_origin_new(struct cw_stream *s, struct cw_origin **ret, struct cw_error *err) _must_check_;
const struct cw_pull_away *cw_origin_away(const struct cw_origin *o);
/* Ends the thread that reads the source. To be called when the runner is freed, before the source is. NULL is
 * ignored. */
void cw_origin_stop(struct cw_origin *o);

/* ---- the loop's thread ---- */

/* The dispatcher says which worker is the origin, and that clients need nothing before `passed`. */
void cw_origin_is(struct cw_origin *o, struct cw_worker *w, const Cachew__WorkerAddress *a,
                  const Cachew__Place *passed);
/* A request of another worker. */
int cw_origin_serve(struct cw_origin *o, struct cw_peer *peer, uint64_t id, const Cachew__Pull *m,
                    struct cw_error *err) _must_check_;
/* The stream ends: closes the connection to the origin. NULL is ignored. */
void cw_origin_close(struct cw_origin *o);
/* After EXITED. NULL is ignored. */
void cw_origin_free(struct cw_origin *o);
