/* Counts the batches that `run` receives, and prints the counts: as a progress line, and as the result in
 * text or JSON. */
#pragma once
#include "cli/pipeline.h"
#include "cli/run_outputs.h"

struct cli_counts {
    uint64_t n_batches, n_elements, n_bytes;
    uint64_t start_ns, last_ns; /* cw_now_ns at the first request, at the last batch; 0: not yet */
    double first_batch_s;       /* from the start of the process to the first batch */
    /* the progress line */
    bool progress;
    uint64_t progress_ns, progress_elements; /* time and n_elements when the line was last printed */
};

/* Counts a batch that was just received. */
void cli_counts_add(struct cli_counts *n, const struct cw_batch *b);
/* Prints the progress line to stderr, at most five times a second, if n->progress is set. end: prints it in
 * any case, and ends the line. */
void cli_counts_progress(struct cli_counts *n, const struct cw_local *local, bool end);
/* Returns the result as a JSON object (docs/cli.md), new; NULL: out of memory. */
json_t *cli_counts_json(const struct cli_counts *n, const struct cli_pipeline *c,
                        const struct cli_outputs *o);
/* Prints the result as text. */
void cli_counts_print(const struct cli_counts *n, const struct cli_pipeline *c, const struct cli_outputs *o);
