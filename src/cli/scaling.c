/* The options of verbs with a scaling policy: objective, prices and their currency. The caller owns the
 * struct cli_scaling.
 */
#include "cli/scaling.h"

#include <string.h>

#include "base/text.h"

const char *const cli_objectives[] = {"time", "cost", NULL};

int cli_policy_unknown(const char *name, const char *more, struct cw_error *err)
{
    const char *names[16];
    size_t n = 0;
    struct cw_text all = {0};
    for (const struct cw_policy *const *p = cw_policies; *p; p++) {
        bool takes_number = (*p)->name[strlen((*p)->name) - 1] == ':';
        if (takes_number)
            cw_text_add(&all, "%s%sN (N from 1 to %d)", all.data ? ", " : "", (*p)->name, CW_POLICY_MOST);
        else
            cw_text_add(&all, "%s%s", all.data ? ", " : "", names[n++] = (*p)->name);
    }
    if (more)
        cw_text_add(&all, ", %s", names[n++] = more);
    const char *near = cw_nearest(name, names, n), *expected = all.data ? all.data : "";
    cw_error_attribute(err, "policy", name, expected);
    int r = cw_error_set(err, CW_E_OPTION, "--policy %.100s: expected one of %s%s%s%s", name, expected,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    cw_text_deinit(&all);
    return r;
}

#define CURRENCY_SIZE 16 /* bytes; longer names would not fit into tables */

static int scaling_check_currency(const char *currency, struct cw_error *err)
{
    char shown[8 * CURRENCY_SIZE + 1];
    size_t size = strlen(currency);
    bool good = size > 0 && size <= CURRENCY_SIZE && cw_text_utf8(currency, size);
    if (good) { /* a text is shown as it is if it has no hidden characters */
        cw_text_show(shown, sizeof(shown), currency);
        good = strcmp(shown, currency) == 0;
    }
    return good ? 0
                : cw_error_value(err, CW_E_OPTION, "currency", currency, "1 to 16 bytes of visible text",
                                 "--currency \"%.60s\": expected 1 to 16 bytes of visible text, such as EUR",
                                 currency);
}

int cli_scaling_find(struct cli_scaling *x, struct cw_error *err)
{
    int r = x->currency ? scaling_check_currency(x->currency, err) : 0;
    if (r < 0)
        return r;
    return !x->policy || cw_policy_find(x->policy, &x->found) ? 0 : cli_policy_unknown(x->policy, NULL, err);
}
