/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net: local sockets that carry bytes and file descriptors, and TCP listeners.
 *
 * Why:     trainers and the uploader of a node talk over one Unix socket and hand memory over it.
 * Promise: 1   every fd is close-on-exec; a message whose fds were cut (MSG_CTRUNC) is an error
 *              and the fds that did arrive are closed.
 *          2   a stale socket file is replaced only when nobody answers on it.
 *          3   SIGPIPE is never raised.
 *          4   sockets made here are non-blocking, and receive never waits: poll first.
 *          5   a claimed name is one process's of this user and network namespace, and is free
 *              again with its end, however it ended.
 *          6   accept passes over callers that have gone, 16 in a row at most; every other failure
 *              is one to pause after, since the callers still wait and poll returns at once (K08).
 *          7   an address of a cloud's instance metadata, which hands out keys, is told in every
 *              spelling: decimal, octal and hexadecimal, short, and within IPv6.
 *          8   a program that hands its bytes to a socket may know whose that is: root's, its own
 *              user's, one's that it names, or one's to whom root has given the folder.
 * Limits:  CAIRN_NET_FDS_MAX fds a message; socket paths and claimed names of at most 107 bytes.
 * Threads: stateless.
 * Next:    api/wire/frame.h for what is said over it.
 */
#pragma once

#include <sys/types.h>

#include "common/error.h"

struct sockaddr;

#define CAIRN_NET_FDS_MAX 8
#define CAIRN_NET_ACCEPT_PAUSE_MS 200

enum cairn_code cairn_net_listen_unix(const char *path, unsigned mode, int *ret_fd,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNAVAILABLE: nobody listens there any more; CAIRN_NOT_FOUND: there is no such socket. */
enum cairn_code cairn_net_connect_unix(const char *path, int *ret_fd,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Hold a name while *ret_fd is open. CAIRN_CONFLICT: another process of this user, or one of root,
 * has it; CAIRN_FORBIDDEN: one of another user, perhaps on purpose, to keep this one out. */
enum cairn_code cairn_net_claim(const char *name, int *ret_fd,
                                struct cairn_error *err) CAIRN_MUST_USE;
/* Accept and close the connections by which other claims of the name have looked whose it is. 4,096
 * of them fill its queue, and the next claim would be told CAIRN_FORBIDDEN. */
void cairn_net_claim_clear(int fd);
/* "127.0.0.1:7420", "[::1]:0"; port 0 picks one, *ret_port tells which. Close-on-exec,
 * SO_REUSEADDR. */
enum cairn_code cairn_net_listen_tcp(const char *address, int *ret_fd, uint16_t *ret_port,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* *ret_fd is -1 when nobody waits. After a failure ask again in CAIRN_NET_ACCEPT_PAUSE_MS. */
enum cairn_code cairn_net_accept(int listen_fd, int *ret_fd,
                                 struct cairn_error *err) CAIRN_MUST_USE;
/* Of a TCP connection since it was made, in steps of the kernel's clock (some ms): how long bytes
 * were on their way to its peer, and how long of that they waited for room in the peer's memory. */
struct cairn_net_times {
    uint64_t sending_us, room_us;
};
bool cairn_net_times(int fd, struct cairn_net_times *ret);
enum cairn_code cairn_net_peer_uid(int fd, uid_t *ret_uid, pid_t *ret_pid,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* net.h#8: whoever listens at the socket is root, this user, the owner of its folder, where root
 * alone could have given him that (/run/cairn), or one that `allowed` names: user ids with commas
 * between, "any" for all; NULL or "" for none more. Else CAIRN_FORBIDDEN, with the user and
 * `setting`. */
enum cairn_code cairn_net_listener_check(int fd, const char *path, const char *allowed,
                                         const char *setting,
                                         struct cairn_error *err) CAIRN_MUST_USE;
#ifndef SO_PEERPIDFD /* newer than many C libraries */
#define SO_PEERPIDFD 77
#endif
/* A descriptor that becomes readable when the process ends that made the connection, whatever PID
 * namespace it is in; -1: this kernel does not tell (Linux before 6.5). */
int cairn_net_peer_process(int fd);
/* Send all of it (waiting for room up to deadline_ms on the mono clock), fds with the first byte.
 */
enum cairn_code cairn_net_send(int fd, struct cairn_view bytes, const int *fds, size_t fd_count,
                               uint64_t deadline_ms, struct cairn_error *err) CAIRN_MUST_USE;
/* One recvmsg. *ret_size 0 = the peer closed. fds beyond capacity are closed and it fails.
 * EAGAIN: CAIRN_BUSY with *ret_size 0. Room for fds: CAIRN_NET_FDS_MAX. */
enum cairn_code cairn_net_receive(int fd, void *ret_data, size_t capacity, size_t *ret_size,
                                  int *ret_fds, size_t *ret_fd_count,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Is it link-local, or another address where clouds keep metadata and keys, also written within an
 * IPv6 address (mapped, compatible, NAT64, 6to4)? */
bool cairn_net_is_metadata(const struct sockaddr *address);
/* The same of a host as a URL has it, "[...]" or not: a numeric one in any spelling that inet_aton
 * takes, or a well-known name. Other names must be asked for what they resolve to. */
bool cairn_net_is_metadata_host(struct cairn_view host);
/* Who counts as one caller where callers are bounded: an address of IPv4, and of IPv6 the /64 that
 * it is in, since a host has all of it. All zeros: of a Unix socket. */
void cairn_net_caller(const struct sockaddr *address, uint8_t ret[16]);
/* The same of an address in text; what is none stays as it is. */
void cairn_net_caller_text(const char *address, char *ret, size_t capacity);
