/* Peers: reference counts, sending, logging. */
#include "service/dispatcher/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "net/conn.h"
#include "service/dispatcher/state.h"

struct cw_peer *cw_dp_peer_new(struct cw_dispatcher *d, void *user, const Cachew__Hello *hello)
{
    struct cw_peer *p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct cw_peer){.user = user,
                          .role = hello->role,
                          .refs = 1,
                          .name = cw_text_dup(hello->name, DP_NAME),
                          .host = cw_text_dup(hello->host, DP_ADDRESS)};
    if (!p->name || !p->host)
        return cw_dp_peer_unref(p);
    if (hello->incarnation.len == sizeof(p->incarnation))
        memcpy(p->incarnation, hello->incarnation.data, sizeof(p->incarnation));
    cw_list_add(&d->peers.list, &p->link);
    d->peers.n++;
    return p;
}

struct cw_peer *cw_dp_peer_unref(struct cw_peer *p)
{
    if (!p || --p->refs > 0)
        return NULL;
    free(p->name);
    free(p->host);
    free(p);
    return NULL;
}

void cw_dp_peer_send_all(struct cw_dispatcher *d, struct cw_peer *const *peers, size_t n,
                         const Cachew__Envelope *m)
{
    void *users[CW_DISPATCHER_SENDS];
    size_t n_users = 0;
    for (size_t i = 0; i < n; i++) {
        if (peers[i]->state == PEER_OPEN)
            users[n_users++] = peers[i]->user;
        if (n_users > 0 && (n_users == CW_DISPATCHER_SENDS || i + 1 == n)) {
            d->io.send(d->io.user, users, n_users, m);
            n_users = 0;
        }
    }
}

void cw_dp_peer_send(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m)
{
    cw_dp_peer_send_all(d, &p, 1, m);
}

void cw_dp_peer_done(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re)
{
    Cachew__Done done = {CW_MESSAGE(done)};
    if (re != 0)
        cw_dp_peer_send(d, p,
                        &(Cachew__Envelope){CW_MESSAGE(envelope), .re = re,
                                            .of_case = CACHEW__ENVELOPE__OF_DONE, .done = &done});
}

void cw_dp_peer_fail(struct cw_dispatcher *d, struct cw_peer *p, uint64_t re, const struct cw_error *why)
{
    Cachew__Failure failure;
    Cachew__Envelope m;
    cw_failure_envelope(&m, &failure, re, why);
    cw_dp_peer_send(d, p, &m);
}

void cw_dp_peer_close(struct cw_dispatcher *d, struct cw_peer *p, const char *why)
{
    struct cw_error err = {0};
    if (p->state != PEER_OPEN)
        return;
    p->state = PEER_CLOSING;
    cw_error_set(&err, CW_E_SERVICE, "%s", why);
    d->io.close(d->io.user, p->user, &err);
}

void cw_dp_log(struct cw_dispatcher *d, bool warning, const char *fmt, ...)
{
    char text[1500];
    if (!d->io.log)
        return;
    CW_FORMAT(text, fmt);
    d->io.log(d->io.user, warning, cw_text_clean(text, sizeof(text)));
}

void *cw_dp_message_copy(const ProtobufCMessage *m, size_t most)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    _cleanup_free_ uint8_t *packed = size <= most ? malloc(size + 1) : NULL;
    if (!packed)
        return NULL;
    protobuf_c_message_pack(m, packed);
    return protobuf_c_message_unpack(m->descriptor, NULL, size, packed);
}

char *cw_dp_hex(const uint8_t id[16], char ret[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", id[i]);
    return ret;
}
