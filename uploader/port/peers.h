/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers: other nodes' uploaders with attempts of this node, their addresses, and a port for them.
 *
 * Why:     bytes on another node of the attempt are nearer than the store; the server, to which all
 *          uploaders report, knows these nodes.
 * Promise: 1   an attempt is listed while heartbeats name it, and CAIRN_UP_MEMBERS_KEPT_MS longer,
 *              since other nodes still ask when this node's ranks have left; its nodes are the
 *              server's last list without this node, ordered by name.
 *          2   the list is requested until every rank of the attempt has joined and the server
 *              knows each of their nodes (complete), and again once it proves outdated.
 *          3   an attempt's key is derived from its grant, so nodes without the grant have none.
 *          4   a list says which versions its nodes have in memory, from their last heartbeats
 *              under the attempt's grant: a hint, perhaps outdated.
 *          5   a wildcard address is never told to other nodes; without another address it is
 *              refused. A network interface stands for its first address.
 *          6   without peer_listen there is no port, no thread and no request.
 * Limits:  CAIRN_UP_MEMBERS_MAX attempts, and as many nodes of each; CAIRN_UP_KEEPERS_MAX saves of
 *          ranks in their memory; more are omitted.
 * Threads: members: any, locked by uploader_peers. The pointers are immutable after new.
 * Next:    port.h (serving), ask.h (asking), api/wire/rights.h; uploader/server/watch.c.
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
struct cairn_up_keeper { /* one rank's save in a node's memory */
    struct cairn_version_id version;
    uint32_t rank, member; /* member: index in the list */
};
struct cairn_up_roster { /* the nodes of an attempt */
    struct cairn_up_roster *next;
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_run_name run;
    uint64_t attempt;
    uint8_t key[CAIRN_PEER_KEY_BYTES];
    bool complete, outdated;
    char partner[CAIRN_NAME_BYTES_MAX + 1]; /* this node's partner (docs/partner.md); "": none */
    uint64_t named_ms;                      /* mono clock: last named in a heartbeat */
    uint64_t heard_ms;                      /* mono clock: last list; 0: none yet */
    struct cairn_up_member *members;        /* owned */
    size_t count;
    struct cairn_up_keeper *keepers; /* owned; by version, rank and member */
    size_t keeper_count, keeper_capacity;
};
struct cairn_up_members {
    struct cairn_lock lock; /* uploader_peers */
    struct cairn_condition changed;
    int hurry_fd; /* eventfd, readable once `hurried` has news; -1: none */
    struct {
        struct cairn_up_roster *rosters;
        bool hurried;
        uint32_t waiting; /* threads waiting for a list */
    } locked;
};
void cairn_up_members_init(struct cairn_up_members *members);
void cairn_up_members_release(struct cairn_up_members *members);

/* ---- for the heartbeat: names each attempt, then forgets ---- */
/* Names an attempt of this node; true: request its list of nodes. */
bool cairn_up_members_name(struct cairn_up_members *members, const char *grant);
/* Drops attempts last named at or before named_by_ms (mono clock; promise 1). */
void cairn_up_members_forget(struct cairn_up_members *members, uint64_t named_by_ms);
/* Stores the server's answer: moves members, keepers, complete and partner out of told. */
void cairn_up_members_hear(struct cairn_up_members *members, const char *grant,
                           struct cairn_up_roster *told);
/* Before hear: notes that the member has the save in memory. Omits invalid and surplus saves. */
void cairn_up_roster_keep(struct cairn_up_roster *roster, uint32_t member, const char *version,
                          int64_t rank);

/* Requests a heartbeat now; `hurried` reports it once, and while a thread waits for a list. */
void cairn_up_members_hurry(struct cairn_up_members *members);
bool cairn_up_members_hurried(struct cairn_up_members *members);
/* The key of an attempt; false: this node does not hold it. */
bool cairn_up_members_key(struct cairn_up_members *members, const struct cairn_run_name *run,
                          uint64_t attempt, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* Address and key of a node of the attempt; node NULL: this node's partner. False: unknown; the
 * next heartbeat requests the list again. */
bool cairn_up_members_partner(struct cairn_up_members *members, const struct cairn_run_name *run,
                              uint64_t attempt, const char *node, struct cairn_up_member *ret,
                              uint8_t ret_key[CAIRN_PEER_KEY_BYTES]);
/* True when the server listed nodes of the attempt within that time. */
bool cairn_up_members_heard(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t attempt, uint64_t within_ms);
/* Copies the list of the run's newest attempt, with keepers of one version; the caller releases it.
 * CAIRN_NOT_FOUND: this node holds no attempt. */
enum cairn_code cairn_up_members_get(struct cairn_up_members *members,
                                     const struct cairn_run_name *run, const char *version,
                                     struct cairn_up_roster *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_roster_release(struct cairn_up_roster *roster);
/* Makes the next heartbeat request the list again. */
void cairn_up_members_outdate(struct cairn_up_members *members, const struct cairn_run_name *run);
/* Likewise, if that attempt is the run's newest. */
void cairn_up_members_outdate_attempt(struct cairn_up_members *members,
                                      const struct cairn_run_name *run, uint64_t attempt);
/* Waits until the newest attempt's list of a run is complete, or until_ms (mono clock). */
void cairn_up_members_await(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t until_ms);

/* listen: HOST:PORT. advertise: "" (listen), HOST, HOST:PORT or an interface. port: bound. */
enum cairn_code cairn_up_address_told(const char *listen, const char *advertise, uint16_t port,
                                      char ret[CAIRN_UP_ADDRESS_BYTES + 1],
                                      struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_up_peers {
    struct cairn_up_members members;
    struct cairn_up_port *port;
    struct cairn_up_asks *asks;
};
/* *ret stays NULL without peer_listen. Rooms then add routes to the port. */
enum cairn_code cairn_up_peers_new(struct cairn_up *up, struct cairn_up_peers **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Returns when no route runs and no request ends any more. NULL is allowed for both. */
void cairn_up_peers_stop(struct cairn_up_peers *peers);
void cairn_up_peers_free(struct cairn_up_peers *peers);
