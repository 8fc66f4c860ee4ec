/* What auto measures with the workers that it decided on, and whether that shows that conditions changed: of
 * the client, the input or the cache. Owns struct cw_auto_watch. Called by auto.c at each report. */
#pragma once
#include "policy/auto_memory.h"

#define CW_AUTO_REPORTS 10 /* of a window */
#define CW_AUTO_GREW 0.02  /* least change of the uncached part of the epoch that matters */

/* Drops what was measured with these workers, but for the step. */
void cw_auto_watch_restart(struct cw_auto *m, double now_s);
/* Drops the decisions made so far, all but `decisions`, since conditions changed. A trial of fewer workers
 * stands. */
void cw_auto_watch_conditions_changed(struct cw_auto *m, double decisions);
/* Notes the speeds of the cache and what its cache points save, for a decision made now. */
void cw_auto_watch_note_cache(struct cw_auto *m, const struct cw_facts *f);
/*
 * Adds a report to what was measured with these workers. True: step or interval changed, so that everything
 * is measured from the beginning. A report counts only once a change would have shown in it; as long as
 * little is known it counts at once.
 */
bool cw_auto_watch_changed(struct cw_auto *m, const struct cw_facts *f, const struct cw_auto_seen *now,
                           double now_s);
/* Adds a report to the window and the streak. True, at the latest after CW_AUTO_REPORTS: the client waits,
 * and by the last record it would not. */
bool cw_auto_watch_broken(struct cw_auto_watch *w, bool promises, const struct cw_auto_seen *now);
/* Ends the streak: there is another plan. */
void cw_auto_watch_end_streak(struct cw_auto_watch *w);
/* Takes the reports in which the client waited for all that is known of these workers. Of the decisions
 * `decisions` stand. */
void cw_auto_watch_believe_waiting(struct cw_auto *m, double decisions, double now_s);
/* True: the cached part is still growing, since workers learn one after another what is cached of this
 * epoch. */
bool cw_auto_watch_cache_growing(struct cw_auto_cache *c, const struct cw_facts *f);
/* True: the cached part changed, and what that gives follows from the curve, without a measurement. */
bool cw_auto_watch_cache_grew(struct cw_auto *m, const struct cw_facts *f, double now_s);
