/* cachew doctor: checks what this machine offers, and says what to fix. Each check is a function that fills
 * in one struct check, which is printed as one line. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>
#include <zlib.h>

#include "base/crash.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/text.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "session/local.h"
#include "objects/object.h"
#include "ops/kernels/isa.h"

/* Open files that a daemon needs for its sockets and some hundred shards (files of a data set). */
#define ENOUGH_FILES 1024
/* Bytes of memory that suffice for a batch of images and their decoding. */
#define ENOUGH_MEMORY ((uint64_t)512 << 20)

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

enum verdict { OK, WARNING, FAILED };

struct check {
    const char *name;
    enum verdict verdict;
    char found[4400], todo[4400]; /* what was found; what the user should do, or "" */
};

/* Sets the verdict, what the user should do (NULL: nothing), and what was found. */
static void check_set(struct check *c, enum verdict verdict, const char *todo, const char *format, ...)
    _printf_(4, 5);

static void check_set(struct check *c, enum verdict verdict, const char *todo, const char *format, ...)
{
    CW_FORMAT(c->found, format);
    c->verdict = verdict;
    snprintf(c->todo, sizeof(c->todo), "%s", todo ? todo : "");
}

static void check_cpu(struct check *c)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned budget = cw_cpu_budget();
    check_set(
        c, OK,
        (long)budget < online
            ? "the cgroup or the affinity mask excludes some CPUs; change it if Cachew should use all CPUs"
            : NULL,
        "this process may use %u of %ld CPUs (by affinity mask and cgroup)", budget, online);
}

static void check_features(struct check *c)
{
    _cleanup_(cw_text_deinit) struct cw_text found = {0};
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();

    const struct {
        const char *name;
        int there;
    } features[] = {
        {"sse4.2", __builtin_cpu_supports("sse4.2")},   {"avx", __builtin_cpu_supports("avx")},
        {"avx2", __builtin_cpu_supports("avx2")},       {"fma", __builtin_cpu_supports("fma")},
        {"avx512f", __builtin_cpu_supports("avx512f")}, {"avx512bw", __builtin_cpu_supports("avx512bw")},
    };

    for (size_t i = 0; i < CW_COUNT_OF(features); i++)
        if (features[i].there)
            cw_text_add(&found, "%s%s", found.size ? " " : "", features[i].name);
#elif defined(__aarch64__)
    cw_text_add(&found, "neon");
#endif
    check_set(c, OK, NULL, "%s",
              found.data ? found.data : "no vector instructions that the image kernels can use");
}

static void check_kernels(struct check *c)
{
    const struct cw_pixel_isa *isa = cw_pixel_isa();
    const char *want = getenv("CACHEW_SIMD");
    bool portable = isa == &cw_pixel_isa_c;
    check_set(
        c, portable ? WARNING : OK,
        !portable ? NULL
        : want
            ? "unset CACHEW_SIMD: with its present value image operators run in portable C, which is slower"
            : "image operators run in portable C, which is slower; results are the same",
        want ? "%s (CACHEW_SIMD=%.40s)" : "%s", isa->name, want);
}

static void check_memory(struct check *c)
{
    uint64_t total = cw_memory_total();
    bool enough = total >= ENOUGH_MEMORY;
    check_set(c, enough ? OK : WARNING,
              enough ? NULL
                     : "give the cgroup or the machine more memory, or run with small batches and a low "
                       "limit --memory",
              "%.1f GB in the cgroup or the machine; the default of --memory is half of that",
              (double)total * 1e-9);
}

