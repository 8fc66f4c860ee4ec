/* cachew ops: lists the operators, or describes one. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "ops/table.h"

static void ops_describe(const struct cw_op_desc *d)
{
    char allowed[256];
    printf("%s: %s\n", d->name, d->summary);
    if (d->doc)
        printf("\n%s\n", d->doc);
    if (d->plugin)
        printf("\nFrom the plug-in %s.\n", d->plugin);
    if (d->effects.random)
        printf("\n%s draws random numbers, which depend only on the seed, the epoch and the element "
               "(docs/randomness.md).\n",
               d->draws ? "With p less than 1, this operator" : "This operator");
    printf("\nattributes:%s\n", d->attrs && d->attrs->name ? "" : " none");
    for (const struct cw_attr_def *a = d->attrs; a && a->name; a++)
        printf("  %-14s %s\n  %-14s %s; %s%s\n", a->name, a->doc ? a->doc : "", "",
               cw_attr_allowed(a, allowed), a->def ? "default " : "required", a->def ? a->def : "");
}

static int ops_unknown(const struct cw_op_table *table, const char *name, struct cw_error *err)
{
    const char *names[128];
    size_t n = 0;
    for (; n < table->n && n < CW_COUNT_OF(names); n++)
        names[n] = table->ops[n]->name;
    const char *near = cw_nearest(name, names, n);
    return cw_error_value(err, CW_E_OPTION, "NAME", name, near ? near : "an operator that `cachew ops` lists",
                          "there is no operator \"%.60s\"%s%s%s", name, near ? "; did you mean \"" : "",
                          near ? near : "", near ? "\"?" : " (`cachew ops` lists them)");
}

static int ops_main(int argc, char **argv, struct cw_error *err)
{
    bool json = false;
    struct cli_texts plugins = {0};
    const struct cli_option options[] = {
        CLI_PLUGIN_OPTION(&plugins),
        {"json", CLI_FLAG, &json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_ops, options, argc, argv, err);
    if (r == 0)
        r = cli_plugins_load(&plugins, err);
    cli_texts_deinit(&plugins);
    if (r != 0)
        return r;
    const struct cw_op_table *table = cw_ops();
    const struct cw_op_desc *d = argv[1] ? cw_op_find(table, argv[1]) : NULL;
    const struct cw_op_table one = {.ops = &d, .n = 1};
    if (argv[1] && !d)
        return ops_unknown(table, argv[1], err);
    if (json)
        return cli_print(cw_op_table_json(d ? &one : table));
    if (d)
        ops_describe(d);
    for (size_t i = 0; !d && i < table->n; i++)
        printf("%-20s %s\n", table->ops[i]->name, table->ops[i]->summary);
    return 0;
}

const struct cli_verb cli_verb_ops = {
    .name = "ops",
    .arguments = "[NAME] ",
    .max_args = 1,
    .summary = "list the operators that a pipeline may have, or describe one of them",
    .run = ops_main,
};
