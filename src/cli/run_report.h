/* What `run` counts, and prints of it: progress, the result as text or JSON. Owns its counts only. */
#pragma once
#include "cli/pipeline.h"
#include "cli/run_outputs.h"

struct cli_counts {
    uint64_t n_batches, n_elements, n_bytes;
    uint64_t start_ns, last_ns; /* of the first request, of the last batch; 0: none yet */
    double first_batch_s;       /* since the process started */
    /* the progress line */
    bool progress;
    uint64_t progress_ns, progress_elements; /* when it was printed last */
};

void cli_counts_add(struct cli_counts *n, const struct cw_batch *b);
/* Prints the progress line to stderr, at most five times a second; end: for the last time. */
void cli_counts_progress(struct cli_counts *n, const struct cw_local *local, bool end);
/* The result (docs/cli.md); new, or NULL without memory. */
json_t *cli_counts_json(const struct cli_counts *n, const struct cli_pipeline *c,
                        const struct cli_outputs *o);
/* Prints the result as text. */
void cli_counts_print(const struct cli_counts *n, const struct cli_pipeline *c, const struct cli_outputs *o);
