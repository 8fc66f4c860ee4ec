/* Checks of a worker's command line, for `provision`, which starts workers. */
#pragma once
#include "base/error.h"

/* Checks the words "worker", ..., NULL, except plug-ins; reorders them. 1: help was printed. */
int cli_worker_check(int argc, char **argv, struct cw_error *err) _must_check_;
