/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net: local sockets that carry bytes and file descriptors, and TCP listeners.
 *
 * Why:     trainers and the uploader of a node exchange requests and memory over one Unix socket.
 * Promise: 1   every fd is close-on-exec; a message whose fds were cut (MSG_CTRUNC) is an error
 *              and the fds that did arrive are closed.
 *          2   a stale socket file is replaced only when nobody answers on it.
 *          3   SIGPIPE is never raised.
 *          4   sockets made here are non-blocking, and receive never waits: poll first.
 *          5   a claimed name belongs to one process of this user and network namespace and is
 *              free again when that process ends, in whatever way.
 *          6   accept skips up to 16 connections in a row that are gone; after any other failure
 *              the caller must pause, since connections still wait and poll returns at once (K08).
 *          7   an address of a cloud's instance metadata, which hands out keys, is recognised in
 *              every spelling: decimal, octal and hexadecimal, short, and within IPv6.
 *          8   before sending, a program can verify that a socket's listener is root, its own user,
 *              an allowed user, or the user to whom root has given the folder.
 * Limits:  CAIRN_NET_FDS_MAX fds a message; socket paths and claimed names of at most 107 bytes.
 * Threads: stateless.
 * Next:    api/wire/frame.h for the frames sent over it.
 */
#pragma once

#include <sys/types.h>

#include "common/error.h"

struct sockaddr;

#define CAIRN_NET_FDS_MAX 8
#define CAIRN_NET_ACCEPT_PAUSE_MS 200

enum cairn_code cairn_net_listen_unix(const char *path, unsigned mode, int *ret_fd,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNAVAILABLE: no process listens any more; CAIRN_NOT_FOUND: the socket does not exist. */
enum cairn_code cairn_net_connect_unix(const char *path, int *ret_fd,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Holds a name while *ret_fd is open. CAIRN_CONFLICT: a process of this user or root holds it;
 * CAIRN_FORBIDDEN: one of another user does, perhaps on purpose. */
enum cairn_code cairn_net_claim(const char *name, int *ret_fd,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Accepts and closes the connections that other claims of the name made to find its user. 4,096 of
 * them fill the queue, and the next claim would fail as CAIRN_FORBIDDEN. */
void cairn_net_claim_clear(int fd);
/* "127.0.0.1:7420", "[::1]:0"; *ret_port is the port chosen for 0. Close-on-exec, SO_REUSEADDR. */
enum cairn_code cairn_net_listen_tcp(const char *address, int *ret_fd, uint16_t *ret_port,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_fd is -1 if no connection waits. After a failure, retry in CAIRN_NET_ACCEPT_PAUSE_MS. */
enum cairn_code cairn_net_accept(int listen_fd, int *ret_fd,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Of a TCP connection since it was made: time with bytes in flight, the part of it spent waiting
 * for room in the peer's receive window, both in ticks of the kernel (some ms), and what the peer
 * has acknowledged. */
struct cairn_net_times {
    uint64_t sending_us, room_us, acked_bytes;
};
bool cairn_net_times(int fd, struct cairn_net_times *ret);
enum cairn_code cairn_net_peer_uid(int fd, uid_t *ret_uid, pid_t *ret_pid,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* net.h#8: is the listener root, this user, the owner of its folder (if only root could have given
 * it, as /run/cairn), or in `allowed`: comma-separated user ids, "any", or NULL or "" for none?
 * Else CAIRN_FORBIDDEN, naming the user and `setting`. */
enum cairn_code cairn_net_listener_check(int fd, const char *path, const char *allowed,
                                         const char *setting,
                                         struct cairn_error *err) CAIRN_MUST_USE;
#ifndef SO_PEERPIDFD /* many C libraries lack it */
#define SO_PEERPIDFD 77
#endif
/* A pidfd of the peer, readable when that process ends, whatever its PID namespace; -1: this kernel
 * has none (Linux before 6.5). */
int cairn_net_peer_process(int fd);
/* Sends all bytes, with fds on the first, waiting for room up to deadline_ms (mono clock). */
enum cairn_code cairn_net_send(int fd, struct cairn_view bytes, const int *fds, size_t fd_count,
                               uint64_t deadline_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* One recvmsg. *ret_size 0: the peer closed. More fds than fit are closed, and the call fails.
 * EAGAIN: CAIRN_BUSY with *ret_size 0. Room for fds: CAIRN_NET_FDS_MAX. */
enum cairn_code cairn_net_receive(int fd, void *ret_data, size_t capacity, size_t *ret_size,
                                  int *ret_fds, size_t *ret_fd_count,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Is the address link-local or another one of cloud metadata, also when embedded in an IPv6 address
 * (mapped, compatible, NAT64, 6to4)? */
bool cairn_net_is_metadata(const struct sockaddr *address);
/* The same for the host of a URL, "[...]" or not: a numeric host in any spelling of inet_aton, or a
 * well-known name. Other names must be resolved first. */
bool cairn_net_is_metadata_host(struct cairn_view host);
/* Key under which callers are limited: an IPv4 address, or the /64 of an IPv6 address, since a host
 * has all of it. All zeros for a Unix socket. */
void cairn_net_caller(const struct sockaddr *address, uint8_t ret[16]);
/* The same for an address in text; text that is no address is copied. */
void cairn_net_caller_text(const char *address, char *ret, size_t capacity);
