/* System calls on non-blocking sockets: connecting, listening, bytes and descriptors. Results are -errno on
 * failure. */
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/address.h"

/* Begins to connect; returns a socket, which becomes writable once that succeeded or failed
 * (cw_socket_result). -EAGAIN: the listener's queue is full; try again. */
int cw_socket_connect(const struct sockaddr *a, socklen_t size);
/* Returns how connecting ended: 0 or -errno. */
int cw_socket_result(int fd);
/* The address of a Unix socket. */
socklen_t cw_socket_path(const char *path, struct sockaddr_un *ret);
/* Listens at the first address of the host that works. A Unix socket is for this user only, and replaces one
 * without a listener. *port: the real one. */
int cw_socket_listen(const struct cw_address *a, int *ret_fd, unsigned *port,
                     struct cw_error *err) _must_check_;
/* Lets small messages go at once. No effect on Unix sockets. */
void cw_socket_no_delay(int fd);
/* Returns the socket of a new connection. */
int cw_socket_accept(int fd, struct sockaddr_storage *peer, socklen_t *size);

/* Unix sockets: returns a pidfd of the process that connected; -1: it is not visible. */
int cw_socket_peer_process(int fd);

/* Bytes, 0 (the peer closed; nothing was sent), or -errno; interruptions are tried again. */
ssize_t cw_socket_send(int fd, struct iovec *pieces, size_t n, const int *fds, size_t n_fds);
/* fds: room for CW_FRAME_FDS; NULL: descriptors are not expected. -EMSGSIZE: more came than fit, and all were
 * closed. Where this process may open no more descriptors, all that came are lost, and *n_fds is 0. */
ssize_t cw_socket_receive(int fd, struct iovec *pieces, size_t n, int *fds, size_t *n_fds);
