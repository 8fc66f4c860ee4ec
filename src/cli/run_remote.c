/* `run --service`: takes the batches of a job from a service. Owns the trace. */
#include "cli/run_remote.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macro.h"
#include "base/patience.h"
#include "cli/child.h"
#include "remote/remote.h"

const char *const cli_guarantees[] = {"exactly-once", "at-most-once", NULL}, *const cli_transports[] = {
                                                                                 "auto", "shm", "unix", "tcp",
                                                                                 NULL};

bool cli_ranks_unordered(const struct cli_ranks *ranks)
{
    return ranks->order && strcmp(ranks->order, "any") == 0;
}

void cli_note(void *unused CW_UNUSED, const char *text)
{
    fprintf(stderr, "cachew: %s\n", text);
}

#define LOCAL_MOST 256 /* most workers of --local-workers */

static int remote_needs_service(const char *option, const char *value, const char *why, struct cw_error *err)
{
    return value ? cw_error_set(err, CW_E_OPTION, "--%s %s needs --service%s", option, value, why) : 0;
}

static int remote_check_local_workers(const struct cli_remote *x, struct cw_error *err)
{
    const char *given = x->local_workers;
    char *end = "";
    unsigned long n = given && strcmp(given, "auto") != 0 ? strtoul(given, &end, 10) : 0;
    if (!given || (!*end && n <= LOCAL_MOST && (*given == 'a' || (*given >= '0' && *given <= '9'))))
        return 0;
    return cw_error_value(err, CW_E_OPTION, "local-workers", given, "an integer from 0 to 256, or auto",
                          "--local-workers %.40s: expected an integer from 0 to %d, or auto", given,
                          LOCAL_MOST);
}

int cli_remote_check(const struct cli_remote *x, const char *cache_dir, struct cw_error *err)
{
    int r = remote_check_local_workers(x, err);
    if (r < 0)
        return r;
    if (x->service)
        return cache_dir ? cw_error_set(err, CW_E_OPTION,
                                        "--cache-dir %s can't be used with --service: the workers of the "
                                        "service compute the elements, so give --cache-dir to them",
                                        cache_dir)
                         : 0;
    r = remote_needs_service("sharding", x->sharding, "", err);
    if (r >= 0)
        r = remote_needs_service("local-workers", x->local_workers, "", err);
    if (r >= 0)
        r = remote_needs_service("cut", x->cut, "; without a service, this process runs all operators", err);
    return r < 0 ? r
                 : remote_needs_service(
                       "trace", x->trace,
                       "; for a run without a service, cachew explain shows where the time goes", err);
}

/* Returns 1 for --sharding off, 0 for dynamic. The names are those of the tf.data service. */
static int remote_sharding_off(const char *sharding, struct cw_error *err)
{
    static const char *const fixed[] = {"static", "file", "data", "file_or_data", "hint"};
    bool is_fixed = false;
    if (!sharding || strcasecmp(sharding, "dynamic") == 0)
        return 0;
    if (strcasecmp(sharding, "off") == 0)
        return 1;
    for (size_t i = 0; i < CW_COUNT_OF(fixed); i++)
        is_fixed |= strcasecmp(sharding, fixed[i]) == 0;
    return cw_error_value(err, CW_E_OPTION, "sharding", sharding, "dynamic or off",
                          "--sharding %.40s: %sexpected dynamic or off", sharding,
                          is_fixed ? "no fixed assignment of data to workers is needed, because a batch is "
                                     "the same whichever worker computes it; "
                                   : "");
}

/* Sets *ret to the job's name, new. own: --sharding off; each rank has its own job, NAME/RANK. */
static int remote_job_name(const struct cli_remote *x, const struct cli_ranks *ranks, bool own, char **ret,
                           struct cw_error *err)
{
    int n;
    if (!x->job && ranks->world_size > 1 && !own)
        return cw_error_set(err, CW_E_OPTION,
                            "--world-size %" PRIu64
                            " needs --job NAME: the ranks of a job find each other by the job's name",
                            ranks->world_size);
    if (!x->job)
        n = asprintf(ret, "anonymous-%d-%" PRIx64, (int)getpid(), cw_now_ns());
    else if (own && ranks->world_size > 1)
        n = asprintf(ret, "%s/%" PRIu64, x->job, ranks->rank);
    else
        n = asprintf(ret, "%s", x->job);
    if (n >= 0)
        return 0;
    *ret = NULL;
    return cw_error_nomem(err, 0, "a name");
}

