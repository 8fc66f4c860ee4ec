/* Prints the result of a verb as JSON, or the error that ended the verb. */
#include "cli/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "session/report.h"

int cli_print(json_t *value)
{
    _cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (text)
        puts(text);
    else
        fprintf(stderr, "cachew: out of memory while printing the result\n");
    return text ? 0 : 1;
}

int cli_fail(const struct cw_error *err, bool json, json_t *counts)
{
    fprintf(stderr, "cachew: %s", err->message);
    if (err->file[0] && !strstr(err->message, err->file))
        fprintf(stderr, " (file %s)", err->file);
    if (err->record[0] && !strstr(err->message, err->record))
        fprintf(stderr, " (record %s)", err->record);
    fputc('\n', stderr);
    if (!json)
        return cw_status_exit(err->status);
    json_t *e = json_pack("{s:s, s:o}", "kind", cw_status_name(err->status), "message",
                          cw_report_text(err->message));

    const struct {
        const char *key, *value;
    } facts[] = {{"operator", err->op},       {"attribute", err->attribute}, {"value", err->value},
                 {"expected", err->expected}, {"file", err->file},           {"record", err->record}};

    for (size_t i = 0; i < CW_COUNT_OF(facts); i++)
        if (facts[i].value[0])
            json_object_set_new(e, facts[i].key, cw_report_text(facts[i].value));
    json_t *out = json_pack("{s:o}", "error", e);
    if (counts)
        json_object_update(out, counts);
    cli_print(out);
    return cw_status_exit(err->status);
}