static void check_memfd(struct check *c)
{
    int fd = memfd_create("cachew-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    void *p = MAP_FAILED;
    if (fd < 0 || ftruncate(fd, 1 << 16) < 0)
        check_set(
            c, WARNING,
            "allow memfd_create (needs Linux 3.17; a seccomp profile may forbid it): without it workers copy "
            "batches to clients instead of sharing memory",
            "%s", strerror(errno));
    else if (fcntl(fd, F_ADD_SEALS, seals) < 0 || ftruncate(fd, 1 << 17) == 0)
        check_set(c, WARNING,
                  "allow fcntl F_ADD_SEALS, which a sandbox may forbid: without it workers copy batches to "
                  "clients instead of sharing memory",
                  "a memfd was made, but can't be sealed");
    else if ((p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        check_set(c, WARNING,
                  "allow shared, writable mappings of sealed memfds: without them workers copy batches to "
                  "clients instead of sharing memory",
                  "a memfd was made and sealed, but can't be mapped: %s", strerror(errno));
    else
        check_set(c, OK, NULL, "a memfd was made, sealed and mapped");
    if (p != MAP_FAILED)
        munmap(p, 1 << 16);
    if (fd >= 0)
        close(fd);
}

static void check_files(struct check *c)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0) {
        check_set(c, WARNING, NULL, "%s", strerror(errno));
        return;
    }
    bool enough = l.rlim_cur >= ENOUGH_FILES;
    check_set(c, enough ? OK : WARNING,
              enough ? NULL : "raise the limit of open files: ulimit -n " TEXT(ENOUGH_FILES),
              "at most %llu open files are allowed, and the limit may be raised to %llu",
              (unsigned long long)l.rlim_cur, (unsigned long long)l.rlim_max);
}

/* Makes a temporary file in dir, open for reading and writing and already unlinked. Returns its descriptor,
 * or -1 with errno. */
static int check_make_file(const char *dir)
{
    char path[4200];
    snprintf(path, sizeof(path), "%.4100s/.cachew-doctor-XXXXXX", dir);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Shortens the path until it exists: to itself, or to its nearest existing parent. */
static void check_existing_parent(char *path)
{
    struct stat s;
    while (*path && stat(path, &s) < 0) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) {
            path[0] = slash ? '/' : '.';
            path[1] = '\0';
            return;
        }
        *slash = '\0';
    }
}

static void check_index_dir(struct check *c)
{
    _cleanup_free_ char *dir = cw_index_dir(), *parent = dir ? strdup(dir) : NULL;
    if (!dir || !parent) {
        check_set(c, WARNING,
                  "set CACHEW_INDEX_DIR or HOME; without an index directory each run indexes its data again",
                  "none: neither CACHEW_INDEX_DIR nor HOME is set");
        return;
    }
    check_existing_parent(parent);
    bool there = strcmp(parent, dir) == 0;
    int fd = check_make_file(parent);
    if (fd < 0) {
        check_set(
            c, WARNING,
            "set CACHEW_INDEX_DIR to a directory that can be written to; without one each run indexes its "
            "data again",
            "%s: %s", parent, strerror(errno));
        return;
    }
    close(fd);
    char *slash = strrchr(dir, '/');
    check_set(c, OK, NULL, there ? "%s can be written to" : "%s does not exist yet, but can be made", dir);
    if (!there && slash && (size_t)(slash - dir) > strlen(parent)) {
        c->verdict = WARNING; /* a run makes this directory, but not its missing parents */
        snprintf(c->todo, sizeof(c->todo), "mkdir -p %.*s", (int)(slash - dir), dir);
    }
}

