/* The first two messages of a connection: Hello, and Welcome or Failure. Versions, capabilities, the token.
 */
#include <string.h>

#include <openssl/crypto.h>

#include "base/patience.h"
#include "net/conn_impl.h"

#define MAX_CAPABILITIES 63 /* of the owner: with CW_PACK_CAPABILITY, 64 bits in cw_conn.common */

/* ---- our Hello ---- */

void cw_hello_init(Cachew__Hello *ret, Cachew__Role role, const char *name, const uint8_t incarnation[16],
                   const char *host)
{
    /* protobuf-c's fields are char *, but packing only reads them. */
    *ret = (Cachew__Hello){CW_MESSAGE(hello),
                           .role = role,
                           .name = (char *)(uintptr_t)name,
                           .software = (char *)(uintptr_t)"cachew " CACHEW_VERSION,
                           .host = (char *)(uintptr_t)host,
                           .incarnation = {.data = (uint8_t *)(uintptr_t)incarnation, .len = 16}};
}

static Cachew__Hello *hello_copy(const Cachew__Hello *hello, const char *token, bool pack)
{
    static char pack_capability[] = CW_PACK_CAPABILITY;
    Cachew__Hello h = *hello;
    char *capabilities[MAX_CAPABILITIES + 1];
    for (size_t i = 0; i < hello->n_capabilities; i++)
        capabilities[i] = hello->capabilities[i];
    capabilities[hello->n_capabilities] = pack_capability;
    h.capabilities = capabilities;
    h.n_capabilities += pack;
    h.version_min = CW_PROTOCOL_MIN;
    h.version_max = CW_PROTOCOL_MAX;
    h.token = (char *)(uintptr_t)(token ? token : "");
    size_t size = cachew__hello__get_packed_size(&h);
    _cleanup_free_ uint8_t *bytes = malloc(CW_MAX(size, 1));
    if (!bytes)
        return NULL;
    cachew__hello__pack(&h, bytes);
    return cachew__hello__unpack(NULL, size, bytes);
}

int cw_conn_setup_new(const struct cw_conn_options *o, bool connecting, struct cw_conn_setup **ret,
                      struct cw_error *err)
{
    if (o->hello->n_capabilities > MAX_CAPABILITIES)
        return cw_error_set(err, CW_E_BUG,
                            "a handshake has %zu capabilities, expected at most %d: this is a defect of "
                            "Cachew, please report it",
                            o->hello->n_capabilities, MAX_CAPABILITIES);
    struct cw_conn_setup *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a connection");
    *s = (struct cw_conn_setup){
        .refs = 1,
        .limits = o->limits,
        .timeout_ms = CW_MAX((o->timeout_ns ? o->timeout_ns : cw_patience_silence_ns()) / 1000000, 1),
        .tls = o->tls ? cw_tls_ref(o->tls) : NULL,
        .pack = o->pack,
        .hello = hello_copy(o->hello, connecting ? o->token : NULL, o->pack)};
    if (o->token && !connecting)
        s->token = strdup(o->token);
    if (!s->hello || (o->token && !connecting && !s->token)) {
        cw_conn_setup_unref(s);
        return cw_error_nomem(err, 0, "a connection");
    }
    *ret = s;
    return 0;
}

struct cw_conn_setup *cw_conn_setup_ref(struct cw_conn_setup *s)
{
    s->refs++;
    return s;
}

/* Overwrites a token before its memory is freed. */
static void token_wipe(char *token)
{
    if (token)
        explicit_bzero(token, strlen(token));
}

struct cw_conn_setup *cw_conn_setup_unref(struct cw_conn_setup *s)
{
    if (!s || --s->refs)
        return NULL;
    if (s->hello) {
        if (s->hello->token != protobuf_c_empty_string)
            token_wipe(s->hello->token);
        cachew__hello__free_unpacked(s->hello, NULL);
    }
    token_wipe(s->token);
    free(s->token);
    cw_tls_unref(s->tls);
    free(s);
    return NULL;
}

int cw_conn_send_hello(struct cw_conn *c, struct cw_error *err)
{
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = CW_CONN_OWN_ID | ++c->last_id,
                          .of_case = CACHEW__ENVELOPE__OF_HELLO, .hello = c->setup->hello};
    return cw_conn_queue_message(c, &e, err);
}

/* ---- what the other side says ---- */

static uint64_t hello_common_capabilities(const Cachew__Hello *ours, char *const *theirs, size_t n)
{
    uint64_t common = 0;
    for (size_t i = 0; i < ours->n_capabilities; i++)
        for (size_t j = 0; j < n; j++)
            if (strcmp(ours->capabilities[i], theirs[j]) == 0)
                common |= UINT64_C(1) << i;
    return common;
}

