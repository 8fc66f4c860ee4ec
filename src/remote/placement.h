/* Handles what the dispatcher and workers say about ranges: updates the table of ranges, and tells courses
 * and fetches what changed. Also computes the cursor: the first position that this client still needs. The
 * mutex must be held in all functions. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "remote/range_table.h"

struct remote;

/* Handles a Placement: the dispatcher says which worker has a range. */
int cw_placement_set(struct remote *r, const Cachew__Placement *m, struct cw_error *err) _must_check_;
/* Handles a report: a range is over, with these numbers of batches and elements. by_worker: a worker sent it,
 * not the dispatcher; then it is used only if the known range has the same bounds. */
int cw_placement_report(struct remote *r, const Cachew__Report *m, bool by_worker,
                        struct cw_error *err) _must_check_;

/* Returns the first position that this client may still request. */
struct epoch_position cw_placement_cursor(const struct remote *r);
/* Whether the cursor is in a later range than the one that was last sent to the dispatcher. */
bool cw_placement_cursor_moved(const struct remote *r);
