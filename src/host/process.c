/* One host process: starting it, passing calls and answers, watching it, ending it. */
#include "host/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/machine.h"
#include "base/notice.h"
#include "base/text.h"
#include "host/closefrom.h"

#define FIRST_FD 16 /* our own descriptors get numbers from here on, above those of the host */
#define HOST_SOCKET 3
#define HOST_IN 4
#define HOST_OUT 5
#define HOST_LIFE 6
#define SLICE_MS 50            /* how often a waiting thread checks cancellation, memory and progress */
#define END_MS 500             /* between the end of a host's socket and the end of its process */
#define PROCESS_EXITING 0x4    /* PF_EXITING of the kernel, in the flags of /proc/PID/stat */
#define CALLS_BETWEEN_LOOKS 64 /* calls between two checks of the memory of a host that answers quickly */
/* Index of a request's word in which the host writes the row that it computes, plus 1. The highest bit: it
 * computes the row for the second time. */
#define PROGRESS_WORD 15
/* limit for a host to start and load a function, with its imports */
#define LOAD_NS (UINT64_C(300) * 1000000000)
#define HOSTS_MOST UINT64_C(65536)
#define MAX_REPLY ((size_t)64 << 10) /* bytes of an ERROR's text, at most */
/* bytes of output that are read before the next check of the host */
#define OUTPUT_AT_ONCE ((size_t)64 << 10)
#define LAST_WORDS ((size_t)1 << 20) /* bytes of output that are read after the host's end */

/* Frames on the socket, both ways: docs/hosts.md */
enum frame_kind { FRAME_READY = 1, FRAME_DEFINE, FRAME_CALL, FRAME_DONE, FRAME_ERROR };

struct frame {
    uint32_t kind, version;
    uint64_t id, size;
    /* number of the request, which its answer repeats. So late answers, and answers of a forked copy of the
     * host, are detected */
    uint64_t call;
};

#define VERSION 1

extern char **environ;

/* ---- starting ---- */

/* Moves a descriptor to a number that a host does not use. */
static bool fd_move_above(int *fd)
{
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_FD);
    cw_closep(fd);
    *fd = moved;
    return moved >= 0;
}

/*
 * Returns the environment of a host: ours, and variables that the user has not set. Numeric libraries start
 * no threads of their own, because hosts already run in parallel. Memory that a function frees stays in the
 * host for the next record (up to 64 MiB; blocks above 32 MiB are returned at once), which saves the kernel
 * zeroing it again each time. These thresholds are the largest that glibc's own adjustment reaches. The
 * caller frees the array, but not its strings.
 */
static char **host_environment(void)
{
    static const struct {
        const char *name;
        char *text;
    } own[] = {
        {"PYTHONUNBUFFERED", "PYTHONUNBUFFERED=1"},
        {"OMP_NUM_THREADS", "OMP_NUM_THREADS=1"},
        {"OPENBLAS_NUM_THREADS", "OPENBLAS_NUM_THREADS=1"},
        {"MKL_NUM_THREADS", "MKL_NUM_THREADS=1"},
        {"NUMEXPR_NUM_THREADS", "NUMEXPR_NUM_THREADS=1"},
        {"TOKENIZERS_PARALLELISM", "TOKENIZERS_PARALLELISM=false"},
        {"MALLOC_TRIM_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_=67108864"},
        {"MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_=33554432"},
    };

    size_t n = 0;
    while (environ[n])
        n++;
    char **all = malloc((n + CW_COUNT_OF(own) + 1) * sizeof(*all));
    if (!all)
        return NULL;
    memcpy(all, environ, n * sizeof(*all));
    for (size_t i = 0; i < CW_COUNT_OF(own); i++)
        if (!getenv(own[i].name)) /* the user's value has precedence */
            all[n++] = own[i].text;
    all[n] = NULL;
    return all;
}

