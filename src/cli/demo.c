/* cachew demo: makes photographs and a pipeline over them, and becomes `cachew run` of that pipeline. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/photos.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "session/report.h"
#include "storage/file.h"

/* Writes the pipeline of the README's quickstart over the photographs. */
static int demo_write_pipeline(const char *path, const char *photographs, struct cw_error *err)
{
    json_auto_t *pipeline = json_pack(
        "{s:i, s:[{s:s, s:o}, {s:s, s:s}, {s:s, s:s, s:[i, i]}, {s:s, s:s}, {s:s}, {s:s, s:i}]}", "cachew", 1,
        "pipeline", "op", "image_folder", "root", cw_report_text(photographs), "op", "decode_image",
        "component", "image", "op", "random_resized_crop", "component", "image", "size", 224, 224, "op",
        "random_flip", "component", "image", "op", "shuffle", "op", "batch", "size", 64);
    _cleanup_free_ char *text = pipeline ? json_dumps(pipeline, JSON_INDENT(1)) : NULL;
    return text ? cw_put(path, text, strlen(text), err) : cw_error_nomem(err, 0, "a pipeline");
}

/* Replaces this process by `cachew run`. Returns only an error. */
static int demo_run(const char *pipeline, const char *save, bool json, struct cw_error *err)
{
    const char *words[] = {
        "cachew", "run", pipeline, "--epochs", "2", "--digest", "--save", save, json ? "--json" : NULL, NULL};
    fprintf(stderr, "cachew:");
    for (const char **word = words; *word; word++)
        fprintf(stderr, " %s", *word);
    fprintf(stderr, "\n");
    sigset_t none;
    sigemptyset(&none); /* cli_photos_make blocked the signals that end a verb */
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", (char **)words);
    return cw_error_errno(err, CW_E_IO, errno, "can't run /proc/self/exe");
}

static int demo_execute(uint64_t count, bool json, struct cw_error *err)
{
    struct photo_set_report made;
    _cleanup_free_ char *dir = cli_cache_path("photos-%" PRIu64, count);
    _cleanup_free_ char *own = cli_cache_path("demo"), *pipeline = cli_cache_path("demo/pipeline.json");
    if (!dir || !own || !pipeline)
        return cw_error_set(err, CW_E_OPTION,
                            "it is not known where to keep photographs: expected the environment variable "
                            "HOME or XDG_CACHE_HOME");
    struct photo_set set = {
        .dir = dir, .count = count, .shards = 8, .sources = &(struct cli_texts){0}, .progress = !json};
    int r = cli_photos_make(&set, &made, err);
    if (r < 0)
        return cli_photos_end(r, err, json);
    fprintf(stderr, "cachew: %" PRIu64 " photographs in %s%s\n", count, dir,
            made.existed ? ", from an earlier run" : "");
    r = cw_make_dirs(own, err);
    if (r >= 0)
        r = demo_write_pipeline(pipeline, dir, err);
    return r < 0 ? r : demo_run(pipeline, own, json, err);
}

static int demo_main(int argc, char **argv, struct cw_error *err)
{
    uint64_t count = 1000;
    bool json = false;
    const struct cli_option options[] = {
        {"count", CLI_COUNT, &count, "N", "make N photographs (default 1000)", .min = 1,
         .max = PHOTO_SET_MOST},
        {"json", CLI_FLAG, &json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_demo, options, argc, argv, err);
    return r ? r : demo_execute(count, json, err);
}

const struct cli_verb cli_verb_demo = {
    .name = "demo",
    .arguments = "",
    .summary = "make photographs, and decode, crop, flip, shuffle and batch them for two epochs",
    .details =
        "Prints the command `cachew run` that it runs at the end, the rate, and the digest of all batches.\n"
        "Keeps photographs, pipeline and a picture of the first batch in ~/.cache/cachew.",
    .run = demo_main,
};
