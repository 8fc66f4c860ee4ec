/* TLS: round trips, and everybody who is to be sent away: wrong, expired or missing certificates, peers
 * without TLS. */
#include "net_test.h"

#include <openssl/pem.h>

#include "net/openssl.h"
#include "net/tls.h"

/* ---- certificates of our own ---- */

struct identity {
    EVP_PKEY *key;
    X509 *certificate;
};
static struct identity authority, stranger;
static char pem_directory[64];

static const char *pem(const char *name)
{
    static char paths[16][128];
    static unsigned next;
    char *path = paths[next++ % CW_COUNT_OF(paths)];
    snprintf(path, sizeof(paths[0]), "%s/%s", pem_directory, name);
    return path;
}

static void extend(X509 *c, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, c, c, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(e);
    X509_add_ext(c, e, -1);
    X509_EXTENSION_free(e);
}

/* Valid from..to seconds from now; by NULL: by itself, an authority. Written to NAME.crt and NAME.key. */
static struct identity certify(const char *name, const struct identity *by, const char *alternative,
                               long from, long to)
{
    static long serial;
    struct identity i = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
    X509 *c = i.certificate;
    X509_set_version(c, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(c), from);
    X509_gmtime_adj(X509_getm_notAfter(c), to);
    X509_set_pubkey(c, i.key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                               -1, 0);
    X509_set_issuer_name(c, X509_get_subject_name(by ? by->certificate : c));
    extend(c, NID_basic_constraints, by ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (alternative)
        extend(c, NID_subject_alt_name, alternative);
    assert_true(X509_sign(c, by ? by->key : i.key, EVP_sha256()) > 0);
    char file[50];
    snprintf(file, sizeof(file), "%s.crt", name);
    FILE *f = fopen(pem(file), "we");
    PEM_write_X509(f, c);
    fclose(f);
    snprintf(file, sizeof(file), "%s.key", name);
    f = fopen(pem(file), "we");
    PEM_write_PrivateKey(f, i.key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
    return i;
}

static void identity_deinit(struct identity *i)
{
    EVP_PKEY_free(i->key);
    X509_free(i->certificate);
}

static const char *const names[] = {"authority", "stranger", "good",   "expired",
                                    "future",    "other",    "client", "foreign"};
#define DAY 86400L

static int make_certificates(void **state)
{
    (void)state;
    snprintf(pem_directory, sizeof(pem_directory), "/tmp/cachew-test-tls-XXXXXX");
    if (!mkdtemp(pem_directory))
        return -1;
    authority = certify("authority", NULL, NULL, -DAY, DAY);
    stranger = certify("stranger", NULL, NULL, -DAY, DAY);
    struct identity others[] = {
        certify("good", &authority, "DNS:localhost,IP:127.0.0.1,IP:::1", -DAY, DAY),
        certify("expired", &authority, "DNS:localhost,IP:127.0.0.1", -2 * DAY, -DAY),
        certify("future", &authority, "DNS:localhost,IP:127.0.0.1", DAY, 2 * DAY),
        certify("other", &authority, "DNS:example.org,IP:10.0.0.1", -DAY, DAY),
        certify("client", &authority, NULL, -DAY, DAY),
        certify("foreign", &stranger, "DNS:localhost,IP:127.0.0.1", -DAY, DAY),
    };
    for (size_t i = 0; i < CW_COUNT_OF(others); i++)
        identity_deinit(&others[i]);
    return 0;
}

static int remove_certificates(void **state)
{
    (void)state;
    for (size_t i = 0; i < CW_COUNT_OF(names); i++) {
        char file[50];
        snprintf(file, sizeof(file), "%s.crt", names[i]);
        unlink(pem(file));
        snprintf(file, sizeof(file), "%s.key", names[i]);
        unlink(pem(file));
    }
    identity_deinit(&authority);
    identity_deinit(&stranger);
    return rmdir(pem_directory);
}

static struct cw_tls *tls(const char *name, const char *by, bool is_listening)
{
    char certificate[100] = "", key[100] = "";
    struct cw_error err = {0};
    struct cw_tls *t = NULL;
    if (name) {
        snprintf(certificate, sizeof(certificate), "%s/%s.crt", pem_directory, name);
        snprintf(key, sizeof(key), "%s/%s.key", pem_directory, name);
    }
    const struct cw_tls_files files = {
        .certificate = name ? certificate : NULL, .key = name ? key : NULL, .authority = by};
    if (cw_tls_new(&files, is_listening, &t, &err) < 0)
        fail_msg("%s", err.message);
    return t;
}

/* ---- files ---- */

static void test_files(void **state)
{
    (void)state;
    const char *const crt = pem("good.crt"), *const key = pem("good.key"), *const other = pem("other.key"),
                      *const absent = pem("absent"), *const ca = pem("authority.crt");

    const struct {
        struct cw_tls_files files;
        bool listening;
        const char *reason, *file;
    } cases[] = {
        {{NULL, NULL, NULL}, true, "both", ""},
        {{crt, NULL, NULL}, true, "both", ""},
        {{NULL, key, ca}, false, "both", ""},
        {{absent, key, NULL}, true, "No such file", absent},
        {{crt, absent, NULL}, true, "No such file", absent},
        {{crt, key, absent}, true, "No such file", absent},
        {{key, key, NULL}, true, "no start line", key},
        {{crt, crt, NULL}, true, "", crt},
        {{crt, other, NULL}, true, "key values mismatch", other},
        {{NULL, NULL, key}, false, "", key},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_tls *t = NULL;
        struct cw_error err = {0};
        assert_int_equal(cw_tls_new(&cases[i].files, cases[i].listening, &t, &err), CW_E_OPTION);
        assert_null(t);
        assert_string_equal(err.file, cases[i].file);
        if (!strstr(err.message, cases[i].reason))
            fail_msg("\"%s\", expected \"%s\"", err.message, cases[i].reason);
    }
}

/* ---- round trips ---- */

static bool echo_came(void)
{
    return ours.messages && ours.released;
}

static void tls_round_trips(const char *at, const char *to, bool mutual)
{
    static uint8_t data[5000000];
    struct cw_conn_options o = options();
    struct cw_tls *server = tls("good", mutual ? pem("authority.crt") : NULL, true),
                  *client = tls(mutual ? "client" : NULL, pem("authority.crt"), false);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 + (i >> 9));
    o.tls = server;
    struct cw_listener *l = listen_at(at, &o);
    o.tls = client;
    char address[100];
    snprintf(address, sizeof(address), "%s%s", to, strrchr(cw_listener_address(l), ':'));
    connect_to(address, &o, &ours);
    cw_tls_unref(server);
    cw_tls_unref(client);
    run_until(both_open);
    cw_listener_free(l);
    theirs.echo = true;

    static const struct {
        size_t size, pieces;
    } cases[] = {{0, 0},       {1, 1},       {16000, 3},     {16384, 1}, {16385, 2}, {(size_t)64 << 10, 1000},
                 {5000000, 1}, {5000000, 7}, {5000000, 1024}};

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct iovec pieces[1024];
        size_t n = cases[i].pieces, size = cases[i].size;
        for (size_t k = 0; k < n; k++)
            pieces[k] = (struct iovec){.iov_base = data + size * k / n,
                                       .iov_len = size * (k + 1) / n - size * k / n};
        ours.messages = ours.released = 0;
        assert_int_equal(send_query(&ours, "secretly", pieces, n), 0);
        run_until(echo_came);
        assert_int_equal(ours.size, size);
        if (size)
            assert_memory_equal(ours.payload, data, size);
    }
    struct cw_error why = {0};
    cw_error_set(&why, CW_E_DATA, "that is all");
    const struct iovec piece = {.iov_base = data, .iov_len = sizeof(data)};
    theirs.echo = false;
    theirs.messages = 0;
    assert_int_equal(send_query(&ours, "last words", &piece, 1), 0);
    cw_conn_close(ours.c, &why);
    run_until(both_closed);
    assert_int_equal(theirs.messages, 1);
    assert_int_equal(theirs.size, sizeof(data));
    assert_int_equal(theirs.why.status, CW_E_DATA);
    assert_int_equal(ours.why.status, 0);
}

