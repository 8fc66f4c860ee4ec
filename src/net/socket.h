/* System calls on non-blocking sockets: connecting, listening, sending and receiving. Unless a function takes
 * an error, it returns -errno on failure. */
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/address.h"

/* Begins to connect, and returns a socket. It becomes writable once connecting has succeeded or failed
 * (cw_socket_result). -EAGAIN (Unix sockets): the listener's queue is full; try again. */
int cw_socket_connect(const struct sockaddr *a, socklen_t size);
/* Returns how connecting ended: 0 or -errno. */
int cw_socket_result(int fd);
/* Fills in the address of a Unix socket. Returns its size. */
socklen_t cw_socket_path(const char *path, struct sockaddr_un *ret);
/* Listens at the first address of the host that works. Only this user may connect to a Unix socket; it
 * replaces a socket file at which no process listens. *port: the real port (0 for Unix sockets). */
int cw_socket_listen(const struct cw_address *a, int *ret_fd, unsigned *port,
                     struct cw_error *err) _must_check_;
/* Sends small messages at once (TCP_NODELAY). No effect on Unix sockets. */
void cw_socket_no_delay(int fd);
/* Accepts a connection: returns its socket, and the peer's address in *peer. */
int cw_socket_accept(int fd, struct sockaddr_storage *peer, socklen_t *size);

/* Unix sockets: returns a pidfd of the process that connected, which the caller closes; -1: that process is
 * not visible here. */
int cw_socket_peer_process(int fd);

/* cw_socket_send and cw_socket_receive return the number of bytes, or -errno; cw_socket_receive returns 0 if
 * the peer closed. Interrupted calls are repeated. */
ssize_t cw_socket_send(int fd, struct iovec *pieces, size_t n, const int *fds, size_t n_fds);
/* fds: an array of CW_FRAME_FDS for received file descriptors; NULL: none are expected. -EMSGSIZE: more came
 * than fit, and all were closed. If this process may open no more descriptors, the bytes are received all
 * the same, but the descriptors are lost: *n_fds is 0. */
ssize_t cw_socket_receive(int fd, struct iovec *pieces, size_t n, int *fds, size_t *n_fds);
