/* Command lines: a verb's table of options gives parsing, errors with suggestions, and --help. Owns nothing
 * but the lists of options that may be repeated. Called by every verb. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COUNT,   /* uint64_t, from min to max */
    CLI_SMALL,   /* unsigned, from min to max, which is not 0 */
    CLI_BYTES,   /* uint64_t: 256M, 1.5G, 4096 */
    CLI_SECONDS, /* double */
    CLI_NUMBER,  /* double, from least to most */
    CLI_TEXTS,   /* struct cli_texts: may be given several times */
};

struct cli_texts {
    const char **items;
    size_t n;
};

struct cli_option {
    const char *name; /* without -- */
    enum cli_kind kind;
    void *to;
    const char *value;          /* name of the value in --help: "N", "FILE"; NULL: a flag has none */
    const char *help;           /* begins with a verb */
    uint64_t min, max;          /* CLI_COUNT, CLI_SMALL; max 0: no bound */
    const char *const *choices; /* CLI_TEXT, ends with NULL; NULL: any text */
    bool *given;                /* set to true if the option is there; may be NULL */
    double least, most;         /* CLI_NUMBER; most 0: 1e9 */
    const char *required;       /* CLI_TEXT: what is expected if the option is missing; NULL: it may be */
    const char *needs;          /* the option without which this one means nothing; NULL: none */
};

struct cli_verb {
    const char *name;
    const char *arguments; /* in --help, each followed by a space: "PIPELINE " */
    unsigned min_args, max_args;
    const char *summary;
    const char *details; /* a paragraph for --help; may be NULL */
    /* Returns the exit code, CLI_HELP, or a status, with an error that main.c prints. argv[0] is the verb. */
    int (*run)(int argc, char **argv, struct cw_error *err);
};

#define CLI_HELP 256 /* --help was printed, which is no exit code of a verb */

/* Whether --json is among the words, wherever: an error before it is printed as JSON too. */
bool cli_wants_json(int argc, char **argv);
/* Parses argv[1] and what follows; arguments that are no options are moved to argv[1] ..., before a NULL.
 * Sets the option "json" even if another option is wrong. Returns 0, CLI_HELP, or an error. */
int cli_parse(const struct cli_verb *verb, const struct cli_option *options, int argc, char **argv,
              struct cw_error *err) _must_check_;
void cli_texts_deinit(struct cli_texts *t);
