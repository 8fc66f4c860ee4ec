/* cachew <verb>: finds the verb. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "base/patience.h"
#include "base/text.h"
#include "cli/options.h"

const char cli_version[] = CACHEW_VERSION;

const struct cli_verb cli_verbs[] = {
    {"run", "PIPELINE ", 1, 1, "pulls the batches of a pipeline as a training job would",
     "Exit codes: 0 done; 1 the data or a record failed; 2 the pipeline, an option or a state file is wrong; "
     "3 the service can't be reached or\n"
     "refused; 4 a deadline passed; 130 or 143 after SIGINT or SIGTERM, with the state written.",
     cli_run},
    {"explain", "PIPELINE ", 1, 1,
     "shows the compiled pipeline: its types, what is fused, where the time goes, what the bottleneck is",
     NULL, cli_explain},
    {"ops", "[NAME] ", 0, 1, "lists the operators, or describes one", NULL, cli_ops},
    {"index", "FILE... ", 1, 1000000, "makes the indexes of files of records", NULL, cli_index},
    {"bench", "PIPELINE ", 1, 1, "measures the rate of a pipeline with 1 thread, 2, 4 ... all", NULL,
     cli_bench},
    {"cache", "ls|stat|rm|verify|pin|unpin DIR [SET], or warm PIPELINE ", 2, 3,
     "shows what lies in a cache directory, checks it, fills it, makes room",
     "rm, pin and unpin take the first characters of a set, as ls shows it, or --all. verify ends with 1 "
     "where something is damaged. What runs use stays.",
     cli_cache},
    {"up", "", 0, 0, "runs a service on this machine: a dispatcher and workers", NULL, cli_up},
    {"worker", "", 0, 0, "serves as a worker of a service", NULL, cli_worker},
    {"dispatcher", "", 0, 0, "serves as the dispatcher of a service", NULL, cli_dispatcher},
    {"provision", "[-- WORKER OPTIONS] ", 0, 1000,
     "keeps as many workers as a dispatcher with a policy wants",
     "What stands behind -- is given to each worker: cachew worker --help lists it.", cli_provision},
    {"jobs", "[explain NAME] ", 0, 2,
     "lists the jobs of a service, ends or pauses one, or explains how many workers it has", NULL, cli_jobs},
    {"workers", "", 0, 0, "lists the workers of a service, or drains one", NULL, cli_workers},
    {"top", "", 0, 0, "shows the jobs and workers of a service, with rates, again and again",
     "On a terminal the table is renewed in place; q or Ctrl-C ends. Else each table follows the one before.",
     cli_top},
    {"trace", "FILE... ", 1, 1000000, "puts the traces of several processes together, on standard output",
     NULL, cli_trace},
    {"simulate", "WORKLOAD ", 1, 1, "plays a modelled workload with a policy: workers, cache, time and cost",
     "docs/simulator.md has the format of workloads.", cli_simulate},
    {"keys", "init DIR ", 2, 2, "makes keys, certificates and a token for a service on several hosts", NULL,
     cli_keys},
    {"doctor", "", 0, 0, "checks what this machine offers and says what to mend", NULL, cli_doctor},
    {0},
};

static void usage(FILE *f)
{
    fprintf(f, "usage: cachew VERB [options]\n\nverbs:\n");
    for (const struct cli_verb *v = cli_verbs; v->name; v++)
        fprintf(f, "  %-10s %s\n", v->name, v->summary);
    fprintf(f, "\ncachew VERB --help says more; cachew --version prints the version.\n");
}

/* A file that is opened later must not become standard output. What was closed can be neither read nor
 * written. */
static void open_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(1);
}

static int run_verb(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("cachew %s\n", cli_version);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    struct cw_error err = {0};
    if (cw_patience_check(&err) < 0)
        return cli_fail(&err, false, NULL);
    const char *names[32];
    size_t n = 0;
    for (const struct cli_verb *v = cli_verbs; v->name; v++) {
        if (strcmp(v->name, argv[1]) == 0)
            return v->run(argc - 1, argv + 1);
        names[n++] = v->name;
    }
    const char *near = cw_nearest(argv[1], names, n);
    fprintf(stderr, "cachew: there is no verb \"%s\"%s%s%s\n", argv[1], near ? "; did you mean \"" : "",
            near ? near : "", near ? "\"?" : "");
    usage(stderr);
    return 2;
}

/* Results go to stdout, so what can't be written is lost. */
int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file may not grow (ulimit -f): an error like any other */
    open_standard_streams();
    cw_notice_set(cw_notice_stderr);
    int code = run_verb(argc, argv);
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "cachew: can't write to stdout%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return code ? code : 1;
}
