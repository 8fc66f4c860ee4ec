/* Which pipelines a worker runs. Called by stream.c, before the pipeline is compiled. */
#pragma once
#include "pipeline/pipeline.h"

/* CW_E_PIPELINE: the pipeline runs Python functions, or may end the process, which this worker does not
 * allow; the message names the operator and the option. */
int cw_worker_admit(const struct cw_pipeline *p, bool allow_python, struct cw_error *err) _must_check_;
