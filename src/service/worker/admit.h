/* Decides whether a worker may run a pipeline. stream.c calls it before it compiles the pipeline. */
#pragma once
#include "pipeline/pipeline.h"

/* CW_E_PIPELINE: the pipeline runs Python functions, or may end the process, which this worker does not
 * allow; the message names the operator and the option. */
int cw_worker_admit(const struct cw_pipeline *p, bool allow_python, struct cw_error *err) _must_check_;
/* Returns the path, as written, of the pipeline's first file whose content counts (pipeline/content.h); NULL:
 * there is none. */
const char *cw_worker_content_file(const struct cw_pipeline *p);
