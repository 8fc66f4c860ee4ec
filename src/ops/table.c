/* The table of operators, which plug-ins replace with a longer one. Readers take no lock. */
#include "ops/table.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/thread.h"

#define OP(name) extern const struct cw_op_desc cw_op_##name;
#include "ops_list.h" /* made by the build from the list in meson.build */
#undef OP

static const struct cw_op_desc *const ops[] = {
#define OP(name) &cw_op_##name,
#include "ops_list.h"
#undef OP
};

/* A replaced table is never freed, because another thread may still be reading it. That costs little:
 * plug-ins are few, and each is loaded once. */
struct tables {
    struct cw_op_table table;
    const struct tables *older;
    const struct cw_op_desc *ops[];
};

static const struct tables built_in = {.table = {.ops = ops, .n = sizeof(ops) / sizeof(ops[0])}};
static _Atomic(const struct tables *) current = &built_in;
static pthread_mutex_t adding =
    PTHREAD_MUTEX_INITIALIZER; /* held while operators are added; readers don't take it */

const struct cw_op_table *cw_ops(void)
{
    return &atomic_load_explicit(&current, memory_order_acquire)->table;
}

static int table_clash(const struct cw_op_desc *have, struct cw_error *err)
{
    cw_error_op(err, have->name);
    return cw_error_value(
        err, CW_E_OPTION, "name", have->name, "a name that no other operator has",
        "there is an operator \"%s\" already, %s%s: expected a name that no other operator has", have->name,
        have->plugin ? "of plug-in " : "built in", have->plugin ? have->plugin : "");
}

/* Inserts an operator in the order of names. */
static int table_insert(struct tables *t, const struct cw_op_desc *op, struct cw_error *err)
{
    size_t at = t->table.n;
    for (; at > 0; at--) {
        int order = strcmp(t->ops[at - 1]->name, op->name);
        if (order == 0)
            return table_clash(t->ops[at - 1], err);
        if (order < 0)
            break;
    }
    memmove(t->ops + at + 1, t->ops + at, (t->table.n - at) * sizeof(*t->ops));
    t->ops[at] = op;
    t->table.n++;
    return 0;
}

static int table_add(const struct cw_op_desc *const *more, size_t n, struct cw_error *err)
{
    const struct tables *old = atomic_load_explicit(&current, memory_order_relaxed);
    size_t bytes = (old->table.n + n) * sizeof(*old->ops);
    struct tables *t = malloc(sizeof(*t) + bytes);
    if (!t)
        return cw_error_nomem(err, sizeof(*t) + bytes, "the list of operators");
    *t = (struct tables){.table = {.ops = t->ops, .n = old->table.n}, .older = old};
    memcpy(t->ops, old->table.ops, old->table.n * sizeof(*t->ops));
    for (size_t i = 0; i < n; i++) {
        int r = table_insert(t, more[i], err);
        if (r < 0) {
            free(t);
            return r;
        }
    }
    atomic_store_explicit(&current, t, memory_order_release);
    return 0;
}

int cw_ops_add(const struct cw_op_desc *const *more, size_t n, struct cw_error *err)
{
    CW_GUARD(&adding);
    return table_add(more, n, err);
}