static int host_spawn(const char *python, const char *program, struct cw_host *h, const int theirs[6],
                      struct cw_error *err)
{
    char *const module[] = {(char *)python, "-m", "cachew._host", NULL},
                *const file[] = {(char *)python, (char *)program, NULL},
                *const *argv = program ? file : module;
    char **env = host_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    if (!env)
        return cw_error_nomem(err, 0, "a host process");
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_init(&actions);
    /* The host is a process group of its own: Ctrl-C reaches this process only, which then ends the host's
     * group. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    int e = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    static const int numbers[] = {HOST_SOCKET, HOST_IN, HOST_OUT, HOST_LIFE, 1, 2};
    for (size_t i = 0; i < CW_COUNT_OF(numbers) && !e; i++)
        e = posix_spawn_file_actions_adddup2(&actions, theirs[i], numbers[i]);
    e = e ? e : posix_spawn_file_actions_addclosefrom_np(&actions, HOST_LIFE + 1);
    e = e ? e : posix_spawnp(&h->pid, python, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    free(env);
    if (e) {
        h->pid = 0;
        return cw_error_errno(err, CW_E_IO, e, "can't start a host process for Python functions: %s", python);
    }
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    return h->pidfd < 0
               ? cw_error_errno(err, CW_E_IO, errno,
                                "can't watch the host process %d, which runs Python functions", (int)h->pid)
               : 0;
}

static int host_shared_memory(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0) /* neither side can shrink it: memory that the other has mapped would vanish */
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    return fd;
}

int cw_host_start(const char *python, const char *program, struct cw_host **ret, struct cw_error *err)
{
    int pair[2] = {-1, -1}, output[2] = {-1, -1}, life[2] = {-1, -1};
    struct cw_host *h = calloc(1, sizeof(*h));
    if (!h)
        return cw_error_nomem(err, sizeof(*h), "a host process");
    *h = (struct cw_host){
        .pidfd = -1, .in_fd = -1, .out_fd = -1, .share = cw_memory_total() / 2 / cw_cpu_budget()};
    bool made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 &&
                pipe2(output, O_CLOEXEC) == 0 && pipe2(life, O_CLOEXEC) == 0 &&
                (h->in_fd = host_shared_memory("cachew-host-in")) >= 0 &&
                (h->out_fd = host_shared_memory("cachew-host-out")) >= 0;
    int *const all[] = {&pair[0], &pair[1], &output[0], &output[1],
                        &life[0], &life[1], &h->in_fd,  &h->out_fd};
    for (size_t i = 0; made && i < CW_COUNT_OF(all); i++)
        made = fd_move_above(all[i]);
    h->socket = pair[0];
    h->output = output[0];
    h->life = life[1];
    const int theirs[] = {pair[1], h->in_fd, h->out_fd, life[0], output[1], output[1]};
    int r = made ? host_spawn(python, program, h, theirs, err)
                 : cw_error_errno(err, CW_E_IO, errno,
                                  "can't make the file descriptors or the shared memory that a host process "
                                  "(for Python functions) needs");
    cw_closep(&pair[1]);
    cw_closep(&output[1]);
    cw_closep(&life[0]);
    (void)fcntl(h->output, F_SETFL, O_NONBLOCK);
    if (r < 0)
        cw_host_free(h);
    else
        *ret = h;
    return r;
}

/* ---- output ---- */

static void host_print_line(struct cw_host *h)
{
    cw_notice("[host %d, %s] %.*s", (int)h->pid, h->running ? h->running : "starting", (int)h->n_line,
              h->line);
    for (size_t i = 0; i < h->n_line + 1; i++) { /* the last bytes are kept for error messages */
        if (h->n_said == sizeof(h->said)) {
            memmove(h->said, h->said + sizeof(h->said) / 2, sizeof(h->said) / 2);
            h->n_said = sizeof(h->said) / 2;
        }
        h->said[h->n_said++] = i < h->n_line ? h->line[i] : ' ';
    }
    h->n_line = 0;
}

/* Passes on the host's output line by line, but at most `limit` bytes, because a host may print faster than
 * this function reads. */
