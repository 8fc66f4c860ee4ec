/* The system calls of connections and listeners. */
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/frame.h"

/* Connections that wait to be accepted. The system's limit is net.core.somaxconn, 4,096 by default. After a
 * restart all workers and clients connect at once. */
#define BACKLOG 4096

static int socket_fail(int fd)
{
    int r = -errno;
    close(fd);
    return r;
}

void cw_socket_no_delay(int fd)
{
    const int on = 1;
    /* a Unix socket refuses the option, and does not need it */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

int cw_socket_connect(const struct sockaddr *a, socklen_t size)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    cw_socket_no_delay(fd);
    if (connect(fd, a, size) < 0 && errno != EINPROGRESS)
        return socket_fail(fd);
    return fd;
}

int cw_socket_result(int fd)
{
    int result = 0;
    socklen_t size = sizeof(result);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size) < 0 ? -errno : -result;
}

socklen_t cw_socket_path(const char *path, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return sizeof(*ret);
}

int cw_socket_accept(int fd, struct sockaddr_storage *peer, socklen_t *size)
{
    int r;
    do {
        *size = sizeof(*peer);
        r = accept4(fd, (struct sockaddr *)peer, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (r < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (r < 0)
        return -errno;
    cw_socket_no_delay(r);
    return r;
}

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

int cw_socket_peer_process(int fd)
{
    struct ucred peer;
    int process = -1;
    socklen_t size = sizeof(process);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0)
        return process;
    size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0
               ? (int)syscall(SYS_pidfd_open, peer.pid, 0)
               : -1;
}

/* ---- listening ---- */

/* Returns whether no process listens at this socket file: an earlier process left it. */
static bool socket_is_stale(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

/* Returns a socket that listens, or -errno. */
static int socket_listen_at(const struct sockaddr *a, socklen_t size)
{
    const int on = 1;
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (a->sa_family == AF_UNIX)
        (void)fchmod(fd, 0600); /* before bind: the file is never open to others */
    else                        /* so that a restarted daemon gets its port at once */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return bind(fd, a, size) < 0 || listen(fd, BACKLOG) < 0 ? socket_fail(fd) : fd;
}

static int socket_listen_path(const struct cw_address *a, int *ret_fd, struct cw_error *err)
{
    struct sockaddr_un name;
    socklen_t size = cw_socket_path(a->path, &name);
    int fd = socket_listen_at((struct sockaddr *)&name, size);
    if (fd == -EADDRINUSE && socket_is_stale(&name)) {
        unlink(name.sun_path);
        fd = socket_listen_at((struct sockaddr *)&name, size);
    }
    if (fd < 0)
        return cw_error_at_file(err, CW_E_IO, a->path, -fd, "can't listen at unix:%s", a->path);
    *ret_fd = fd;
    return 0;
}

static unsigned socket_port(int fd)
{
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof(name);
    (void)getsockname(fd, (struct sockaddr *)&name, &size);
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

int cw_socket_listen(const struct cw_address *a, int *ret_fd, unsigned *port, struct cw_error *err)
{
    struct addrinfo *list;
    char text[300];
    int fd = -EADDRNOTAVAIL, r;
    *port = 0;
    if (a->local)
        return socket_listen_path(a, ret_fd, err);
    r = cw_address_resolve(a, AI_PASSIVE, &list, err);
    if (r < 0)
        return r;
    for (struct addrinfo *i = list; i && fd < 0; i = i->ai_next)
        fd = socket_listen_at(i->ai_addr, i->ai_addrlen);
    freeaddrinfo(list);
    cw_address_print(a->host, (unsigned)strtoul(a->port, NULL, 10), text, sizeof(text));
    if (fd < 0)
        return cw_error_errno(err, CW_E_IO, -fd, "can't listen at %s", text);
    *port = socket_port(fd);
    *ret_fd = fd;
    return 0;
}

/* ---- bytes ---- */

union control {
    struct cmsghdr header; /* alignment */
    char bytes[CMSG_SPACE(CW_FRAME_FDS * sizeof(int))];
};

ssize_t cw_socket_send(int fd, struct iovec *pieces, size_t n, const int *fds, size_t n_fds)
{
    union control control;
    struct msghdr m = {.msg_iov = pieces, .msg_iovlen = n};
    if (n_fds) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        memset(control.bytes, 0, m.msg_controllen);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    ssize_t r;
    do
        r = sendmsg(fd, &m, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

static size_t socket_take_fds(struct msghdr *m, int *fds)
{
    size_t n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            /* in total no more than CW_FRAME_FDS: `control` has no room for more */
            size_t more = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(fds + n, CMSG_DATA(c), more * sizeof(int));
            n += more;
        }
    return n;
}

ssize_t cw_socket_receive(int fd, struct iovec *pieces, size_t n, int *fds, size_t *n_fds)
{
    union control control;
    struct msghdr m = {.msg_iov = pieces,
                       .msg_iovlen = n,
                       .msg_control = fds ? control.bytes : NULL,
                       .msg_controllen = fds ? sizeof(control.bytes) : 0};
    ssize_t r;
    do
        r = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    if (fds && m.msg_controllen) {
        *n_fds = socket_take_fds(&m, fds);
        if (m.msg_flags & MSG_CTRUNC) {
            for (size_t i = 0; i < *n_fds; i++)
                close(fds[i]);
            bool too_many = *n_fds == CW_FRAME_FDS;
            *n_fds = 0;
            return too_many ? -EMSGSIZE : r;
        }
    }
    return r;
}
