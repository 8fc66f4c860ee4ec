/* Cells of the tables that `jobs`, `workers` and `top` print: values of a JSON object as text. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_TEXT_SIZE 512 /* bytes: the reason of a policy fits */

/* A text as cw_text_show writes it; "" if there is none. Returns the buffer. */
const char *cli_row_text(const json_t *row, const char *key, char buffer[CLI_TEXT_SIZE]);
/* The same, filled up with blanks to `width` characters, fewer than CLI_TEXT_SIZE / 4. A longer text is kept;
 * cut: it is cut to them. */
const char *cli_row_fit(const json_t *row, const char *key, size_t width, bool cut,
                        char buffer[CLI_TEXT_SIZE]);
int64_t cli_row_number(const json_t *row, const char *key);
double cli_row_real(const json_t *row, const char *key);
