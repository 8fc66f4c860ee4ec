/* Command lines: parses a verb's options according to its table, reports errors with suggestions, and prints
 * --help from the same table. Owns only the lists of values of repeatable options. Called by every verb. */
#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define MAX_OPTIONS 64  /* most options of a verb; the largest verb has 30 */
#define MAX_SECONDS 1e9 /* 31 years; as nanoseconds it fits in 64 bits */

bool cli_wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

static int option_bad_value(const struct cli_option *o, const char *value, const char *expected,
                            struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, o->name, value, expected, "--%s %.100s: expected %s", o->name,
                          value, expected);
}

/* strtod and strtoull accept blanks, signs, "inf" and hexadecimal numbers, which options do not. */
static bool option_is_decimal(const char *value)
{
    return isdigit((unsigned char)value[0]) && !strpbrk(value, "xX");
}

static int option_parse_bytes(const struct cli_option *o, const char *value, struct cw_error *err)
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
    if (!option_is_decimal(value) || *end || !(v > 0))
        return option_bad_value(o, value, "a number of bytes, such as 256M, 1.5G or 4194304", err);
    if (errno || v * factor >= 0x1p62)
        return option_bad_value(o, value, "a number of bytes below 4194304T", err);
    *(uint64_t *)o->to = (uint64_t)(v * factor);
    return 0;
}

static int option_parse_count(const struct cli_option *o, const char *value, struct cw_error *err)
{
    char *end, expected[96];
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (errno || !option_is_decimal(value) || *end || v < o->min || (o->max && v > o->max)) {
        if (o->max)
            snprintf(expected, sizeof(expected), "an integer from %" PRIu64 " to %" PRIu64, o->min, o->max);
        else
            snprintf(expected, sizeof(expected), "an integer of at least %" PRIu64, o->min);
        return option_bad_value(o, value, expected, err);
    }
    if (o->kind == CLI_SMALL)
        *(unsigned *)o->to = (unsigned)v;
    else
        *(uint64_t *)o->to = v;
    return 0;
}

static int option_parse_number(const struct cli_option *o, const char *value, struct cw_error *err)
{
    char *end, expected[80];
    double v = strtod(value, &end), most = o->most > 0 ? o->most : MAX_SECONDS;
    if (option_is_decimal(value) && !*end && v >= o->least && v <= most) {
        *(double *)o->to = v;
        return 0;
    }
    snprintf(expected, sizeof(expected), "a number from %g to %g", o->least, most);
    return option_bad_value(o, value, o->kind == CLI_SECONDS ? "a number of seconds from 0 to 1e9" : expected,
                            err);
}

int cli_texts_add(struct cli_texts *t, const char *text, struct cw_error *err)
{
    const char **grown = realloc(t->items, (t->n + 1) * sizeof(*grown));
    if (!grown)
        return cw_error_nomem(err, 0, "options");
    t->items = grown;
    t->items[t->n++] = text;
    return 0;
}

static int option_parse_value(const struct cli_option *o, const char *value, struct cw_error *err)
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
                return option_bad_value(o, value, t.data, err);
            }
        *(const char **)o->to = value;
        return 0;
    case CLI_COUNT:
    case CLI_SMALL:
        return option_parse_count(o, value, err);
    case CLI_BYTES:
        return option_parse_bytes(o, value, err);
    case CLI_SECONDS:
    case CLI_NUMBER:
        return option_parse_number(o, value, err);
    case CLI_TEXTS:
        return cli_texts_add(o->to, value, err);
    }
    return 0;
}

void cli_texts_deinit(struct cli_texts *t)
{
    free(t->items);
}

static void options_print_help(const struct cli_verb *verb, const struct cli_option *options)
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
    printf("  %-24s %s\n", "--help", "print this text");
}

static int option_unknown(const struct cli_verb *verb, const struct cli_option *options, const char *name,
                          struct cw_error *err)
{
    const char *names[MAX_OPTIONS];
    size_t n = 0;
    for (const struct cli_option *o = options; o->name; o++)
        names[n++] = o->name;
    const char *near = cw_nearest(name, names, n);
    return cw_error_value(err, CW_E_OPTION, name, "", near ? near : "an option that --help lists",
                          "unknown option --%.60s%s%s%s (cachew %s --help lists the options)", name,
                          near ? "; did you mean --" : "", near ? near : "", near ? "?" : "", verb->name);
}

static const struct cli_option *option_find(const struct cli_option *options, const char *name)
{
    const struct cli_option *o = options;
    while (o->name && strcmp(o->name, name) != 0)
        o++;
    return o;
}

/* Checks `required` and `needs` of all options. given[i]: whether options[i] was given. */
static int options_check(const struct cli_option *options, const bool *given, struct cw_error *err)
{
    for (const struct cli_option *o = options; o->name; o++) {
        if (o->required && !given[o - options])
            return cw_error_value(err, CW_E_OPTION, o->name, "missing", o->required,
                                  "--%s is missing: expected %s", o->name, o->required);
        if (o->needs && given[o - options] && !given[option_find(options, o->needs) - options])
            return cw_error_value(err, CW_E_OPTION, o->name, "", o->needs,
                                  "--%s needs --%s: expected both options", o->name, o->needs);
    }
    return 0;
}

int cli_parse(const struct cli_verb *verb, const struct cli_option *options, int argc, char **argv,
              struct cw_error *err)
{
    int n = 0;
    bool only_args = false, given[MAX_OPTIONS] = {0};
    for (const struct cli_option *o = options; o->name; o++)
        if (strcmp(o->name, "json") == 0)
            *(bool *)o->to = cli_wants_json(argc, argv);
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
            options_print_help(verb, options);
            return CLI_HELP;
        }
        if (a[1] != '-')
            return option_unknown(verb, options, a + 1, err);
        char *equals = strchr(a, '=');
        _cleanup_free_ char *name = equals ? strndup(a + 2, (size_t)(equals - a - 2)) : strdup(a + 2);
        if (!name)
            return cw_error_nomem(err, 0, "options");
        const struct cli_option *o = option_find(options, name);
        if (!o->name)
            return option_unknown(verb, options, name, err);
        given[o - options] = true;
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
        int r = option_parse_value(o, value, err);
        if (r < 0)
            return r;
    }
    if ((unsigned)n < verb->min_args || (unsigned)n > verb->max_args)
        return cw_error_set(err, CW_E_OPTION, "%s: usage: cachew %s %s[options]",
                            (unsigned)n < verb->min_args ? "an argument is missing" : "too many arguments",
                            verb->name, verb->arguments);
    argv[n + 1] = NULL;
    return options_check(options, given, err);
}
