/* Formats the cells of the tables that `jobs`, `workers` and `top` print. */
#include "cli/row.h"

#include "base/text.h"

const char *cli_row_text(const json_t *row, const char *key, char buffer[CLI_TEXT_SIZE])
{
    const char *text = json_string_value(json_object_get(row, key));
    cw_text_show(buffer, CLI_TEXT_SIZE, text ? text : "");
    return buffer;
}

const char *cli_row_fit(const json_t *row, const char *key, size_t width, bool cut,
                        char buffer[CLI_TEXT_SIZE])
{
    size_t at = 0, n = 0;
    cli_row_text(row, key, buffer);
    for (; buffer[at]; at++) /* counts characters: bytes that are not UTF-8 continuation bytes */
        if (((unsigned char)buffer[at] & 0xc0) != 0x80 && ++n > width && cut)
            break;
    for (; n < width && at < CLI_TEXT_SIZE - 1; n++)
        buffer[at++] = ' ';
    buffer[at] = '\0';
    return buffer;
}

int64_t cli_row_number(const json_t *row, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(row, key));
}

double cli_row_real(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}