/* A worker has little to finish when the only client that waits for it has ended. */
#define LOCAL_DRAIN_S "1"
#define LOCAL_NICE "5" /* niceness of local workers: the training process gets CPUs first */

/* Starts the workers of --local-workers, as a process `cachew up --dispatcher`, which ends when this one
 * does, for whatever reason. */
static int remote_start_workers(struct cli_remote *x, struct cw_error *err)
{
    const struct cli_credentials *c = &x->credentials;
    const struct cli_log log = {.role = "run"};
    const char *argv[32] = {"cachew", "up"},
               *threads = strcmp(x->local_workers, "auto") ? x->local_workers : NULL;
    size_t n = 2;
    json_auto_t *ready = NULL;
    const char *given[][2] = {{"--dispatcher", x->service}, {"--workers", x->local_workers},
                              {"--threads", threads},       {"--drain-timeout", LOCAL_DRAIN_S},
                              {"--nice", LOCAL_NICE},       {"--token-file", c->token_file},
                              {"--tls-ca", c->ca},          {"--tls-cert", c->cert},
                              {"--tls-key", c->key}};
    for (size_t i = 0; i < CW_COUNT_OF(given); i++)
        if (given[i][1]) {
            argv[n++] = given[i][0];
            argv[n++] = given[i][1];
        }
    return cli_child_start(argv, &log, &x->local, &ready, err);
}

void cli_remote_end(struct cli_remote *x)
{
    if (!x->local)
        return;
    kill(x->local, SIGTERM);
    waitpid(x->local, NULL, 0);
    x->local = 0;
}

int cli_remote_open(struct cli_remote *x, struct cli_pipeline *c, const struct cli_ranks *ranks,
                    const json_t *state, struct cw_error *err)
{
    _cleanup_free_ char *token = NULL, *job = NULL;
    int r = x->trace ? cw_trace_open(x->trace, "cachew run", CW_TRACE_BYTES, &x->tracing, err) : 0;
    if (r >= 0)
        r = cli_credentials_token(&x->credentials, &token, err);
    int own = r < 0 ? r : remote_sharding_off(x->sharding, err);
    r = own < 0 ? own : remote_job_name(x, ranks, own, &job, err);
    if (r < 0)
        return r;
    struct cw_remote_options o = {
        .service = x->service,
        .job = job,
        .rank = own ? 0 : (unsigned)ranks->rank,
        .world_size = own ? 1 : (unsigned)ranks->world_size,
        .seed = c->seed,
        .epochs = ranks->epochs,
        .at_most_once = x->guarantee && strcmp(x->guarantee, "at-most-once") == 0,
        .unordered = cli_ranks_unordered(ranks),
        .credits = (unsigned)x->credits,
        .token = token,
        .cut = x->cut,
        .trace = x->tracing,
        .timeout_ns = (uint64_t)(c->wait_s * 1e9),
        .absent_ns = cw_patience_start_ns(),
        .note = cli_note,
    };
    for (enum cw_transport t = CW_TRANSPORT_AUTO; x->transport && t <= CW_TRANSPORT_TCP; t++)
        if (strcmp(x->transport, cw_transport_name(t)) == 0)
            o.transport = t;
    if (!ranks->order) /* ranges that are lost leave gaps, so at-most-once has no exact order */
        o.unordered = o.at_most_once;
    r = cli_credentials_connect(&x->credentials, &o.tls, err);
    if (r >= 0 && x->local_workers && strcmp(x->local_workers, "0") != 0)
        r = remote_start_workers(x, err);
    if (r >= 0)
        r = cw_local_remote(&c->local, &o, state, err);
    cw_tls_unref(o.tls);
    return r;
}

void cli_remote_report(const struct cw_local *local)
{
    json_auto_t *links = local->remote ? cw_remote_links(local->remote) : NULL;
    uint64_t lost = local->remote ? cw_remote_lost(local->remote) : 0;
    const json_t *link;
    size_t i;
    json_array_foreach(links, i, link)
    {
        const char *note = json_string_value(json_object_get(link, "note"));
        if (note)
            fprintf(stderr,
                    "cachew: batches of worker %" JSON_INTEGER_FORMAT
                    " are copied, because its memory can't be shared: %s\n",
                    json_integer_value(json_object_get(link, "worker")), note);
    }
    if (lost)
        fprintf(stderr,
                "cachew: %" PRIu64
                " range%s lost with workers, and their batches left out (--guarantee at-most-once)\n",
                lost, lost == 1 ? " was" : "s were");
}
