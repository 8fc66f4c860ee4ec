/* cachew index: makes the indexes of data files before a pipeline needs them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/machine.h"
#include "base/text.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "session/local.h"
#include "ops/source/source_files.h"
#include "dataset/index.h"

/* Adds the files that match a pattern. A pattern without matches is an error of the argument (CW_E_OPTION)
 * here. */
static int index_add_pattern(struct cw_source_files *f, const char *pattern, struct cw_error *err)
{
    int r = cw_source_files_match(f, pattern, false, &(struct cw_source_env){.base_dir = "."}, err);
    return r == CW_E_PIPELINE ? (err->status = CW_E_OPTION) : r;
}

/* The format that the source operator of this name reads. */
static enum cw_record_format index_format(const char *source)
{
    return strcmp(source, "tfrecord") == 0 ? CW_FORMAT_TFRECORD
           : strcmp(source, "tar") == 0    ? CW_FORMAT_TAR
           : strcmp(source, "csv") == 0    ? CW_FORMAT_CSV
                                           : CW_FORMAT_LINES;
}

static json_t *index_report_json(const struct cw_index_report *p)
{
    uint64_t made = p->n_files - p->n_reused;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "files", (json_int_t)p->n_files, "reused",
                     (json_int_t)p->n_reused, "indexed", (json_int_t)made, "records",
                     (json_int_t)p->n_records, "data_bytes", (json_int_t)p->data_bytes, "file_bytes",
                     (json_int_t)p->file_bytes, "seconds", p->seconds, "mb_per_s",
                     made && p->seconds > 0 ? (double)p->file_bytes * 1e-6 / p->seconds : 0.0);
}

static void index_print_report(const struct cw_index_report *p, const char *index_dir)
{
    size_t made = p->n_files - p->n_reused;
    char size[32];
    printf("%zu files, %" PRIu64 " records, %s in %.3f s", p->n_files, p->n_records,
           cw_text_bytes((double)p->file_bytes, size), p->seconds);
    if (made && p->seconds > 0)
        printf(" (%s/s)", cw_text_bytes((double)p->file_bytes / p->seconds, size));
    printf("; %zu files were indexed, %zu had a valid index; the indexes are %s%s\n", made, p->n_reused,
           index_dir ? "in " : "", index_dir ? index_dir : "beside the files");
}

static int index_main(int argc, char **argv, struct cw_error *err)
{
    static const char *const formats[] = {"tfrecord", "text", "jsonl", "tar", "csv", NULL};
    struct cw_source_files files = {0};
    struct cw_index index = {0};
    const char *index_dir = NULL, *compression = "auto", *format = "tfrecord";
    uint64_t threads = cw_rank_share().cpus;
    bool sidecar = false, rebuild = false, json = false;
    const struct cli_option options[] = {
        {"sidecar", CLI_FLAG, &sidecar, NULL,
         "keep each index beside its file (FILE.cwx) instead of in the index directory"},
        CLI_INDEX_DIR_OPTION(&index_dir),
        {"format", CLI_TEXT, &format, "F",
         "index files of this format: tfrecord (default), text, jsonl, tar or csv (with commas)",
         .choices = formats},
        {"compression", CLI_TEXT, &compression, "C",
         "read files of this compression: auto (default: detect it), none, gzip, zlib, zstd, bzip2 or xz; "
         "must be the same as in the pipeline",
         .choices = cw_codec_names},
        {"rebuild", CLI_FLAG, &rebuild, NULL, "make all indexes again, even those that are valid"},
        {"threads", CLI_COUNT, &threads, "N",
         "read N files at a time (default: one for each CPU that this process may use)", .min = 1, .max = 64},
        {"json", CLI_FLAG, &json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_index, options, argc, argv, err);
    for (char **pattern = argv + 1; r == 0 && *pattern; pattern++)
        r = index_add_pattern(&files, *pattern, err);
    _cleanup_free_ char *own = index_dir ? NULL : cw_index_dir();
    struct cw_index_options o = {
        .format = index_format(format),
        .codec = (enum cw_codec)cw_codec_parse(compression),
        .index_dir = index_dir ? index_dir : own,
        .write_sidecar = sidecar,
        .rebuild = rebuild,
        .threads = (int)threads,
        .memory = cw_rank_share().memory,
    };
    if (r == 0 && !sidecar && !o.index_dir)
        r = cw_error_set(err, CW_E_OPTION,
                         "it is not known where to keep indexes: expected --index-dir, --sidecar, or the "
                         "environment variable CACHEW_INDEX_DIR or HOME");
    if (r == 0)
        r = cw_index_open(files.paths, files.prefixes, files.n, &o, &index, err);
    if (r == 0 && json)
        r = cli_print(index_report_json(&index.report));
    else if (r == 0)
        index_print_report(&index.report, sidecar ? NULL : o.index_dir);
    cw_index_deinit(&index);
    cw_source_files_deinit(&files);
    return r;
}

const struct cli_verb cli_verb_index = {
    .name = "index",
    .arguments = "FILE... ",
    .min_args = 1,
    .max_args = 1000000,
    .summary = "make the indexes of data files (where each record begins) before a pipeline needs them",
    .run = index_main,
};
