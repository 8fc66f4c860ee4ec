/* Cells of the tables that `jobs`, `workers` and `top` print. A row is a JSON object from the dispatcher. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* bytes of a cell's buffer; the longest text is the reason of a policy's decision */
#define CLI_TEXT_SIZE 512

/* Writes the text under `key`, escaped as cw_text_show does it, into buffer; "" if there is no text. Returns
 * buffer. */
const char *cli_row_text(const json_t *row, const char *key, char buffer[CLI_TEXT_SIZE]);
/* As cli_row_text, padded with blanks to `width` characters, which must be less than CLI_TEXT_SIZE / 4. cut:
 * a longer text is cut to `width` characters; otherwise it is kept whole. */
const char *cli_row_fit(const json_t *row, const char *key, size_t width, bool cut,
                        char buffer[CLI_TEXT_SIZE]);
/* The number under `key`; 0 if there is none. */
int64_t cli_row_number(const json_t *row, const char *key);
double cli_row_real(const json_t *row, const char *key);
