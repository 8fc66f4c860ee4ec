/* cachew ls: lists the files that patterns and addresses name, as a source would find them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "objects/object.h"
#include "ops/source/source_files.h"
#include "storage/file.h"

/* Adds the files of a pattern. The address of a bucket, or one that ends with a slash, stands for all files
 * directly below it. */
static int ls_add(struct cw_source_files *f, const char *pattern, struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text all = {0};
    size_t n = strlen(pattern);
    bool bucket = cw_object_is_listed(pattern) && !strchr(strstr(pattern, "://") + 3, '/');
    if (bucket || (cw_object_is_listed(pattern) && pattern[n - 1] == '/'))
        cw_text_add(&all, "%s%s*", pattern, bucket ? "/" : "");
    if (all.failed)
        return cw_error_nomem(err, n, "a pattern");
    int r = cw_source_files_match(f, all.data ? all.data : pattern, true,
                                  &(struct cw_source_env){.base_dir = "."}, err);
    return r == CW_E_PIPELINE ? (err->status = CW_E_OPTION) : r;
}

static int ls_print(const char *path, const struct cw_stat *st, json_t *list)
{
    if (!list) {
        printf("%12" PRIu64 "  %s\n", st->size, path);
        return 0;
    }
    return json_array_append_new(list,
                                 json_pack("{s:s%, s:I}", "name", path, cw_text_whole(path, strlen(path)),
                                           "size", (json_int_t)st->size));
}

static int ls_main(int argc, char **argv, struct cw_error *err)
{
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    bool json = false;
    uint64_t bytes = 0;
    const struct cli_option options[] = {
        {"json", CLI_FLAG, &json, NULL, "print the list as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_ls, options, argc, argv, err);
    for (char **pattern = argv + 1; r == 0 && *pattern; pattern++)
        r = ls_add(&files, *pattern, err);
    json_t *list = r == 0 && json ? json_array() : NULL;
    for (size_t i = 0; r == 0 && i < files.n; i++) {
        struct cw_stat st;
        r = cw_stat(files.paths[i], &st, err);
        if (r == 0 && ls_print(files.paths[i], &st, list) < 0)
            r = cw_error_nomem(err, 0, "a list of files");
        bytes += r == 0 ? st.size : 0;
    }
    if (r == 0 && json)
        return cli_print(json_pack("{s:o, s:I}", "files", list, "bytes", (json_int_t)bytes));
    json_decref(list);
    return r;
}

const struct cli_verb cli_verb_ls = {
    .name = "ls",
    .arguments = "FILE... ",
    .min_args = 1,
    .max_args = 1000000,
    .summary = "list files, local ones or those of a server, with their sizes in bytes",
    .details = "FILE is a name, a pattern or an address, as in the attribute files of a source: "
               "\"data/*.tar\", \"s3://BUCKET/train-*\", \"https://HOST/FILE\". An address that ends with a "
               "slash stands for the files directly below it.",
    .run = ls_main,
};
