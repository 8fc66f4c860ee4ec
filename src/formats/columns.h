/* What the readers of files of columns (Parquet, Arrow) have in common. */
#pragma once
#include "data/type.h"

struct cw_column_facts {
    const char *name;       /* of a field of a struct: the names on the path to it, joined by dots */
    const char *unreadable; /* what it is, if it has no form as a component (static text); else NULL */
    struct cw_type type;    /* if it is readable */
};

/* The bytes of a string, or the numbers of a list. */
struct cw_slice {
    const uint8_t *data;
    size_t size;
};
