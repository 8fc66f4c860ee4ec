/* Collects what auto measures with the workers that it decided on, and detects when conditions changed: the
 * client's step, the speed of the input, or the cache. Owns struct cw_auto_watch. Called by auto.c at each
 * report. */
#pragma once
#include "policy/auto_memory.h"

#define CW_AUTO_REPORTS 10 /* reports of a window */
#define CW_AUTO_GREW 0.02  /* least change of the cached part of the epoch that matters */

/* Drops the measurements of the present workers, except the client's step. */
void cw_auto_watch_restart(struct cw_auto *m, double now_s);
/* Lowers the number of decisions to at most `decisions` and ends resting, since conditions changed. A trial
 * of fewer workers goes on. */
void cw_auto_watch_conditions_changed(struct cw_auto *m, double decisions);
/* Stores the speeds of the cache and the time that cache points save, as they are at a decision. */
void cw_auto_watch_note_cache(struct cw_auto *m, const struct cw_facts *f);
/*
 * Adds a report to the measurements of the present workers. True: step or interval changed, so that
 * everything is measured anew. A report joins `known` at once while `known` has few batches. Later it joins
 * only when so many reports have come that a change would have shown in them.
 */
bool cw_auto_watch_changed(struct cw_auto *m, const struct cw_facts *f, const struct cw_auto_seen *now,
                           double now_s);
/* Adds a report to the window and the streak. True: `promises` (the client was expected not to wait), and the
 * client waits: in each of 8 reports, or in the mean of CW_AUTO_REPORTS. */
bool cw_auto_watch_broken(struct cw_auto_watch *w, bool promises, const struct cw_auto_seen *now);
/* Empties the streak. Called after each decision. */
void cw_auto_watch_end_streak(struct cw_auto_watch *w);
/* Replaces the measurements of the present workers by the reports in which the client waited. Lowers the
 * number of decisions to at most `decisions`. */
void cw_auto_watch_believe_waiting(struct cw_auto *m, double decisions, double now_s);
/* True: the cached part of the epoch is still growing, because workers find out one after another what is
 * cached. */
bool cw_auto_watch_cache_growing(struct cw_auto_cache *c, const struct cw_facts *f);
/* True: the cached part of the epoch changed, and the effect can be computed from the curve without a new
 * measurement. Restarts the measurements. */
bool cw_auto_watch_cache_grew(struct cw_auto *m, const struct cw_facts *f, double now_s);
