#include "ops/table.h"

#define OP(name) extern const struct cw_op_desc cw_op_##name;
#include "ops_list.h" /* made by the build from the list in meson.build */
#undef OP

static const struct cw_op_desc *const ops[] = {
#define OP(name) &cw_op_##name,
#include "ops_list.h"
#undef OP
};

static const struct cw_op_table table = {.ops = ops, .n = sizeof(ops) / sizeof(ops[0])};

const struct cw_op_table *cw_ops(void) { return &table; }