static int hello_check(struct cw_conn *c, const Cachew__Hello *h, struct cw_error *err)
{
    if (h->version_min > CW_PROTOCOL_MAX || h->version_max < CW_PROTOCOL_MIN ||
        h->version_min > h->version_max) {
        cw_error_attribute(err, "version", "", ""); /* a peer that gets this does not try again */
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side speaks versions %u to %u of Cachew's protocol, this side %d to "
                            "%d (%s): use the same version of Cachew on both sides",
                            h->version_min, h->version_max, CW_PROTOCOL_MIN, CW_PROTOCOL_MAX,
                            "cachew " CACHEW_VERSION);
    }
    const char *token = c->setup->token;
    /* The comparison takes the same time for all tokens of the right length, so that timing reveals nothing.
     */
    if (token && (strlen(h->token) != strlen(token) || CRYPTO_memcmp(h->token, token, strlen(token)) != 0))
        return cw_error_value(
            err, CW_E_SERVICE, "token", "", "",
            h->token[0] ? "the token is wrong: the service expects another one (--token-file, $CACHEW_TOKEN, "
                          "token= in Python)"
                        : "the service expects a token (--token-file, $CACHEW_TOKEN, token= in Python)");
    return 0;
}

static int shake_send_welcome(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    const Cachew__Hello *ours = c->setup->hello;
    char *both[64];
    Cachew__Welcome w = {CW_MESSAGE(welcome),
                         .version = CW_MIN(m->hello->version_max, CW_PROTOCOL_MAX),
                         .capabilities = both,
                         .role = ours->role,
                         .name = ours->name,
                         .software = ours->software,
                         .incarnation = ours->incarnation,
                         .host = ours->host};
    for (size_t i = 0; i < ours->n_capabilities; i++)
        if (c->common >> i & 1)
            both[w.n_capabilities++] = ours->capabilities[i];
    Cachew__Envelope e = {CW_MESSAGE(envelope), .re = m->id, .of_case = CACHEW__ENVELOPE__OF_WELCOME,
                          .welcome = &w};
    return cw_conn_queue_message(c, &e, err);
}

/* Lets the owner accept or refuse the peer by its `open`. The owner's messages must follow Welcome, so
 * Welcome is already queued; nothing is sent before `open` has accepted the peer. */
static int shake_open(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    uint64_t now = cw_loop_now_ms(c->loop);
    int r = 0;
    c->state = CONN_OPEN;
    c->at_ms.heard = now;
    c->packs = c->setup->pack && !c->local && cw_conn_has(c, CW_PACK_CAPABILITY);
    c->owner = OWNER_OPENING;
    if (c->ops->open)
        r = c->ops->open(c->user, c, m, err);
    c->owner = r < 0 ? OWNER_NONE : OWNER_OPEN;
    if (r < 0) {
        if (c->state == CONN_OPEN)
            c->state = CONN_SHAKING;
        cw_conn_out_clear(c);
        return r;
    }
    if (c->state == CONN_OPEN)
        cw_conn_call_at(c, now + c->setup->timeout_ms / 3);
    return 0;
}

static int shake_accepted(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    if (m->of_case != CACHEW__ENVELOPE__OF_HELLO)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side began with a message of kind %d, expected a handshake (Hello)" CW_OTHER_VERSION,
            (int)m->of_case);
    c->hello_id = m->id;
    if (c->tls_state == TLS_PLAIN)
        return cw_error_value(err, CW_E_SERVICE, "tls", "", "",
                              "the service expects TLS (--tls-ca FILE, tls_ca= in Python)");
    int r = hello_check(c, m->hello, err);
    if (r < 0)
        return r;
    c->common = hello_common_capabilities(c->setup->hello, m->hello->capabilities, m->hello->n_capabilities);
    r = shake_send_welcome(c, m, err);
    return r < 0 ? r : shake_open(c, m, err);
}

static int shake_connected(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE) {
        struct cw_error why = {0};
        cw_failure_error(m->failure, &why);
        cw_conn_die(c, &why);
        return 0;
    }
    if (m->of_case != CACHEW__ENVELOPE__OF_WELCOME)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side answered the handshake with a message of kind %d, expected "
                            "Welcome" CW_OTHER_VERSION,
                            (int)m->of_case);
    if (m->welcome->version < CW_PROTOCOL_MIN || m->welcome->version > CW_PROTOCOL_MAX)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side chose version %u of Cachew's protocol, but this side speaks %d "
                            "to %d: use the same version of Cachew on both sides",
                            m->welcome->version, CW_PROTOCOL_MIN, CW_PROTOCOL_MAX);
    c->common = hello_common_capabilities(c->setup->hello, m->welcome->capabilities,
                                          m->welcome->n_capabilities);
    return shake_open(c, m, err);
}

int cw_conn_shake(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    return c->accepted ? shake_accepted(c, m, err) : shake_connected(c, m, err);
}
