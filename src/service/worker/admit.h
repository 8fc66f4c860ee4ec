/* What a worker takes on. */
#pragma once
#include "pipeline/pipeline.h"

/* CW_E_PIPELINE: the pipeline runs Python functions, or ends processes, which this worker does not; it names
 * the operator and the option. */
int cw_worker_admit(const struct cw_pipeline *p, bool allow_python, struct cw_error *err) _must_check_;
