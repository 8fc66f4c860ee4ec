/* The columns of a table, for the sources whose files hold rows of named columns (csv, parquet, arrow). The
 * names and types come from the first file, which `bind` opens; the other files must have the same columns.
 */
#pragma once
#include "ops/source/source_files.h"
#include "pipeline/op.h"

struct cw_table_column {
    char *name;
    struct cw_type type;
    unsigned port; /* output port of the operator */
    /* attribute `nulls`: the value in place of a null; of a list column a list, in place of a null list, or a
     * number, in place of a null element and of each null list, which becomes empty */
    bool has_default, default_is_list;
    size_t n_default; /* numbers in def */
    void *def;        /* numbers, of the column's dtype; owned */
    const char *text; /* bytes; owned by the attributes */
    size_t text_size;
};

struct cw_table { /* op->state of these sources */
    unsigned n;
    struct cw_table_column columns[CW_OP_MAX_PORTS];
};

#define CW_TABLE_COLUMNS_ATTR \
    {.name = "columns", \
     .kind = CW_ATTR_STRINGS, \
     .def = "[]", \
     .doc = "names of the columns to read, at most 64; []: all columns"}

#define CW_TABLE_NULLS_ATTR \
    {.name = "nulls", \
     .kind = CW_ATTR_OBJECT, \
     .def = "{}", \
     .doc = "values in place of nulls, {\"age\": -1, \"name\": \"\"}; \"NaN\" for a floating dtype; a list " \
            "for a list"}

/* Finds the files of the attribute `files` while the operator is bound. */
int cw_table_files(struct cw_bind *b, const struct cw_op *op, struct cw_source_files *ret,
                   struct cw_error *err) _must_check_;
/* Sets chosen[i] to whether attribute `columns` names column i (it names none: true for all). CW_E_PIPELINE:
 * a name occurs twice in the file, `columns` names a column that the file does not have, or too many are
 * left. */
int cw_table_choose(const struct cw_op *op, const char *path, char *const *names, size_t n, bool *chosen,
                    struct cw_error *err) _must_check_;
/* Makes an empty table op->state, also if an error follows. */
struct cw_table *cw_table_new(struct cw_op *op, struct cw_error *err);
/* Declares an output for a column. */
int cw_table_add(struct cw_bind *b, struct cw_op *op, const char *name, const struct cw_type *type,
                 struct cw_error *err) _must_check_;
/* Returns the number of the column with this name, or -1. */
int cw_table_find(const struct cw_table *t, const char *name);
/* Checks that each key of an object (attribute `attr`) is a column of the table. */
int cw_table_check_keys(const struct cw_op *op, const char *attr, struct cw_error *err) _must_check_;
/* Reads the attribute `nulls`. */
int cw_table_read_nulls(const struct cw_op *op, struct cw_error *err) _must_check_;
/* cw_source.context: a hash of the columns' names and types. They may come from another file than a record.
 */
uint64_t cw_table_context(const struct cw_table *t);
/* cw_op_desc.free_state */
void cw_table_free(void *state);
