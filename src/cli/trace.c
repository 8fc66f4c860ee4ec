/* cachew trace: merges the traces of several processes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/print.h"
#include "cli/verb.h"

/* Each event is a line (base/trace.h). A line that was cut off when its writer was killed is left out. */
static int trace_copy(const char *path, bool *first, struct cw_error *err)
{
    FILE *f = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    if (!f) {
        int e = errno;
        cw_error_file(err, path);
        return cw_error_errno(err, CW_E_OPTION, e, "can't open %s", path);
    }
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
    if (!ours) {
        cw_error_file(err, path);
        return cw_error_set(err, CW_E_OPTION, "%s is no trace that cachew wrote", path);
    }
    return 0;
}

static int trace_main(int argc, char **argv)
{
    struct cw_error err = {0};
    int n_files;
    bool first = true;
    const struct cli_option options[] = {{0}};
    int r = cli_parse(&cli_verb_trace, options, argc, argv, &n_files, &err);
    if (r == 1)
        return 0;
    for (int i = 1; r >= 0 && i <= n_files; i++)
        r = trace_copy(argv[i], &first, &err);
    if (r >= 0)
        printf("%s\n]\n", first ? "[" : "");
    return r < 0 ? cli_fail(&err, false, NULL) : 0;
}

const struct cli_verb cli_verb_trace = {
    .name = "trace",
    .arguments = "FILE... ",
    .min_args = 1,
    .max_args = 1000000,
    .summary = "merge the traces of several processes, to standard output",
    .run = trace_main,
};