static void test_name(void **state)
{
    (void)state;
    tls_round_trips("127.0.0.1:0", "localhost", false);
}

static void test_number(void **state)
{
    (void)state;
    tls_round_trips("127.0.0.1:0", "127.0.0.1", false);
}

static void test_mutual(void **state)
{
    (void)state;
    tls_round_trips("127.0.0.1:0", "127.0.0.1", true);
}

static unsigned n_came;

static int count_message(struct side *s, const Cachew__Envelope *m, size_t size, struct cw_error *err)
{
    (void)s, (void)m, (void)size, (void)err;
    n_came++;
    return 0;
}

static bool many_came(void)
{
    return n_came == 20000;
}

/* Many small ones both ways at once: records are shared, and what TLS holds back is not forgotten. */
static void test_many(void **state)
{
    (void)state;
    static uint8_t data[3000];
    struct cw_conn_options o = options();
    struct cw_tls *server = tls("good", NULL, true), *client = tls(NULL, pem("authority.crt"), false);
    o.tls = server;
    struct cw_listener *l = listen_at("127.0.0.1:0", &o);
    o.tls = client;
    connect_to(cw_listener_address(l), &o, &ours);
    run_until(both_open);
    cw_listener_free(l);
    cw_tls_unref(server);
    cw_tls_unref(client);
    ours.on_message = theirs.on_message = count_message;
    n_came = 0;
    for (unsigned i = 0; i < 10000; i++) {
        const struct iovec piece = {.iov_base = data, .iov_len = i * 37 % sizeof(data)};
        assert_int_equal(send_query(&ours, "x", &piece, 1), 0);
        assert_int_equal(send_query(&theirs, "y", &piece, 1), 0);
    }
    run_until(many_came);
}

/* ---- who is sent away ---- */

