/* cachew keys init: makes a certificate authority, a certificate for daemons, one for clients, and a token.
 * With these a small cluster can listen at addresses that are not loopback. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/certificate.h"
#include "cli/print.h"
#include "cli/verb.h"

#define TOKEN_BYTES 32

enum { CA, CA_KEY, SERVER, SERVER_KEY, CLIENT, CLIENT_KEY, TOKEN, N_FILES };

static const struct {
    const char *name;
    mode_t mode;
    const char *what;
} files[N_FILES] = {
    [CA] = {"ca.pem", 0644, "certificate of the certificate authority; give it to all hosts"},
    [CA_KEY] =
        {"ca-key.pem", 0600,
         "private key of the authority, which can sign more certificates; do not copy it to the hosts"},
    [SERVER] = {"server.pem", 0644, "certificate for dispatchers and workers"},
    [SERVER_KEY] = {"server-key.pem", 0600, "private key of server.pem"},
    [CLIENT] = {"client.pem", 0644, "certificate for clients, which is needed only with --tls-mutual"},
    [CLIENT_KEY] = {"client-key.pem", 0600, "private key of client.pem"},
    [TOKEN] = {"token", 0600, "token; give it to all dispatchers, workers and clients of the service"},
};

struct keys {
    struct cli_texts hosts;
    uint64_t days;
    bool json;
    struct cw_text names;    /* the hosts as a certificate has them: DNS:NAME,IP:ADDRESS */
    char *contents[N_FILES]; /* of the files to write; owned, secret */
};

/* ---- making keys ---- */

/* Whether host consists of letters, digits, dots and hyphens, with "*." allowed before them (RFC 1123). Other
 * names are not put into a certificate. */