static void host_forward_output(struct cw_host *h, size_t limit)
{
    char buf[4096];
    ssize_t n;
    while (limit >= sizeof(buf) && (n = read(h->output, buf, sizeof(buf))) > 0) {
        limit -= (size_t)n;
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] != '\n')
                h->line[h->n_line++] = buf[i];
            if (buf[i] == '\n' || h->n_line == sizeof(h->line))
                host_print_line(h);
        }
    }
}

/* ---- end ---- */

static void host_kill(struct cw_host *h)
{
    if (h->pid > 0) {
        (void)kill(-h->pid, SIGKILL); /* the group, with processes that the host started */
        (void)kill(h->pid, SIGKILL);
    }
    h->dead = true;
}

/* Waits for the end of the process, which is dead or about to be, and describes it in reason. Returns whether
 * SIGKILL ended it. */
static bool host_reap(struct cw_host *h, char reason[400])
{
    int status = 0, at;
    pid_t r;
    while ((r = waitpid(h->pid, &status, 0)) < 0 && errno == EINTR)
        ;
    host_forward_output(h, LAST_WORDS);
    if (h->n_line)
        host_print_line(h);
    if (r < 0)
        at = snprintf(reason, 400, "ended");
    else if (WIFSIGNALED(status))
        at = snprintf(reason, 400, "was killed by signal %d (%s)", WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
    else
        at = snprintf(reason, 400, "exited with status %d", WEXITSTATUS(status));
    if (h->n_said) {
        size_t n = CW_MIN(h->n_said, (size_t)(390 - at - 20));
        snprintf(reason + at, (size_t)(400 - at), "; its last output: %.*s", (int)n, h->said + h->n_said - n);
    }
    h->pid = 0;
    h->dead = true;
    return r >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

struct cw_host *cw_host_free(struct cw_host *h)
{
    char reason[400];
    if (!h)
        return NULL;
    if (h->pid > 0) {
        host_kill(h);
        (void)host_reap(h, reason);
    }
    if (h->in)
        munmap(h->in, h->in_size);
    if (h->out)
        munmap(h->out, h->out_size);
    int *const fds[] = {&h->pidfd, &h->socket, &h->output, &h->life, &h->in_fd, &h->out_fd};
    for (size_t i = 0; i < CW_COUNT_OF(fds); i++)
        cw_closep(fds[i]);
    free(h);
    return NULL;
}

/* ---- calls ---- */

static _Thread_local struct cw_host_calls calls;
static _Atomic uint64_t largest;    /* resident bytes of the largest host so far */
static _Atomic uint64_t all_cpu_ns; /* CPU time of all hosts */

uint64_t cw_host_cpu_ns(void)
{
    return atomic_load(&all_cpu_ns);
}

struct cw_host_calls cw_host_calls(void)
{
    return calls;
}

unsigned cw_host_most(void)
{
    uint64_t bytes = atomic_load(&largest);
    return bytes ? (unsigned)CW_MIN(CW_MAX(cw_rank_share().memory / bytes, (uint64_t)1), HOSTS_MOST)
                 : (unsigned)HOSTS_MOST;
}

/* Returns resident bytes; 0: unknown. */
static uint64_t host_resident(const struct cw_host *h)
{
    char path[64], line[128];
    unsigned long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)h->pid);
    bool known = cw_read_line(path, line, sizeof(line)) == 0 && sscanf(line, "%*u %llu", &pages) == 1;
    return known ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t host_memory_limit(const struct cw_host *h, const struct cw_host_function *f)
{
    return f->memory ? f->memory : h->share;
}

static uint64_t host_progress(const struct cw_host *h)
{
    return h->in ? __atomic_load_n((const uint64_t *)(const void *)h->in + PROGRESS_WORD, __ATOMIC_RELAXED)
                 : 0;
}

/* Kills the host if it still lives, and fills in *death. reason: why this process kills it; NULL: the host
 * ended by itself. Returns 1. */
static int host_died(struct cw_host *h, const char *reason, bool hung, struct cw_host_death *death)
{
    char end[400];
    uint64_t at = host_progress(h);
    host_kill(h);
    bool killed = host_reap(h, end);
    *death = (struct cw_host_death){
        .hung = hung, .killed = killed && !reason, .progress = at ? (at & INT64_MAX) - 1 : UINT64_MAX};
    snprintf(death->reason, sizeof(death->reason), "%s", reason ? reason : end);
    return 1;
}

/* Returns whether the kernel is ending the host's process: its descriptors are already closed, but its pidfd
 * does not report the end yet. */
static bool host_is_ending(const struct cw_host *h)
{
    char path[64], line[512];
    unsigned flags;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)h->pid);
    /* The fields after the name, which is cut to 15 bytes: state, five ids, flags. */
    return cw_read_line(path, line, sizeof(line)) == 0 &&
           sscanf(line, "%*d (%*15[^)]) %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && flags & PROCESS_EXITING;
}

