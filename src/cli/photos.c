/* cachew photos: makes a set of photographs, to try Cachew with. */
#include "cli/photos.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/text.h"
#include "cli/photo_set.h"
#include "cli/print.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "session/report.h"

static atomic_int photos_stop; /* SIGINT or SIGTERM came */

static void photos_on_signal(void *unused, int number, bool again)
{
    if (again) /* a second signal does not wait until the threads have ended */
        _exit(128 + number);
    atomic_store(&photos_stop, number);
}

char *cli_cache_path(const char *fmt, ...)
{
    char name[256];
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct cw_text path = {0};
    CW_FORMAT(name, fmt);
    if (xdg && *xdg)
        cw_text_add(&path, "%s/cachew/%s", xdg, name);
    else if (home && *home)
        cw_text_add(&path, "%s/.cache/cachew/%s", home, name);
    return path.size ? path.data : NULL;
}

int cli_photos_make(struct photo_set *set, struct photo_set_report *ret, struct cw_error *err)
{
    struct cli_signal_watch watch = {0};
    set->stop = &photos_stop;
    if (!set->threads)
        set->threads = CW_MIN(cw_rank_share().cpus, PHOTO_SET_MOST_THREADS);
    cli_signal_watch_start(&watch, photos_on_signal, NULL);
    int r = photo_set_make(set, ret, err);
    cli_signal_watch_stop(&watch);
    return r;
}

int cli_photos_end(int r, const struct cw_error *err, bool json)
{
    int number = atomic_load(&photos_stop);
    if (r >= 0 || !number)
        return r;
    fprintf(stderr, "cachew: ended by %s\n", cli_signal_name(number));
    return json && cli_fail(err, json, NULL) < 0 ? r : 128 + number;
}

static int photos_print(const struct photo_set *set, const struct photo_set_report *made, bool json)
{
    if (json)
        return cli_print(json_pack("{s:o, s:I, s:b, s:f}", "directory", cw_report_text(set->dir), "count",
                                   (json_int_t)set->count, "existed", made->existed, "seconds",
                                   made->seconds));
    if (made->existed)
        printf("%s: has these %" PRIu64 " pictures already\n", set->dir, set->count);
    else
        printf("%s: %" PRIu64 " pictures of %u photographs, %" PRIu64 " bytes each on average, in %.1f s\n",
               set->dir, set->count, made->n_photographs, made->bytes / set->count, made->seconds);
    return 0;
}

static int photos_main(int argc, char **argv, struct cw_error *err)
{
    static const char *const formats[] = {"folder", "tfrecord", NULL};
    struct cli_texts sources = {0};
    struct photo_set set = {.sources = &sources, .count = 1000, .shards = 8};
    struct photo_set_report made;
    const char *format = "folder";
    bool json = false;
    const struct cli_option options[] = {
        {"count", CLI_COUNT, &set.count, "N", "make N pictures (default 1000)", .min = 1,
         .max = PHOTO_SET_MOST},
        {"format", CLI_TEXT, &format, "F",
         "write JPEG files, in a directory for each label (folder, the default), or TFRecord files of "
         "tf.train.Example with image, label, width and height (tfrecord)",
         .choices = formats},
        {"shards", CLI_COUNT, &set.shards, "N", "with --format tfrecord: write N files (default 8)", .min = 1,
         .max = 10000},
        {"source", CLI_TEXTS, &sources, "DIR",
         "cut the pictures out of the photographs (JPEG, PNG) in DIR and below it; may be given several "
         "times (default: draw landscapes)"},
        {"seed", CLI_COUNT, &set.seed, "N", "make the pictures that follow from seed N (default 0)",
         .max = INT64_MAX},
        {"threads", CLI_SMALL, &set.threads, "N",
         "run N threads (default: one for each CPU that this process may use)", .min = 1,
         .max = PHOTO_SET_MOST_THREADS},
        {"progress", CLI_FLAG, &set.progress, NULL, "print how many pictures have been made"},
        {"json", CLI_FLAG, &json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_photos, options, argc, argv, err);
    if (r == 0) {
        set.tfrecord = strcmp(format, "tfrecord") == 0;
        _cleanup_free_ char *own = argv[1] ? strdup(argv[1]) : cli_cache_path("photos-%" PRIu64, set.count);
        for (size_t n = own ? strlen(own) : 0; n > 1 && own[n - 1] == '/';) /* DIR/.partial would be inside */
            own[--n] = '\0';
        set.dir = own;
        r = !own || !*own ? cw_error_value(err, CW_E_OPTION, "DIR", "", "a directory",
                                           "it is not known where to keep photographs: expected an argument "
                                           "DIR, or the environment variable HOME")
                          : cli_photos_make(&set, &made, err);
        r = r < 0 ? cli_photos_end(r, err, json) : photos_print(&set, &made, json);
    }
    cli_texts_deinit(&sources);
    return r;
}

const struct cli_verb cli_verb_photos = {
    .name = "photos",
    .arguments = "[DIR] ",
    .max_args = 1,
    .summary = "make a set of photographs, to try Cachew with",
    .details =
        "The same options give the same bytes. A directory that holds a set made with the same options\n"
        "is left as it is. DIR is by default ~/.cache/cachew/photos-N, where N is the number of pictures.",
    .run = photos_main,
};