static bool keys_is_name(const char *host)
{
    const char *at = strncmp(host, "*.", 2) == 0 ? host + 2 : host;
    for (const char *c = at; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.' && *c != '-')
            return false;
    return *at && *at != '.' && *at != '-' && strlen(host) <= 253;
}

static int keys_add_host(struct keys *k, const char *host, struct cw_error *err)
{
    uint8_t address[16];
    bool number = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    if (!number && !keys_is_name(host))
        return cw_error_value(err, CW_E_OPTION, "host", host, "a host name or an IP address",
                              "--host \"%.300s\": expected a host name or an IP address, without a port",
                              host);
    cw_text_add(&k->names, "%s%s:%s", k->names.size ? "," : "", number ? "IP" : "DNS", host);
    return k->names.failed ? cw_error_nomem(err, 0, "names") : 0;
}

static int keys_make_token(char **ret, struct cw_error *err)
{
    uint8_t bytes[TOKEN_BYTES];
    struct cw_text t = {0};
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return cw_error_set(err, CW_E_IO, "the operating system gave no random bytes");
    for (size_t i = 0; i < sizeof(bytes); i++)
        cw_text_add(&t, "%02x", bytes[i]);
    cw_text_add(&t, "\n");
    *ret = t.failed ? NULL : t.data;
    return *ret ? 0 : cw_error_nomem(err, 0, "a token");
}

static int keys_make(struct keys *k, struct cw_error *err)
{
    struct cli_identity ca = {0}, server = {0}, client = {0};
    const struct cli_identity *made[] = {&ca, &server, &client};
    unsigned days = (unsigned)k->days;
    int r = cli_certify(CLI_AUTHORITY, "cachew authority", NULL, NULL, days, &ca, err);
    if (r >= 0)
        r = cli_certify(CLI_SERVER, "cachew server", k->names.data, &ca, days, &server, err);
    if (r >= 0)
        r = cli_certify(CLI_CLIENT, "cachew client", NULL, &ca, days, &client, err);
    for (size_t i = 0; r >= 0 && i < TOKEN; i++) /* a certificate, then its key */
        r = cli_identity_pem(made[i / 2], i % 2, &k->contents[i], err);
    if (r >= 0)
        r = keys_make_token(&k->contents[TOKEN], err);
    cli_identity_deinit(&ca);
    cli_identity_deinit(&server);
    cli_identity_deinit(&client);
    return r;
}

/* ---- writing files ---- */

static int keys_write_file(int dir, const char *dir_name, size_t i, const char *text, struct cw_error *err)
{
    int fd = openat(dir, files[i].name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, files[i].mode);
    if (fd < 0 && errno == EEXIST)
        return cw_error_value(
            err, CW_E_OPTION, "directory", dir_name, "a directory without keys",
            "%s/%s exists already, and keys are never replaced: expected a directory without keys", dir_name,
            files[i].name);
    bool written = fd >= 0 && fchmod(fd, files[i].mode) == 0 &&
                   write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0;
    int e = errno;
    if (fd >= 0 && close(fd) < 0 && written) {
        written = false;
        e = errno;
    }
    if (!written && fd >= 0)
        (void)unlinkat(dir, files[i].name, 0);
    return written ? 0 : cw_error_errno(err, CW_E_OPTION, e, "can't write %s/%s", dir_name, files[i].name);
}

/* Writes all files or none: after an error, removes the files that were written before it. */
static int keys_write(const struct keys *k, const char *name, struct cw_error *err)
{
    if (mkdir(name, 0700) < 0 && errno != EEXIST)
        return cw_error_errno(err, CW_E_OPTION, errno, "can't make directory %s", name);
    int dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    if (dir < 0)
        return cw_error_errno(err, CW_E_OPTION, errno, "can't open directory %s", name);
    size_t n = 0;
    while (n < N_FILES && (r = keys_write_file(dir, name, n, k->contents[n], err)) >= 0)
        n++;
    while (r < 0 && n > 0)
        (void)unlinkat(dir, files[--n].name, 0);
    close(dir);
    return r;
}

/* ---- printing ---- */

static int keys_print_json(const char *dir, const char *until, const struct keys *k)
{
    json_t *o = json_object();
    for (size_t i = 0; i < N_FILES; i++)
        json_object_set_new(o, files[i].name, json_sprintf("%s/%s", dir, files[i].name));
    return cli_print(json_pack("{s:s, s:s, s:s, s:o}", "directory", dir, "hosts", k->names.data, "until",
                               until, "files", o));
}

static void keys_print(const char *dir, const char *until, const struct keys *k)
{
    const char *host = k->hosts.n ? k->hosts.items[0] : "localhost";
    printf("keys and certificates for %s, valid until %s:\n", k->names.data, until);
    for (size_t i = 0; i < N_FILES; i++)
        printf("  %-16s %s\n", files[i].name, files[i].what);
    printf("\ncachew dispatcher --listen %s:5050 --tls-cert %s/server.pem --tls-key %s/server-key.pem "
           "--token-file %s/token\n",
           host, dir, dir, dir);
    printf("cachew worker --dispatcher %s:5050 --listen %s:0 --tls-ca %s/ca.pem --tls-cert %s/server.pem "
           "--tls-key %s/server-key.pem --token-file %s/token\n",
           host, host, dir, dir, dir, dir);
    printf("cachew run PIPELINE.json --service %s:5050 --job NAME --tls-ca %s/ca.pem --token-file %s/token\n",
           host, dir, dir);
    printf("\nWith --tls-mutual, clients also need --tls-cert %s/client.pem --tls-key %s/client-key.pem. The "
           "--listen of a worker must name the worker's own host, one of the hosts above.\n",
           dir, dir);
}

static int keys_init(struct keys *k, const char *name, struct cw_error *err)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "::1"};
    char until[32];
    time_t end = time(NULL) + (time_t)k->days * 86400;
    struct tm utc;
    int r = 0;
    for (size_t i = 0; r >= 0 && i < CW_COUNT_OF(always); i++)
        r = keys_add_host(k, always[i], err);
    for (size_t i = 0; r >= 0 && i < k->hosts.n; i++)
        r = keys_add_host(k, k->hosts.items[i], err);
    if (r >= 0)
        r = keys_make(k, err);
    if (r >= 0)
        r = keys_write(k, name, err);
    if (r < 0)
        return r;
    _cleanup_free_ char *dir = realpath(name, NULL);
    strftime(until, sizeof(until), "%Y-%m-%d", gmtime_r(&end, &utc));
    if (k->json)
        return keys_print_json(dir ? dir : name, until, k);
    keys_print(dir ? dir : name, until, k);
    return 0;
}

static int keys_main(int argc, char **argv, struct cw_error *err)
{
    struct keys k = {.days = 365};
    const struct cli_option options[] = {
        {"host", CLI_TEXTS, &k.hosts, "NAME",
         "make the server certificate valid for the host name or address NAME; may be given several times "
         "(localhost is always included)"},
        {"days", CLI_COUNT, &k.days, "N", "make certificates that are valid for N days (default 365)",
         .min = 1, .max = 36500},
        {"json", CLI_FLAG, &k.json, NULL, "print the result as one JSON object"},
        {0},
    };
    int r = cli_parse(&cli_verb_keys, options, argc, argv, err);
    if (r == 0 && strcmp(argv[1], "init") != 0)
        r = cw_error_value(err, CW_E_OPTION, "verb", argv[1], "init",
                           "cachew keys %.60s: expected cachew keys init DIR", argv[1]);
    if (r == 0)
        r = keys_init(&k, argv[2], err);
    for (size_t i = 0; i < N_FILES; i++) {
        if (k.contents[i]) /* erases keys and token from memory */
            explicit_bzero(k.contents[i], strlen(k.contents[i]));
        free(k.contents[i]);
    }
    cw_text_deinit(&k.names);
    cli_texts_deinit(&k.hosts);
    return r;
}

const struct cli_verb cli_verb_keys = {
    .name = "keys",
    .arguments = "init DIR ",
    .min_args = 2,
    .max_args = 2,
    .summary = "make keys, certificates and a token for a service on several hosts",
    .run = keys_main,
};