/* The host closed its end of the socket. Waits for the end of its process, which may take long on a busy
 * machine; a host that lives on is killed. Returns 1. */
static int host_hung_up(struct cw_host *h, struct cw_host_death *death)
{
    struct pollfd fd = {.fd = h->pidfd, .events = POLLIN};
    int r;
    do
        r = poll(&fd, 1, END_MS);
    while ((r < 0 && errno == EINTR) || (r == 0 && host_is_ending(h)));
    return host_died(h, r > 0 ? NULL : "closed its connection to Cachew's engine", false, death);
}

/* Waiting for a host during one call. */
struct watch {
    struct cw_host *h;
    const struct cw_host_function *f; /* its timeout and memory limit apply */
    struct cw_host_death *death;
    struct cw_error *err;
    /* in ns: when the progress changed last, when the host was checked last; at: the progress word then */
    uint64_t since, looked, at;
};

/* Counts the host's CPU time until now, in all_cpu_ns, too. */
static void host_count_cpu(struct cw_host *h)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(h->pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return; /* it has ended */
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    if (ns > h->cpu_ns) {
        atomic_fetch_add(&all_cpu_ns, ns - h->cpu_ns);
        h->cpu_ns = ns;
    }
}

/* Checks time, memory and cancellation of the wait. 1: the host was killed; CW_E_INTERRUPTED: cancelled. */
static int watch_look(struct watch *w)
{
    struct cw_host *h = w->h;
    const struct cw_host_function *f = w->f;
    uint64_t now = cw_now_ns();
    char reason[400];
    if (f->cancelled && f->cancelled(f->cancel_arg)) {
        (void)host_died(h, NULL, false, w->death);
        return cw_error_set(w->err, CW_E_INTERRUPTED, "interrupted");
    }
    if (now - w->looked < (uint64_t)SLICE_MS * 1000000)
        return 0;
    host_count_cpu(h);
    uint64_t resident = host_resident(h), at = host_progress(h), limit = host_memory_limit(h, f);
    w->looked = now;
    if (at != w->at) {
        w->at = at;
        w->since = now;
    }
    if (now - w->since > f->timeout_ns) {
        snprintf(reason, sizeof(reason), "took longer than its limit timeout_s of %.3g s",
                 (double)f->timeout_ns / 1e9);
        return host_died(h, reason, true, w->death);
    }
    if (resident > limit) {
        char texts[2][32];
        snprintf(reason, sizeof(reason), "used %s of memory, more than its limit host_memory of %s",
                 cw_text_bytes((double)resident, texts[0]), cw_text_bytes((double)limit, texts[1]));
        return host_died(h, reason, false, w->death);
    }
    return 0;
}

/* Waits until the socket can be read or written (events), and checks the host meanwhile. 0: it can; 1: the
 * host died or was killed; < 0: cancelled, or an error. */
