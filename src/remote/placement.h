/*
 * What dispatcher and workers say about ranges, and how far this client needs them. It keeps the table of
 * ranges, and tells courses and fetches what changed. The mutex is held throughout.
 */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"
#include "remote/range_table.h"

struct remote;

/* The dispatcher says which worker has a range. */
int cw_placement_set(struct remote *r, const Cachew__Placement *m, struct cw_error *err) _must_check_;
/* A range is over, and left so many elements. by_worker: a worker says so; its report counts only for a range
 * with the bounds that are known. */
int cw_placement_report(struct remote *r, const Cachew__Report *m, bool by_worker,
                        struct cw_error *err) _must_check_;

/* Returns the first position that this client may still request. */
struct epoch_position cw_placement_cursor(const struct remote *r);
/* Whether the cursor lies in a later range than the dispatcher was told. */
bool cw_placement_cursor_moved(const struct remote *r);
