#include "cli/asked.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

int cli_asked_parse(struct cli_asked *a, const char *verb, const struct cli_option *options, int argc,
                    char **argv, struct cw_error *err)
{
    a->json = cli_wants_json(argc, argv);
    a->wait = 5;
    int r = cli_parse(cli_find(verb), options, argc, argv, &a->n_args, err);
    if (r == 0 && !a->service)
        r = cw_error_value(err, CW_E_OPTION, "service", "missing", "HOST:PORT of a dispatcher",
                           "--service is missing: expected HOST:PORT of a dispatcher");
    if (r == 0)
        r = cli_token(a->token_file, &a->token, err);
    a->o = (struct cw_admin_client_options){
        .service = a->service, .token = a->token, .timeout_ns = (uint64_t)(a->wait * 1e9)};
    return r == 0 ? cli_tls_connecting(&a->tls, &a->o.tls, err) : r;
}

int cli_ask(const struct cli_asked *a, const char *what, json_t **ret, struct cw_error *err)
{
    _cleanup_free_ char *answer = NULL;
    int r = cw_observe(&a->o, what, &answer, err);
    if (r < 0)
        return r;
    json_t *value = json_loads(answer, 0, NULL);
    if (strcmp(what, "status") == 0 ? !json_is_object(value) : !json_is_array(value)) {
        json_decref(value);
        return cw_error_set(err, CW_E_SERVICE, "the dispatcher at %s answered something else", a->service);
    }
    *ret = value;
    return 0;
}

void cli_asked_deinit(struct cli_asked *a)
{
    cw_tls_unref(a->o.tls);
    free(a->token);
}

const char *cli_row_text(const json_t *row, const char *key, char buffer[CLI_TEXT_SIZE])
{
    const char *text = json_string_value(json_object_get(row, key));
    cw_text_show(buffer, CLI_TEXT_SIZE, text ? text : "");
    return buffer;
}

static const char *row_column(const json_t *row, const char *key, size_t width, bool cut,
                              char buffer[CLI_TEXT_SIZE])
{
    size_t at = 0, n = 0;
    cli_row_text(row, key, buffer);
    for (; buffer[at]; at++)
        if (((unsigned char)buffer[at] & 0xc0) != 0x80 && ++n > width && cut)
            break;
    for (; n < width && at < CLI_TEXT_SIZE - 1; n++)
        buffer[at++] = ' ';
    buffer[at] = '\0';
    return buffer;
}

const char *cli_row_column(const json_t *row, const char *key, size_t width, char buffer[CLI_TEXT_SIZE])
{
    return row_column(row, key, width, true, buffer);
}

const char *cli_row_padded(const json_t *row, const char *key, size_t width, char buffer[CLI_TEXT_SIZE])
{
    return row_column(row, key, width, false, buffer);
}

int64_t cli_row_number(const json_t *row, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(row, key));
}
