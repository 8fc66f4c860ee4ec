#include "pipeline/op.h"

static const char *const units[] = {"record", "chunk", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "by",
     .kind = CW_ATTR_STRING,
     .def = "\"record\"",
     .choices = units,
     .doc = "record: a permutation of all elements; chunk: of runs of neighbours, for storage where random "
            "reads are slow"},
    {.name = "window",
     .kind = CW_ATTR_INT,
     .def = "0",
     .min = 0,
     .max = 1 << 20,
     .doc = "behind an iterable, whose end is not known: so many elements that follow each other are "
            "permuted among themselves; 0 elsewhere"},
    {.name = "reshuffle",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "another order each epoch; false: the same order in all of them"},
    {0},
};

const struct cw_op_desc cw_op_shuffle = {
    .name = "shuffle",
    .summary = "the elements in random order, another one each epoch",
    .doc = "A pseudo-random permutation of all elements, however many there are, without a buffer: it moves "
           "indices, never data. Sources whose records can't be read one by one (compressed files) are "
           "shuffled by chunk, which mixes less well (docs/shuffling.md).",
    .hint = "there is no buffer to size: shuffle() permutes all elements",
    .kind = CW_OP_INDEX,
    .attrs = attrs,
};
