#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "session/report.h"

#define MAX_SECONDS 1e9 /* 31 years; as nanoseconds it fits in 64 bits */

const struct cli_verb *cli_find(const char *name)
{
    const struct cli_verb *verb = cli_verbs;
    while (strcmp(verb->name, name) != 0)
        verb++;
    return verb;
}

bool cli_wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static int bad_value(const struct cli_option *o, const char *value, const char *expected,
                     struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, o->name, value, expected, "--%s %.100s: expected %s", o->name,
                          value, expected);
}

/* strtod and strtoull pass over blanks and take signs, "inf" and hexadecimal: */
static bool is_decimal(const char *value)
{
    return isdigit((unsigned char)value[0]) && !strpbrk(value, "xX");
}

static int parse_bytes(const struct cli_option *o, const char *value, struct cw_error *err)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    double v = strtod(value, &end), factor = 1;
    const char *unit = isalpha((unsigned char)*end) ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        factor = pow(1024, (double)(unit - units + 1));
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B')
            end++;
    }
    if (!is_decimal(value) || *end || !(v > 0))
        return bad_value(o, value, "bytes, as 256M, 1.5G or 4194304", err);
    if (errno || v * factor >= 0x1p62)
        return bad_value(o, value, "less than 4194304T", err);
    *(uint64_t *)o->to = (uint64_t)(v * factor);
    return 0;
}

static int parse_count(const struct cli_option *o, const char *value, struct cw_error *err)
{
    char *end, expected[96];
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (errno || !is_decimal(value) || *end || v < o->min || (o->max && v > o->max)) {
        if (o->max)
            snprintf(expected, sizeof(expected), "an integer from %" PRIu64 " to %" PRIu64, o->min, o->max);
        else
            snprintf(expected, sizeof(expected), "an integer of at least %" PRIu64, o->min);
        return bad_value(o, value, expected, err);
    }
    *(uint64_t *)o->to = v;
    return 0;
}

static int parse_seconds(const struct cli_option *o, const char *value, struct cw_error *err)
{
    char *end;
    double v = strtod(value, &end);
    if (!is_decimal(value) || *end || !(v <= MAX_SECONDS))
        return bad_value(o, value, "seconds, from 0 to 1e9", err);
    *(double *)o->to = v;
    return 0;
}

static int parse_number(const struct cli_option *o, const char *value, struct cw_error *err)
{
    char *end, expected[80];
    double v = strtod(value, &end), most = o->most > 0 ? o->most : MAX_SECONDS;
    if (!is_decimal(value) || *end || !(v >= o->least && v <= most)) {
        snprintf(expected, sizeof(expected), "a number from %g to %g", o->least, most);
        return bad_value(o, value, expected, err);
    }
    *(double *)o->to = v;
    return 0;
}

static int parse_value(const struct cli_option *o, const char *value, struct cw_error *err)
{
    switch (o->kind) {
    case CLI_FLAG:
        break;
    case CLI_TEXT:
        for (size_t i = 0; o->choices && strcmp(o->choices[i], value) != 0; i++)
            if (!o->choices[i + 1]) {
                _cleanup_(cw_text_deinit) struct cw_text t = {0};
                for (size_t k = 0; o->choices[k]; k++)
                    cw_text_add(&t, "%s%s", k ? ", " : "one of ", o->choices[k]);
                return bad_value(o, value, t.data, err);
            }
        *(const char **)o->to = value;
        return 0;
    case CLI_COUNT:
        return parse_count(o, value, err);
    case CLI_BYTES:
        return parse_bytes(o, value, err);
    case CLI_SECONDS:
        return parse_seconds(o, value, err);
    case CLI_NUMBER:
        return parse_number(o, value, err);
    case CLI_TEXTS: {
        struct cli_texts *t = o->to;
        const char **grown = realloc(t->items, (t->n + 1) * sizeof(*grown));
        if (!grown)
            return cw_error_nomem(err, 0, "options");
        t->items = grown;
        t->items[t->n++] = value;
        return 0;
    }
    }
    return 0;
}

void cli_texts_deinit(struct cli_texts *t)
{
    free(t->items);
    *t = (struct cli_texts){0};
}

static void print_help(const struct cli_verb *verb, const struct cli_option *options)
{
    printf("usage: cachew %s %s[options]\n\n%s\n", verb->name, verb->arguments, verb->summary);
    if (verb->details)
        printf("\n%s\n", verb->details);
    printf("\noptions:\n");
    for (const struct cli_option *o = options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("  %-24s %s\n", "--help", "this text");
}

static int unknown_option(const struct cli_verb *verb, const struct cli_option *options, const char *name,
                          struct cw_error *err)
{
    const char *names[64];
    size_t n = 0;
    for (const struct cli_option *o = options; o->name && n < 64; o++)
        names[n++] = o->name;
    const char *near = cw_nearest(name, names, n);
    return cw_error_value(err, CW_E_OPTION, name, "", near ? near : "an option that --help lists",
                          "unknown option --%.60s%s%s%s (cachew %s --help lists them)", name,
                          near ? "; did you mean --" : "", near ? near : "", near ? "?" : "", verb->name);
}

int cli_parse(const struct cli_verb *verb, const struct cli_option *options, int argc, char **argv,
              int *n_args, struct cw_error *err)
{
    int n = 0;
    bool only_args = false;
    for (int i = 1; i < argc; i++) {
        char *a = argv[i];
        if (only_args || a[0] != '-' || a[1] == '\0') {
            argv[++n] = a;
            continue;
        }
        if (strcmp(a, "--") == 0) {
            only_args = true;
            continue;
        }
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            print_help(verb, options);
            return 1;
        }
        if (a[1] != '-')
            return unknown_option(verb, options, a + 1, err);
        char *equals = strchr(a, '=');
        _cleanup_free_ char *name = equals ? strndup(a + 2, (size_t)(equals - a - 2)) : strdup(a + 2);
        if (!name)
            return cw_error_nomem(err, 0, "options");
        const struct cli_option *o = options;
        while (o->name && strcmp(o->name, name) != 0)
            o++;
        if (!o->name)
            return unknown_option(verb, options, name, err);
        if (o->given)
            *o->given = true;
        if (o->kind == CLI_FLAG) {
            if (equals)
                return cw_error_set(err, CW_E_OPTION, "--%s takes no value", name);
            *(bool *)o->to = true;
            continue;
        }
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value)
            return cw_error_set(err, CW_E_OPTION, "--%s needs a value: --%s %s", name, name, o->value);
        int r = parse_value(o, value, err);
        if (r < 0)
            return r;
    }
    if ((unsigned)n < verb->min_args || (unsigned)n > verb->max_args)
        return cw_error_set(err, CW_E_OPTION, "%s: usage: cachew %s %s[options]",
                            (unsigned)n < verb->min_args ? "an argument is missing" : "too many arguments",
                            verb->name, verb->arguments);
    *n_args = n;
    return 0;
}

int cli_print(json_t *value)
{
    _cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (text)
        puts(text);
    else
        fprintf(stderr, "cachew: out of memory for the result\n");
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
