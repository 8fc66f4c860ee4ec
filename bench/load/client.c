/*
 * A client of simulated workers: a rank of a job over an endless stream, which takes no batches. Once it is
 * attached it drops unread what the dispatcher says: a thousand of them, each of which would unpack all that
 * is told to a host of its own, must not take more time than the dispatcher that is measured.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "load.h"
#include "net/address.h"
#include "net/frame.h"

static int client_broken(struct cw_error *err)
{
    return cw_error_set(err, CW_E_SERVICE, "a client's connection to the dispatcher broke: %s",
                        strerror(errno));
}

static int client_send(const struct swarm_client *c, const Cachew__Envelope *e, struct cw_error *err)
{
    struct cw_frame h = {.message = (uint32_t)cachew__envelope__get_packed_size(e)};
    size_t size = CW_FRAME_HEADER + (size_t)h.message;
    _cleanup_free_ uint8_t *bytes = malloc(size);
    if (!bytes)
        return cw_error_nomem(err, size, "a message");
    cachew__envelope__pack(e, bytes + CW_FRAME_HEADER);
    h.message_hash = cw_hash64(bytes + CW_FRAME_HEADER, h.message);
    cw_frame_write(&h, bytes);
    return send(c->fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : client_broken(err);
}

static int client_send_hello(const struct swarm_client *c, struct cw_error *err)
{
    Cachew__Hello hello;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    uint8_t incarnation[16];
    if (getrandom(incarnation, sizeof(incarnation), 0) != sizeof(incarnation))
        return cw_error_set(err, CW_E_IO, "the system has no random bytes");
    cw_hello_init(&hello, CACHEW__ROLE__ROLE_CLIENT, "load", incarnation, "load");
    hello.version_min = hello.version_max = CW_PROTOCOL_MAX;
    if (c->swarm->o->token)
        hello.token = (char *)(uintptr_t)c->swarm->o->token;
    e.id = 1;
    e.of_case = CACHEW__ENVELOPE__OF_HELLO;
    e.hello = &hello;
    return client_send(c, &e, err);
}

static char *client_job_name(const struct swarm_client *c, char buf[64])
{
    snprintf(buf, 64, "%s-%d", c->job, (int)getpid());
    return buf;
}

static int client_send_attach(const struct swarm_client *c, struct cw_error *err)
{
    char job[64];
    Cachew__Attach m = CACHEW__ATTACH__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    m.job = client_job_name(c, job);
    m.rank = c->rank;
    m.world_size = c->swarm->o->n_ranks;
    m.epochs = 1;
    m.fingerprint = (ProtobufCBinaryData){.data = c->swarm->fingerprint,
                                          .len = sizeof(c->swarm->fingerprint)};
    m.pipeline = (char *)(uintptr_t)"{}";
    m.base_dir = (char *)(uintptr_t)"/";
    e.id = 2;
    e.of_case = CACHEW__ENVELOPE__OF_ATTACH;
    e.attach = &m;
    return client_send(c, &e, err);
}

/* Reads what the dispatcher sends until the client is attached. */
static int client_on_frame(struct swarm_client *c, const uint8_t *message, size_t size, struct cw_error *err)
{
    Cachew__Envelope *m = cachew__envelope__unpack(NULL, size, message);
    if (!m)
        return cw_error_set(err, CW_E_SERVICE, "the dispatcher sent %zu bytes that are no message", size);
    int r = 0;
    if (m->of_case == CACHEW__ENVELOPE__OF_FAILURE)
        r = cw_failure_error(m->failure, err);
    else if (m->of_case == CACHEW__ENVELOPE__OF_WELCOME)
        r = client_send_attach(c, err);
    c->attached |= m->of_case == CACHEW__ENVELOPE__OF_ATTACHED;
    cachew__envelope__free_unpacked(m, NULL);
    return r;
}

static int client_take_frames(struct swarm_client *c, struct cw_error *err)
{
    struct cw_frame f;
    int r = 0;
    while (r >= 0 && !c->attached && c->n_in >= CW_FRAME_HEADER) {
        r = cw_frame_read(c->in, sizeof(c->in) - CW_FRAME_HEADER, 0, &f, err);
        size_t whole = CW_FRAME_HEADER + (size_t)f.message;
        if (r < 0 || c->n_in < whole)
            break;
        r = client_on_frame(c, c->in + CW_FRAME_HEADER, f.message, err);
        c->n_in -= whole;
        memmove(c->in, c->in + whole, c->n_in);
    }
    return r;
}

static void client_on_readable(void *user, int events CW_UNUSED)
{
    struct swarm_client *c = user;
    struct cw_error err = {0};
    int r = 0;
    if (c->attached) {
        ssize_t n = recv(c->fd, NULL, (size_t)1 << 22, MSG_TRUNC | MSG_DONTWAIT); /* dropped by the kernel */
        if (n < 0 ? errno != EAGAIN && errno != EINTR : n == 0)
            r = client_broken(&err);
    } else {
        ssize_t n = recv(c->fd, c->in + c->n_in, sizeof(c->in) - c->n_in, MSG_DONTWAIT);
        c->n_in += n > 0 ? (size_t)n : 0;
        r = n > 0 ? client_take_frames(c, &err) : client_broken(&err);
        if (r >= 0 && c->attached)
            c->begin(c->swarm->user);
    }
    if (r < 0)
        swarm_fail(c->swarm, &err);
}

static int client_connect(struct swarm_client *c, struct cw_error *err)
{
    struct cw_address a;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int r = cw_address_parse(c->swarm->o->address, &a, err);
    if (r < 0)
        return r;
    if (a.local || getaddrinfo(a.host, a.port, &hints, &found) != 0)
        return cw_error_set(err, CW_E_OPTION, "%s: expected HOST:PORT", c->swarm->o->address);
    c->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    r = c->fd < 0 || connect(c->fd, found->ai_addr, found->ai_addrlen) < 0 ? client_broken(err) : 0;
    freeaddrinfo(found);
    if (r >= 0)
        r = cw_watch_new(c->swarm->loop, c->fd, client_on_readable, c, &c->watch, err);
    if (r < 0)
        return r;
    cw_watch_set(c->watch, 1);
    return client_send_hello(c, err);
}

void swarm_attach(struct swarm_client *c)
{
    struct cw_error err = {0};
    if (client_connect(c, &err) < 0)
        swarm_fail(c->swarm, &err);
}

int swarm_progress(struct swarm_client *c, uint64_t position, Cachew__Pace *pace, struct cw_error *err)
{
    Cachew__Progress m = CACHEW__PROGRESS__INIT;
    Cachew__Place place = CACHEW__PLACE__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    place.position = position;
    m.from = &place;
    m.pace = pace;
    e.of_case = CACHEW__ENVELOPE__OF_PROGRESS;
    e.progress = &m;
    return c->attached ? client_send(c, &e, err) : 0;
}

void swarm_detach(struct swarm_client *c)
{
    Cachew__Detach m = CACHEW__DETACH__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    m.finished = true;
    e.of_case = CACHEW__ENVELOPE__OF_DETACH;
    e.detach = &m;
    if (c->attached)
        (void)client_send(c, &e, &(struct cw_error){0}); /* the client ends in any case */
    if (c->watch)
        cw_watch_free(c->watch);
    if (c->watch && c->fd >= 0)
        close(c->fd);
}
