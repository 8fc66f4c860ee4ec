/* cachew trace: merges the traces of several processes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/print.h"
#include "cli/verb.h"

/* Prints the events of a trace file, one per line (base/trace.h). Leaves out a line that is incomplete
 * because its writer was killed. *first: whether no event has been printed yet. */
static int trace_copy(const char *path, bool *first, struct cw_error *err)
{
    FILE *f = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    if (!f)
        return cw_error_at_file(err, CW_E_OPTION, path, errno, "can't open %s", path);
    bool ours = (n = getline(&line, &capacity, f)) == 2 && line[0] == '[';
    while (ours && (n = getline(&line, &capacity, f)) > 0) {
        bool whole = line[n - 1] == '\n';
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == ','))
            n--;
        if (!whole || n < 2 || line[0] != '{' || line[n - 1] != '}')
            continue;
        printf("%s%.*s", *first ? "[\n" : ",\n", (int)n, line);
        *first = false;
    }
    bool failed = ferror(f);
    int e = errno;
    fclose(f);
    if (failed)
        return cw_error_errno(err, CW_E_IO, e, "can't read %s", path);
    return ours ? 0
                : cw_error_at_file(err, CW_E_OPTION, path, 0,
                                   "%s is not a trace file of Cachew: expected a file that --trace wrote",
                                   path);
}

static int trace_main(int argc, char **argv, struct cw_error *err)
{
    bool first = true;
    const struct cli_option options[] = {{0}};
    int r = cli_parse(&cli_verb_trace, options, argc, argv, err);
    for (char **file = argv + 1; r == 0 && *file; file++)
        r = trace_copy(*file, &first, err);
    if (r == 0)
        printf("%s\n]\n", first ? "[" : "");
    return r;
}

const struct cli_verb cli_verb_trace = {
    .name = "trace",
    .arguments = "FILE... ",
    .min_args = 1,
    .max_args = 1000000,
    .summary = "merge the trace files (--trace) of several processes, and print the result",
    .run = trace_main,
};
