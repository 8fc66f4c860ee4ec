/* Command lines: one table per verb, from which come parsing, errors with suggestions, and --help. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COUNT,   /* uint64_t; with min and max */
    CLI_BYTES,   /* uint64_t: 256M, 1.5G, 4096 */
    CLI_SECONDS, /* double */
    CLI_NUMBER,  /* double; from least to most */
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
    const char *value; /* what stands in help for the value: "N", "FILE" */
    const char *help;
    uint64_t min, max;          /* CLI_COUNT; max 0: no bound */
    const char *const *choices; /* CLI_TEXT */
    bool *given;                /* set when the option was there; may be NULL */
    double least, most;         /* CLI_NUMBER; most 0: 0 to 1e9 */
};

struct cli_verb {
    const char *name;
    const char *arguments; /* "PIPELINE", "FILE..." */
    unsigned min_args, max_args;
    const char *summary;
    const char *details;               /* for help, may be NULL */
    int (*run)(int argc, char **argv); /* exit code */
};

/* Whether --json is among the words, wherever: an error before it is printed as JSON too. */
bool cli_wants_json(int argc, char **argv);
/* Parses argv[1..]; the arguments that are no options are moved to argv[1..*n_args]. 1: help was printed. */
int cli_parse(const struct cli_verb *verb, const struct cli_option *options, int argc, char **argv,
              int *n_args, struct cw_error *err) _must_check_;
void cli_texts_deinit(struct cli_texts *t);

/* The verbs there are, ends with a NULL name. main.c */
extern const struct cli_verb cli_verbs[];
/* The one of this name, which must be there. */
const struct cli_verb *cli_find(const char *name);
extern const char cli_version[];

/* Prints an error to stderr, and with json an object {"error": {...}, counts...} as the last line of stdout
 * (counts may be NULL; not kept). Returns the exit code. */
#include <jansson.h>
int cli_fail(const struct cw_error *err, bool json, json_t *counts);
/* Prints a value as one line and releases it. 0, or 1 when there is no memory. That stdout can't be written
 * main finds. */
int cli_print(json_t *value);

int cli_run(int argc, char **argv);
int cli_ops(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_index(int argc, char **argv);
int cli_cache(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_dispatcher(int argc, char **argv);
int cli_worker(int argc, char **argv);
int cli_up(int argc, char **argv);
int cli_provision(int argc, char **argv);
int cli_jobs(int argc, char **argv);
int cli_workers(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_keys(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_simulate(int argc, char **argv);
