/* What those who start workers ask of their command line. */
#pragma once
#include "base/error.h"

/* Whether a worker would take these words ("worker", ..., NULL), but for its plug-ins; they are moved about.
 * 1: they ask for help, which was printed. */
int cli_worker_check(int argc, char **argv, struct cw_error *err) _must_check_;
