/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: the uploaders of other nodes: which of them hold the attempts that this node holds, where
 *        they are reached, and whether this node has a port for them.
 *
 * Why:     bytes that another node of the attempt has are nearer than the store's; the server,
 *          which all uploaders report to, is the one that knows who is there.
 * Promise: 1   an attempt is here as long as heartbeats name it, and CAIRN_UP_MEMBERS_KEPT_MS
 *              longer, since others still ask when this node's ranks have gone; its nodes are
 *              those that the server named last, this node left out, in the order of their names.
 *          2   a list is asked for until every rank of the attempt has joined and the server has
 *              heard of each of their nodes (complete), and again once somebody found it out of
 *              date.
 *          3   the key of an attempt is derived from its grant, so a node without the grant has
 *              none.
 *          4   a list says what its nodes have in memory of which version, as their heartbeats with
 *              the attempt's grant said when the server named them: a hint, perhaps out of date.
 *          5   an address of all interfaces is never told to other nodes; without another one it is
 *              refused. A network interface is told by its first address.
 *          6   without peer_listen there is nothing of it: no port, no thread, no request.
 * Limits:  CAIRN_UP_MEMBERS_MAX attempts, and as many nodes of each; CAIRN_UP_KEEPERS_MAX saves of
 *          ranks that they keep; more are left out.
 * Threads: members: any, locked by uploader_peers. The pointers are immutable after new.
 * Next:    port.h (to serve), ask.h (to ask), api/wire/rights.h; uploader/server/watch.c tells
 *          members.
 */
#pragma once

#include "api/wire/rights.h"
#include "common/lock.h"
#include "uploader/up.h"

#define CAIRN_UP_MEMBERS_MAX 1024
#define CAIRN_UP_MEMBERS_KEPT_MS 15000
#define CAIRN_UP_ADDRESS_BYTES 128
#define CAIRN_UP_KEEPERS_MAX 65536

struct cairn_up_member {
    char node[CAIRN_NAME_BYTES_MAX + 1];
    char address[CAIRN_UP_ADDRESS_BYTES + 1]; /* HOST:PORT */
};
struct cairn_up_keeper { /* of one rank's save */
    struct cairn_version_id version;
    uint32_t rank, member; /* member: its index in the list */
};
struct cairn_up_roster { /* of an attempt */
    struct cairn_up_roster *next;
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_run_name run;
    uint64_t attempt;
    uint8_t key[CAIRN_PEER_KEY_BYTES];
    bool complete, outdated;
    char partner[CAIRN_NAME_BYTES_MAX + 1]; /* of this node (docs/partner.md); "": none */
    uint64_t named_ms;                      /* mono clock: the last time */
    uint64_t heard_ms;                      /* the same, of its list; 0: none was heard yet */
    struct cairn_up_member *members;        /* owned */
    size_t count;
    struct cairn_up_keeper *keepers; /* owned; by version, rank and member */
    size_t keeper_count, keeper_capacity;
};
struct cairn_up_members {
    struct cairn_lock lock; /* uploader_peers */
    struct cairn_condition changed;
    int hurry_fd; /* an eventfd: readable once hurried tells something new; -1: there is none */
    struct {
        struct cairn_up_roster *rosters;
        bool hurried;
        uint32_t waiting; /* for a list */
    } locked;
};
void cairn_up_members_init(struct cairn_up_members *members);
void cairn_up_members_release(struct cairn_up_members *members);

/* ---- for the heartbeat: each attempt that it names, then forget ---- */
/* Names an attempt that this node holds; true: the server is to send its list of nodes. */
bool cairn_up_members_name(struct cairn_up_members *members, const char *grant);
/* Forgets attempts that were last named by then (mono clock; promise 1). */
void cairn_up_members_forget(struct cairn_up_members *members, uint64_t named_by_ms);
/* What the server answered: members, keepers, complete and partner of told, which is empty then. */
void cairn_up_members_hear(struct cairn_up_members *members, const char *grant,
                           struct cairn_up_roster *told);
/* Before that: the member has that save in memory. What is none, or has no room, is left out. */
void cairn_up_roster_keep(struct cairn_up_roster *roster, uint32_t member, const char *version,
                          int64_t rank);

/* ---- for everybody ---- */
/* The next heartbeat must not be waited for: there is a new attempt, or somebody waits for a list.
 * hurried tells it once, and as long as somebody waits. */
void cairn_up_members_hurry(struct cairn_up_members *members);
bool cairn_up_members_hurried(struct cairn_up_members *members);
/* The key of an attempt; false: this node does not hold it. */
bool cairn_up_members_key(struct cairn_up_members *members, const struct cairn_run_name *run,
                          uint64_t attempt, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* Where a node of that attempt is asked, NULL: this node's partner, and with which key. False: it
 * is not known; the next heartbeat asks for the list again. */
bool cairn_up_members_partner(struct cairn_up_members *members, const struct cairn_run_name *run,
                              uint64_t attempt, const char *node, struct cairn_up_member *ret,
                              uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* True when the server has listed nodes of that attempt within that time. */
bool cairn_up_members_heard(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t attempt, uint64_t within_ms);
/* A copy of the newest attempt's of a run, with the keepers of one version alone;
 * CAIRN_NOT_FOUND: this node holds none. Release it. */
enum cairn_code cairn_up_members_get(struct cairn_up_members *members,
                                     const struct cairn_run_name *run, const char *version,
                                     struct cairn_up_roster *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_roster_release(struct cairn_up_roster *roster);
/* Has the next heartbeat request the list again. */
void cairn_up_members_outdate(struct cairn_up_members *members, const struct cairn_run_name *run);
/* The same, of that attempt where it is the run's newest. */
void cairn_up_members_outdate_attempt(struct cairn_up_members *members,
                                      const struct cairn_run_name *run, uint64_t attempt);
/* Waits until the newest attempt's list of a run is complete, or until_ms (mono clock). */
void cairn_up_members_await(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t until_ms);

/* listen: HOST:PORT. advertise: "" (as listen), HOST, HOST:PORT or an interface. port: the one that
 * is listened on. */
enum cairn_code cairn_up_address_told(const char *listen, const char *advertise, uint16_t port,
                                      char ret[CAIRN_UP_ADDRESS_BYTES + 1],
                                      struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_up_peers {
    struct cairn_up_members members;
    struct cairn_up_port *port;
    struct cairn_up_asks *asks;
};
/* *ret stays NULL where peer_listen is empty. Rooms then add routes to the port. */
enum cairn_code cairn_up_peers_new(struct cairn_up *up, struct cairn_up_peers **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* No route runs any more, no ask ends any more. NULL is fine for both. */
void cairn_up_peers_stop(struct cairn_up_peers *peers);
void cairn_up_peers_free(struct cairn_up_peers *peers);