static int watch_await(struct watch *w, short events)
{
    struct cw_host *h = w->h;
    struct pollfd fds[] = {{.fd = h->socket, .events = events},
                           {.fd = h->output, .events = POLLIN},
                           {.fd = h->pidfd, .events = POLLIN}};
    for (;;) {
        if (poll(fds, CW_COUNT_OF(fds), SLICE_MS) < 0 && errno != EINTR)
            return cw_error_errno(w->err, CW_E_IO, errno, "waiting for a host process");
        if (fds[1].revents & POLLIN)
            host_forward_output(h, OUTPUT_AT_ONCE);
        else if (fds[1].revents)
            fds[1].fd = -1; /* the host closed its output */
        if (fds[0].revents & events)
            return 0;
        if (fds[2].revents)
            return host_died(h, NULL, false, w->death);
        if (fds[0].revents)
            return host_hung_up(h, w->death);
        int r = watch_look(w);
        if (r != 0)
            return r;
    }
}

/* Sends (POLLOUT) or receives (POLLIN) exactly `size` bytes. 1: the host died meanwhile. */
static int watch_transfer(struct watch *w, short events, void *data, size_t size)
{
    uint8_t *at = data;
    while (size) {
        ssize_t n = events == POLLOUT ? send(w->h->socket, at, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                      : recv(w->h->socket, at, size, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            int r = watch_await(w, events);
            if (r != 0)
                return r;
            continue;
        }
        if (n <= 0)
            return host_hung_up(w->h, w->death);
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Receives the answer to the last request. For an ERROR, *ret_text is its text, which the caller frees. 1:
 * the host died. */
static int watch_receive(struct watch *w, struct frame *ret, char **ret_text)
{
    int r = watch_transfer(w, POLLIN, ret, sizeof(*ret));
    if (r != 0)
        return r;
    if (ret->version != VERSION || ret->kind < FRAME_READY || ret->kind > FRAME_ERROR ||
        (ret->kind == FRAME_ERROR && ret->size > MAX_REPLY))
        return host_died(w->h,
                         "wrote something else than an answer to file descriptor 3, which is reserved for "
                         "answers to Cachew",
                         false, w->death);
    if (ret->kind != FRAME_READY && ret->call != w->h->n_calls)
        return host_died(w->h,
                         "answered another call than the one in progress: the function may have forked, and "
                         "both processes went on",
                         false, w->death);
    if (ret->kind != FRAME_ERROR)
        return 0;
    if (!(*ret_text = calloc(1, ret->size + 1)))
        return cw_error_nomem(w->err, ret->size, "the error of a function");
    return watch_transfer(w, POLLIN, *ret_text, ret->size);
}

/* Sends a frame, followed by the `size` bytes of spec unless spec is NULL, and receives the answer. */
static int watch_ask(struct watch *w, enum frame_kind kind, const char *spec, size_t size, struct frame *ret,
                     char **ret_text)
{
    struct cw_host *h = w->h;
    *ret = (struct frame){
        .kind = kind, .version = VERSION, .id = w->f->id, .size = size, .call = ++h->n_calls};
    if (h->in) /* no row is being computed */
        ((uint64_t *)(void *)h->in)[PROGRESS_WORD] = 0;
    w->since = w->looked = cw_now_ns();
    int r = watch_transfer(w, POLLOUT, ret, sizeof(*ret));
    if (r == 0 && spec)
        r = watch_transfer(w, POLLOUT, (char *)spec, size);
    do
        r = r != 0 ? r : watch_receive(w, ret, ret_text);
    while (r == 0 && kind == FRAME_DEFINE &&
           ret->kind == FRAME_READY); /* a new host sends READY before its first answer */
    return r;
}

int cw_host_find(const struct cw_host *h, uint64_t id)
{
    for (unsigned i = 0; i < h->n_functions; i++)
        if (h->functions[i].id == id)
            return (int)i;
    return -1;
}

int cw_host_define(struct cw_host *h, const struct cw_host_function *f, struct cw_host_death *death,
                   struct cw_error *err)
{
    _cleanup_free_ char *text = NULL;
    struct cw_host_function loading = *f;
    struct watch w = {.h = h, .f = &loading, .death = death, .err = err};
    struct frame frame;
    loading.timeout_ns = LOAD_NS;
    h->running = f->name;
    if (cw_host_find(h, f->id) >= 0)
        return 0;
    if (h->n_functions == CW_HOST_MAX_FUNCTIONS)
        return host_died(h, "has loaded too many functions", false, death);
    int r = watch_ask(&w, FRAME_DEFINE, f->spec, strlen(f->spec), &frame, &text);
    if (r != 0)
        return r;
    h->functions[h->n_functions++] = (struct cw_host_known){f->id, f->identity, text != NULL};
    return text ? cw_error_set(err, CW_E_PIPELINE, "the %s %s can't be loaded in a host process: %s", f->noun,
                               f->name, text)
                : 0;
}

/* Replaces the mapping *at of *mapped bytes by one of `size` bytes; its address may change. */
static int shared_remap(uint8_t **at, size_t *mapped, int fd, size_t size, int protection,
                        struct cw_error *err)
{
    if (*at)
        munmap(*at, *mapped);
    void *p = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    *at = p == MAP_FAILED ? NULL : p;
    *mapped = *at ? size : 0;
    return *at ? 0 : cw_error_nomem(err, size, "a call of a host process");
}

int cw_host_input(struct cw_host *h, size_t size, uint8_t **ret, struct cw_error *err)
{
    int r = 0;
    if (size > h->in_size) {
        size_t grown = CW_ALIGN_UP(CW_MAX(size, h->in_size * 2), (size_t)1 << 16);
        if (ftruncate(h->in_fd, (off_t)grown) < 0)
            return cw_error_errno(err, CW_E_MEMORY, errno, "shared memory of %zu bytes for a host process",
                                  grown);
        r = shared_remap(&h->in, &h->in_size, h->in_fd, grown, PROT_READ | PROT_WRITE, err);
    }
    *ret = h->in;
    return r;
}

/* Maps the whole shared memory of answers, which must have at least `size` bytes. 1: it has fewer, and the
 * host was ended. */
static int host_map_output(struct cw_host *h, size_t size, struct cw_host_death *death, struct cw_error *err)
{
    off_t end = lseek(h->out_fd, 0, SEEK_END);
    if (end < 0 || (size_t)end < size)
        return host_died(h, "announced an answer that is larger than its shared memory", false, death);
    if (size <= h->out_size)
        return 0;
    return shared_remap(&h->out, &h->out_size, h->out_fd, (size_t)end, PROT_READ, err);
}

int cw_host_call(struct cw_host *h, const struct cw_host_function *f, size_t size, const uint8_t **ret,
                 size_t *ret_size, struct cw_host_death *death, struct cw_error *err)
{
    _cleanup_free_ char *text = NULL;
    struct watch w = {.h = h, .f = f, .death = death, .err = err};
    struct frame frame;
    host_count_cpu(h);
    uint64_t start_ns = cw_now_ns(), start_cpu_ns = h->cpu_ns;
    int r = watch_ask(&w, FRAME_CALL, NULL, size, &frame, &text);
    host_count_cpu(h);
    calls.wall_ns[f->together] += cw_now_ns() - start_ns;
    calls.cpu_ns[f->together] += h->cpu_ns - start_cpu_ns;
    host_forward_output(h,
                        OUTPUT_AT_ONCE); /* the output of the call is passed on before its answer is used */
    if (r == 0 && text)
        r = cw_error_set(err, CW_E_BUG, "the host process of %s failed: %s", f->name, text);
    else if (r == 0 && (frame.kind != FRAME_DONE || frame.id != f->id))
        r = host_died(h,
                      "wrote something else than an answer to file descriptor 3, which is reserved for "
                      "answers to Cachew",
                      false, death);
    if (r == 0)
        r = host_map_output(h, frame.size, death, err);
    if (r < 0)
        host_kill(h); /* its state is unknown */
    if (r != 0)
        return r;
    *ret = h->out;
    *ret_size = frame.size;
    if (h->n_calls % CALLS_BETWEEN_LOOKS == 0 || !h->looked) {
        uint64_t resident = host_resident(h);
        h->looked = true;
        if (resident > atomic_load(&largest))
            atomic_store(&largest, resident);
        if (resident > host_memory_limit(h, f))
            host_kill(h); /* it has too much memory: the answer is used, and the next call gets a new host */
    }
    return 0;
}
