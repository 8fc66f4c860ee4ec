/* Command lines: parses a verb's options according to its table, reports errors with suggestions, and prints
 * --help from the same table. Owns only the lists of values of repeatable options. Called by every verb. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cli_kind {              /* the type that `to` of an option points to, and what the option accepts */
                CLI_FLAG,    /* bool; the option has no value */
                CLI_TEXT,    /* const char *; a word of argv */
                CLI_COUNT,   /* uint64_t, from min to max */
                CLI_SMALL,   /* unsigned, from min to max, which is not 0 */
                CLI_BYTES,   /* uint64_t: 256M, 1.5G, 4096 */
                CLI_SECONDS, /* double, from 0 to 1e9 */
                CLI_NUMBER,  /* double, from least to most */
                CLI_TEXTS,   /* struct cli_texts; the option may be given several times */
};

struct cli_texts {
    const char **items;
    size_t n;
};

struct cli_option {
    const char *name; /* without -- */
    enum cli_kind kind;
    void *to;                   /* where cli_parse stores the value; unchanged if the option is not given */
    const char *value;          /* name of the value in --help: "N", "FILE"; NULL: a flag has no value */
    const char *help;           /* begins with a verb */
    uint64_t min, max;          /* for CLI_COUNT and CLI_SMALL; max 0: no upper bound */
    const char *const *choices; /* for CLI_TEXT: the allowed texts, then NULL; NULL: any text */
    bool *given;                /* set to true if the option is given; may be NULL */
    double least, most;         /* for CLI_NUMBER; most 0 means 1e9 */
    const char *required; /* for CLI_TEXT: what the error expects if it is missing; NULL: it is optional */
    const char *needs;    /* another option that must be given with this one; NULL: none */
};

struct cli_verb {
    const char *name;
    const char *arguments; /* as --help shows them, each followed by a space: "PIPELINE " */
    unsigned min_args, max_args;
    const char *summary;
    const char *details; /* a paragraph for --help; may be NULL */
    /* Returns the exit code, CLI_HELP, or a status, with an error that main.c prints. argv[0] is the verb. */
    int (*run)(int argc, char **argv, struct cw_error *err);
};

#define CLI_HELP 256 /* --help was printed. No exit code has this number */

/* Whether --json is among the words of argv, at any place: an error in a word before it is printed as JSON
 * too. */
bool cli_wants_json(int argc, char **argv);
/* Parses argv[1], argv[2] ...: stores the values of options, and moves the arguments (words that are no
 * options) to argv[1] ..., followed by NULL. Sets the option "json" even if another option is wrong. Returns
 * 0, CLI_HELP, or an error. */
int cli_parse(const struct cli_verb *verb, const struct cli_option *options, int argc, char **argv,
              struct cw_error *err) _must_check_;
/* Appends a text, which must outlive the list. */
int cli_texts_add(struct cli_texts *t, const char *text, struct cw_error *err) _must_check_;
/* Frees the list, not the texts. */
void cli_texts_deinit(struct cli_texts *t);
