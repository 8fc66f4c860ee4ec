/* Checks of a worker's command line, for `provision`, which starts workers. */
#pragma once
#include "base/error.h"

/* Checks a worker's command line: argv is "worker", its options, NULL, and is reordered. Plug-ins are not
 * loaded. Returns CLI_HELP if --help was printed. */
int cli_worker_check(int argc, char **argv, struct cw_error *err) _must_check_;
