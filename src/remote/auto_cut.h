/* Chooses where a pipeline is cut between the workers of a service and this process (`--cut auto`). */
#pragma once
#include "optimize/cut_point.h"
#include "remote/remote.h"

/* c, root: the pipeline, compiled and as JSON in the order as run. Sets *ret to the cut point; NULL: workers
 * run all operators. A job that runs already keeps its cut. A new job is cut where the fewest bytes of an
 * element cross the network, if that saves a quarter of them; if all workers are on this host, workers run
 * all operators. Queries the dispatcher; where it does not answer, the workers count as remote. The
 * consumer's thread. */
int cw_auto_cut(const struct cw_compiled *c, const json_t *root, const struct cw_remote_options *o,
                struct cw_cut_point **ret, struct cw_error *err) _must_check_;
