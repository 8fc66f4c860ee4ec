/* The main program: finds the verb that the command line names in the table of verbs, and runs it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macro.h"
#include "base/notice.h"
#include "base/patience.h"
#include "base/text.h"
#include "cli/print.h"
#include "cli/verb.h"

static const struct cli_verb *const verbs[] = {
    &cli_verb_run,        &cli_verb_materialize, &cli_verb_explain, &cli_verb_ops,     &cli_verb_index,
    &cli_verb_ls,         &cli_verb_bench,       &cli_verb_cache,   &cli_verb_up,      &cli_verb_worker,
    &cli_verb_dispatcher, &cli_verb_provision,   &cli_verb_jobs,    &cli_verb_workers, &cli_verb_top,
    &cli_verb_trace,      &cli_verb_simulate,    &cli_verb_keys,    &cli_verb_doctor,  &cli_verb_photos,
    &cli_verb_demo,       &cli_verb_stats,       &cli_verb_show,
};

static void main_usage(FILE *f)
{
    fprintf(f, "usage: cachew VERB [options]\n\nverbs:\n");
    for (size_t i = 0; i < CW_COUNT_OF(verbs); i++)
        fprintf(f, "  %-11s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(
        f,
        "\ncachew VERB --help lists the options of a verb. cachew --version prints the version of Cachew.\n");
}

/* Opens each closed standard stream on /dev/null, so that no file that is opened later gets the number of a
 * standard stream. Reading from the opened stdin and writing to the opened stdout and stderr fail. */
static void main_open_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(1);
}

static int main_verb(int argc, char **argv)
{
    const char *names[CW_COUNT_OF(verbs)];
    struct cw_error err = {0};
    bool json = cli_wants_json(argc, argv); /* before the verb reorders argv */
    if (argc < 2) {
        main_usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("cachew %s\n", CACHEW_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        main_usage(stdout);
        return 0;
    }
    if (cw_patience_check(&err) < 0)
        return cli_fail(&err, false, NULL);
    for (size_t i = 0; i < CW_COUNT_OF(verbs); i++) {
        names[i] = verbs[i]->name;
        if (strcmp(names[i], argv[1]) == 0) {
            int r = verbs[i]->run(argc - 1, argv + 1, &err);
            return r < 0 ? cli_fail(&err, json, NULL) : r == CLI_HELP ? 0 : r;
        }
    }
    const char *near = cw_nearest(argv[1], names, CW_COUNT_OF(verbs));
    fprintf(stderr, "cachew: there is no verb \"%s\"%s%s%s\n", argv[1], near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    main_usage(stderr);
    return 2;
}

/* A result that can't be written to stdout is lost, so it makes the exit code at least 1. */
int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* makes write(2) fail when a file may not grow (ulimit -f) */
    main_open_streams();
    cw_notice_set(cw_notice_stderr);
    int code = main_verb(argc, argv);
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "cachew: can't write to stdout%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return code ? code : 1;
}
