/* What `run` makes of batches beside its result: hashes, a log, .npz files, contact sheets, the list of
 * quarantined records. Owns the open files. */
#pragma once
#include <stdio.h>

#include "cli/options.h"
#include "session/local.h"

struct cli_outputs {
    /* options; NULL: not wanted */
    const char *log, *dump, *save, *quarantine;
    bool digest;
    /* while it runs */
    int log_fd; /* of `log`; 0 or less: not open */
    FILE *quarantine_file;
    struct cw_hash128 sum, set_sum; /* of all batches, of all elements (docs/cli.md) */
};

#define CLI_OUTPUT_OPTIONS(o) \
    {"digest", CLI_FLAG, &(o)->digest, NULL, "hash all batches that were delivered"}, \
        {"log", CLI_TEXT, &(o)->log, "FILE", "append a JSON line per batch to FILE"}, \
        {"dump", CLI_TEXT, &(o)->dump, "DIR", "write each batch to DIR as an .npz file"}, \
        {"save", CLI_TEXT, &(o)->save, "DIR", \
         "write the images of the first batch to DIR as a contact sheet (PNG)"}, \
        {"quarantine", CLI_TEXT, &(o)->quarantine, "FILE", \
         "list skipped and replaced records in FILE, with reasons (JSON lines)"}

/* Opens everything that is wanted, so that what can't be written is found before anything is computed.
 * resumed: the list of quarantined records goes on from a state, and is not emptied. */
int cli_outputs_open(struct cli_outputs *o, bool resumed, struct cw_error *err) _must_check_;
/* Adds a batch, the nth of this run. */
int cli_outputs_add(struct cli_outputs *o, const struct cw_compiled *c, const struct cw_batch *b,
                    unsigned rank, uint64_t nth, struct cw_error *err) _must_check_;
/* Prints how many records were skipped and replaced, and writes the list of them. */
int cli_outputs_quarantine(struct cli_outputs *o, const struct cw_local *local,
                           struct cw_error *err) _must_check_;
void cli_outputs_close(struct cli_outputs *o);