static void check_nowait(struct check *c)
{
    _cleanup_free_ char *dir = cw_index_dir();
    if (dir)
        check_existing_parent(dir);
    const char *at = dir ? dir : ".";
    char byte = 'x';
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    int fd = check_make_file(at);
    if (fd < 0 || pwrite(fd, &byte, 1, 0) != 1)
        check_set(c, WARNING, NULL, "not tested: can't write to %s", at);
    else if (preadv2(fd, &v, 1, 0, RWF_NOWAIT) == 1)
        check_set(c, OK, NULL, "works in %s", at);
    else
        check_set(c, WARNING,
                  "this file system has no reads that fail instead of waiting (RWF_NOWAIT): every read goes "
                  "through a read thread, which is a little slower; ext4, xfs and btrfs have them",
                  "%s: %s", at, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void check_system(struct check *c)
{
    struct utsname u = {.sysname = "?"};
    bool known = uname(&u) == 0;
    check_set(c, known ? OK : WARNING, NULL, "%s %s %s", u.sysname, u.release, u.machine);
}

static void check_libraries(struct check *c)
{
    int webp = WebPGetDecoderVersion();
    unsigned xxh = XXH_versionNumber();
#ifdef LIBJPEG_TURBO_VERSION
    const char *jpeg = "libjpeg-turbo " TEXT(LIBJPEG_TURBO_VERSION), *todo = NULL;
#else
    const char *jpeg = "libjpeg " TEXT(JPEG_LIB_VERSION),
               *todo = "build Cachew with libjpeg-turbo: other JPEG libraries decode to slightly different "
                       "pixels, and are slower";
#endif
    check_set(c, todo ? WARNING : OK, todo,
              "cachew %s; jansson %s, xxhash %u.%u.%u, zlib %s, libpng %s, libwebp %d.%d.%d, %s",
              CACHEW_VERSION, jansson_version_str(), xxh / 10000, xxh / 100 % 100, xxh % 100, zlibVersion(),
              png_get_libpng_ver(NULL), webp >> 16, webp >> 8 & 255, webp & 255, jpeg);
}

static void check_objects(struct check *c)
{
    const char *library = cw_object_library();
    check_set(c, library ? OK : WARNING,
              library ? NULL : "to read addresses (s3://, https:// ...), build Cachew with libcurl and expat",
              "%s", library ? library : "this build reads local files only");
}

static const struct {
    const char *name;
    void (*check)(struct check *);
} checks[] = {
    {"system", check_system},
    {"cpus", check_cpu},
    {"cpu features", check_features},
    {"kernels", check_kernels},
    {"memory", check_memory},
    {"memfd", check_memfd},
    {"open files", check_files},
    {"index directory", check_index_dir},
    {"reads without waiting", check_nowait},
    {"libraries", check_libraries},
    {"files of servers", check_objects},
};

static int doctor_list_crash_points(bool json)
{
    size_t n;
    const struct cw_crash_point *p = cw_crash_points(&n);
    json_auto_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s}", "name", p[i].name, "role", p[i].role, "phase", p[i].phase));
        if (!json)
            printf("%-24s %-12s %s\n", p[i].name, p[i].role, p[i].phase);
    }
    if (!n && !json)
        printf("this build of Cachew has no crash points: configure the build with -Dcrash_points=true\n");
    return json ? cli_print(json_pack("{s:O}", "crash_points", list)) : 0;
}

static int doctor_main(int argc, char **argv, struct cw_error *err)
{
    static const char *const verdicts[] = {"ok", "warning", "failed"};
    bool json = false, points = false;
    int failed = 0, warnings = 0;
    const struct cli_option options[] = {
        {"crash-points", CLI_FLAG, &points, NULL,
         "list the points at which a test build of Cachew can be made to crash (CACHEW_CRASH=NAME:N: at "
         "point NAME, the N-th time)"},
        {"json", CLI_FLAG, &json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_doctor, options, argc, argv, err);
    if (r != 0 || points)
        return r != 0 ? r : doctor_list_crash_points(json);
    json_auto_t *list = json_array();
    for (size_t i = 0; i < CW_COUNT_OF(checks); i++) {
        struct check c = {.name = checks[i].name};
        checks[i].check(&c);
        failed += c.verdict == FAILED;
        warnings += c.verdict == WARNING;
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s*}", "check", c.name, "verdict",
                                              verdicts[c.verdict], "found", c.found, "todo",
                                              *c.todo ? c.todo : NULL));
        if (!json)
            printf("%-8s %-22s %s\n", verdicts[c.verdict], c.name, c.found);
        if (!json && *c.todo)
            printf("%-8s %-22s -> %s\n", "", "", c.todo);
    }
    if (json)
        r = cli_print(json_pack("{s:s, s:b, s:i, s:i, s:O}", "version", CACHEW_VERSION, "ok", failed == 0,
                                "failed", failed, "warnings", warnings, "checks", list));
    return failed ? 1 : r;
}

const struct cli_verb cli_verb_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "check what this machine offers (CPUs, memory, libraries ...) and say what to fix",
    .run = doctor_main,
};