static bool ours_closed_and_refused(void)
{
    return ours.closed && refusals;
}

static bool refused_or_open(void)
{
    return ours_closed_and_refused() || both_open();
}

static void assert_says(const char *message, const char *expected)
{
    if (!strstr(message, expected))
        fail_msg("\"%s\", expected \"%s\"", message, expected);
}

static void test_refusals(void **state)
{
    (void)state;
    const char *const ca = pem("authority.crt");

    /* whom we connect to; the listener's certificate, whose certificates it wants; ours, whose we want; what
     * we say; what it says */
    const struct {
        const char *to, *server, *server_ca, *client, *client_ca, *ours, *theirs;
    } cases[] = {
        {"127.0.0.1", "expired", NULL, NULL, ca, "certificate has expired", "certificate expired"},
        {"127.0.0.1", "future", NULL, NULL, ca, "not yet valid", "alert"},
        {"127.0.0.1", "other", NULL, NULL, ca, "the other side's certificate is not for \"127.0.0.1\"",
         "alert"},
        {"localhost", "other", NULL, NULL, ca, "the other side's certificate is not for \"localhost\"",
         "alert"},
        {"127.0.0.1", "foreign", NULL, NULL, ca, "unable to get local issuer certificate", "unknown ca"},
        {"127.0.0.1", "good", NULL, NULL, pem("stranger.crt"), "", "unknown ca"},
        {"127.0.0.1", "good", ca, NULL, ca, "certificate required", "peer did not return a certificate"},
        {"127.0.0.1", "good", ca, "foreign", ca, "unknown ca", "unable to get"},
        {"127.0.0.1", "good", ca, "expired", ca, "certificate expired", "certificate has expired"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_conn_options o = options();
        struct cw_tls *server = tls(cases[i].server, cases[i].server_ca, true),
                      *client = tls(cases[i].client, cases[i].client_ca, false);
        ours = theirs = (struct side){0};
        refusals = 0;
        o.tls = server;
        struct cw_listener *l = listen_at("127.0.0.1:0", &o);
        o.tls = client;
        char address[100];
        snprintf(address, sizeof(address), "%s%s", cases[i].to, strrchr(cw_listener_address(l), ':'));
        connect_to(address, &o, &ours);
        run_until(refused_or_open);
        assert_int_equal(ours.opened + theirs.opened, 0);
        assert_int_equal(ours.why.status, CW_E_SERVICE);
        assert_says(ours.why.message, cases[i].ours);
        assert_says(refusal.message, cases[i].theirs);
        cw_listener_free(l);
        cw_tls_unref(server);
        cw_tls_unref(client);
    }
}

static void test_one_without(void **state)
{
    (void)state;
    for (int listener_has = 0; listener_has < 2; listener_has++) {
        struct cw_conn_options with = options(), without = options();
        ours = (struct side){0};
        refusals = 0;
        with.tls = listener_has ? tls("good", NULL, true) : tls(NULL, pem("authority.crt"), false);
        struct cw_listener *l = listen_at("127.0.0.1:0", listener_has ? &with : &without);
        connect_to(cw_listener_address(l), listener_has ? &without : &with, &ours);
        run_until(ours_closed_and_refused);
        assert_says(listener_has ? ours.why.message : refusal.message,
                    listener_has ? "the service expects TLS"
                                 : "the other side speaks TLS, but this side does not");
        assert_says(listener_has ? refusal.message : ours.why.message,
                    listener_has ? "the service expects TLS" : "does the other side speak TLS?");
        if (listener_has)
            assert_string_equal(ours.why.attribute, "tls"); /* who reads that does not come again */
        cw_listener_free(l);
        cw_tls_unref(with.tls);
    }
}

/* Greetings of others, and one that stops in the middle of the handshake. */
static void test_greetings(void **state)
{
    (void)state;
    struct cw_conn_options o = options();
    o.tls = tls("good", NULL, true);

    static const struct {
        const char *text;
        size_t size;
        const char *reason;
    } cases[] = {
        {"GET / HTTP/1.0\r\n\r\n", 18, "does the other side speak TLS?"},
        {"CWF1............................", 32, "the sizes in a frame's header"},
        {"\x16\x03\x01\x02\x00\x01", 6, "no handshake for 0.5 s"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        refusals = 0;
        o.timeout_ns = i == 2 ? 500000000 : WAIT_NS;
        struct cw_listener *l = listen_at("127.0.0.1:0", &o);
        int fd = raw_connect(cw_listener_address(l));
        raw_send(fd, cases[i].text, cases[i].size);
        run_until(somebody_refused);
        assert_says(refusal.message, cases[i].reason);
        close(fd);
        cw_listener_free(l);
    }
    cw_tls_unref(o.tls);
}

int main(void)
{
#define WITH_LOOP(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files), WITH_LOOP(test_name),      WITH_LOOP(test_number),
        WITH_LOOP(test_mutual),       WITH_LOOP(test_many),      WITH_LOOP(test_refusals),
        WITH_LOOP(test_one_without),  WITH_LOOP(test_greetings),
    };
    return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
