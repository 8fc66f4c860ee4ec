/* Non-blocking sockets: made, connected, listening; bytes with descriptors in and out. */
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/address.h"

/* A socket that is being connected: writable when it is, or is not (cw_socket_result). -EAGAIN: the listener
 * has more to do than it can queue; try again. */
int cw_socket_connect(const struct sockaddr *a, socklen_t size);
/* 0, or -errno: how connecting went. */
int cw_socket_result(int fd);
/* The address of a Unix socket. */
socklen_t cw_socket_path(const char *path, struct sockaddr_un *ret);
/* Listens, at the first of the host's addresses that works. A Unix socket is made for this user only, in the
 * place of one that nobody listens at any more. *port: the real one. */
int cw_socket_listen(const struct cw_address *a, int *ret_fd, unsigned *port,
                     struct cw_error *err) _must_check_;
/* Small messages go at once. Nothing for Unix sockets. */
void cw_socket_no_delay(int fd);
/* A descriptor, or -errno. */
int cw_socket_accept(int fd, struct sockaddr_storage *peer, socklen_t *size);

/* Of a Unix socket: a pidfd of who connected; -1: it is not to be seen from here. */
int cw_socket_peer_process(int fd);

/* Bytes, 0 (the peer closed; nothing was sent), or -errno; interruptions are tried again. */
ssize_t cw_socket_send(int fd, struct iovec *pieces, size_t n, const int *fds, size_t n_fds);
/* fds: room for CW_FRAME_FDS, NULL: descriptors are not expected. More than fit are an error, -EMSGSIZE; none
 * are left open then. Where this process may open no more, all that came are lost, and *n_fds is 0. */
ssize_t cw_socket_receive(int fd, struct iovec *pieces, size_t n, int *fds, size_t *n_fds);
