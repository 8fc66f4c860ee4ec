/* What `jobs`, `workers` and `top` have in common: a dispatcher that is asked. */
#pragma once
#include <jansson.h>

#include "cli/common.h"
#include "cli/tls.h"
#include "remote/admin_client.h"

struct cli_asked {
    const char *service, *token_file;
    struct cli_tls tls;
    double wait;
    bool json;
    int n_args; /* words that are no options: argv[1] ... */
    char *token;
    struct cw_admin_client_options o;
};

#define CLI_ASKED_OPTIONS(a) \
    {"service", CLI_TEXT, &(a)->service, "HOST:PORT", "the dispatcher", 0, 0, NULL, NULL}, \
        CLI_TOKEN_OPTION(&(a)->token_file), CLI_TLS_OPTIONS(&(a)->tls), \
        {"wait", CLI_SECONDS, &(a)->wait, "S", "deadline for an answer (default 5)", 0, 0, NULL, NULL}, \
    { \
        "json", CLI_FLAG, &(a)->json, NULL, "print JSON", 0, 0, NULL, NULL \
    }

/* cli_parse, then everything in a->o. 1: help was printed. */
int cli_asked_parse(struct cli_asked *a, const char *verb, const struct cli_option *options, int argc,
                    char **argv, struct cw_error *err) _must_check_;
/* *ret is new; an object or an array, as what is asked for is. */
int cli_ask(const struct cli_asked *a, const char *what, json_t **ret, struct cw_error *err) _must_check_;
void cli_asked_deinit(struct cli_asked *a);

/* Of a row of an answer; texts as cw_text_show writes them. */
#define CLI_TEXT_SIZE 512 /* as long as a policy's reason may be */
const char *cli_row_text(const json_t *row, const char *key, char buffer[CLI_TEXT_SIZE]);
/* The same, cut to and filled up to so many characters, less than CLI_TEXT_SIZE / 4. */
const char *cli_row_column(const json_t *row, const char *key, size_t width, char buffer[CLI_TEXT_SIZE]);
/* The same, but a longer text is not cut. */
const char *cli_row_padded(const json_t *row, const char *key, size_t width, char buffer[CLI_TEXT_SIZE]);
int64_t cli_row_number(const json_t *row, const char *key);
