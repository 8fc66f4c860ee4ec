/* The optional outputs of `run`: hashes, a log, .npz files, contact sheets, and the list of quarantined
 * records (those that failed and were skipped or replaced). Owns the open files. */
#pragma once
#include <stdio.h>

#include "cli/options.h"
#include "session/local.h"

struct cli_outputs {
    /* options; NULL: not given */
    const char *log, *dump, *save, *quarantine;
    bool digest;
    /* while it runs */
    int log_fd; /* of `log`; 0 or less: not open */
    FILE *quarantine_file;
    struct cw_hash128 sum, set_sum; /* digest and set_digest (docs/cli.md) */
};

#define CLI_OUTPUT_OPTIONS(o) \
    {"digest", CLI_FLAG, &(o)->digest, NULL, \
     "print two hashes of all delivered batches: digest, and set_digest, which does not depend on their " \
     "order"}, \
        {"log", CLI_TEXT, &(o)->log, "FILE", "append a JSON line about each batch to FILE"}, \
        {"dump", CLI_TEXT, &(o)->dump, "DIR", \
         "write each batch to DIR as an .npz file, which numpy.load reads"}, \
        {"save", CLI_TEXT, &(o)->save, "DIR", \
         "write the images of the first batch to DIR, side by side in one PNG file"}, \
        {"quarantine", CLI_TEXT, &(o)->quarantine, "FILE", \
         "write the records that failed and were skipped or replaced to FILE, with reasons (JSON lines)"}

/* Opens the output files, so that an unwritable one is found before anything is computed. resumed: the run
 * continues from a state, so the list of quarantined records is appended to and not emptied. */
int cli_outputs_open(struct cli_outputs *o, bool resumed, struct cw_error *err) _must_check_;
/* Writes batch b to all outputs. nth: its number in this run, from 0. */
int cli_outputs_add(struct cli_outputs *o, const struct cw_compiled *c, const struct cw_batch *b,
                    unsigned rank, uint64_t nth, struct cw_error *err) _must_check_;
/* Prints how many records were skipped and replaced, and writes the list of them. */
int cli_outputs_quarantine(struct cli_outputs *o, const struct cw_local *local,
                           struct cw_error *err) _must_check_;
void cli_outputs_close(struct cli_outputs *o);
