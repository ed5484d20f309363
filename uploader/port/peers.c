/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes: port and requests, members of attempts, this node's address. */
#include "uploader/port/peers.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/text.h"
#include "uploader/port/ask.h"
#include "uploader/port/port.h"

enum cairn_code cairn_up_peers_new(struct cairn_up *up, struct cairn_up_peers **ret,
                                   struct cairn_error *err) {
    if (!*up->settings.peer_listen) return CAIRN_OK;
    struct cairn_up_peers *peers = calloc(1, sizeof(*peers));
    if (!peers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for peers");
    cairn_up_members_init(&peers->members);
    struct cairn_up_port_options options = {.listen = up->settings.peer_listen,
                                            .advertise = up->settings.peer_advertise,
                                            .node = up->places.node,
                                            .connections_max = up->settings.peer_connections,
                                            .members = &peers->members};
    enum cairn_code code = cairn_up_port_new(&options, &peers->port, err);
    if (!code) code = cairn_up_asks_new(up->places.node, up->metrics, &peers->asks, err);
    if (code) {
        cairn_up_peers_free(peers);
        return code;
    }
    *ret = peers;
    return CAIRN_OK;
}

void cairn_up_peers_stop(struct cairn_up_peers *peers) {
    if (!peers) return;
    cairn_up_port_stop(peers->port);
    cairn_up_asks_stop(peers->asks);
}

void cairn_up_peers_free(struct cairn_up_peers *peers) {
    if (!peers) return;
    cairn_up_peers_stop(peers);
    cairn_up_asks_free(peers->asks);
    cairn_up_port_free(peers->port);
    cairn_up_members_release(&peers->members);
    free(peers);
}

/* ---- members of attempts ---- */

void cairn_up_members_init(struct cairn_up_members *members) {
    cairn_lock_init(&members->lock, CAIRN_LOCK_uploader_peers);
    cairn_condition_init(&members->changed);
    members->hurry_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* -1: callers poll */
}

void cairn_up_roster_release(struct cairn_up_roster *roster) {
    cairn_wipe(roster->key, sizeof(roster->key));
    free(roster->members);
    free(roster->keepers);
    roster->members = NULL;
    roster->keepers = NULL;
    roster->count = roster->keeper_count = roster->keeper_capacity = 0;
}

void cairn_up_members_release(struct cairn_up_members *members) {
    cairn_up_members_forget(members, UINT64_MAX);
    if (members->hurry_fd >= 0) close(members->hurry_fd);
    cairn_condition_release(&members->changed);
    cairn_lock_release(&members->lock);
}

/* The lock is held. */
static struct cairn_up_roster *find_grant(struct cairn_up_members *members, const char *grant) {
    struct cairn_up_roster *at = members->locked.rosters;
    while (at && strcmp(at->grant, grant)) at = at->next;
    return at;
}

static struct cairn_up_roster *make_roster(struct cairn_up_members *members, const char *grant) {
    struct cairn_grant fields;
    size_t count = 0;
    for (struct cairn_up_roster *at = members->locked.rosters; at; at = at->next) count++;
    if (count >= CAIRN_UP_MEMBERS_MAX || cairn_grant_parse(grant, &fields, NULL)) return NULL;
    struct cairn_up_roster *roster = calloc(1, sizeof(*roster));
    if (!roster) return NULL;
    (void)cairn_text_copy(roster->grant, sizeof(roster->grant), grant);
    roster->run = fields.name;
    roster->attempt = fields.attempt;
    cairn_peer_key(grant, roster->key);
    roster->next = members->locked.rosters;
    members->locked.rosters = roster;
    return roster;
}

bool cairn_up_members_name(struct cairn_up_members *members, const char *grant) {
    CAIRN_HOLD(&members->lock);
    struct cairn_up_roster *roster = find_grant(members, grant);
    if (!roster) roster = make_roster(members, grant);
    if (!roster) return false;
    roster->named_ms = cairn_mono_ms();
    return !roster->complete || roster->outdated;
}

void cairn_up_members_forget(struct cairn_up_members *members, uint64_t named_by_ms) {
    CAIRN_HOLD(&members->lock);
    for (struct cairn_up_roster **at = &members->locked.rosters; *at;) {
        struct cairn_up_roster *roster = *at;
        if (roster->named_ms > named_by_ms) {
            at = &roster->next;
            continue;
        }
        *at = roster->next;
        cairn_up_roster_release(roster);
        free(roster);
    }
}

static int by_place(const void *a, const void *b) {
    const struct cairn_up_keeper *one = a, *other = b;
    int order = strcmp(one->version.text, other->version.text);
    if (order) return order;
    if (one->rank != other->rank) return one->rank < other->rank ? -1 : 1;
    return one->member < other->member ? -1 : one->member > other->member;
}

void cairn_up_roster_keep(struct cairn_up_roster *roster, uint32_t member, const char *version,
                          int64_t rank) {
    if (rank < 0 || rank > UINT32_MAX || !cairn_version_id_valid(cairn_view_of(version)) ||
        CAIRN_ARRAY_ROOM(roster->keepers, roster->keeper_count, roster->keeper_capacity,
                         CAIRN_UP_KEEPERS_MAX, "what nodes keep", NULL))
        return;
    struct cairn_up_keeper *keeper = &roster->keepers[roster->keeper_count++];
    *keeper = (struct cairn_up_keeper){.rank = (uint32_t)rank, .member = member};
    (void)cairn_text_copy(keeper->version.text, sizeof(keeper->version.text), version);
}

void cairn_up_members_hear(struct cairn_up_members *members, const char *grant,
                           struct cairn_up_roster *told) {
    if (told->keeper_count)
        qsort(told->keepers, told->keeper_count, sizeof(told->keepers[0]), by_place);
    CAIRN_HOLD(&members->lock);
    struct cairn_up_roster *roster = find_grant(members, grant);
    if (!roster) {
        cairn_up_roster_release(told);
        return;
    }
    free(roster->members);
    free(roster->keepers);
    roster->members = CAIRN_TAKE(told->members);
    roster->keepers = CAIRN_TAKE(told->keepers);
    roster->count = told->count;
    roster->keeper_count = roster->keeper_capacity = told->keeper_count;
    roster->complete = told->complete;
    (void)cairn_text_copy(roster->partner, sizeof(roster->partner), told->partner);
    roster->outdated = false;
    roster->heard_ms = cairn_mono_ms();
    cairn_condition_broadcast(&members->changed);
}

/* The lock is held. */
static void ring(const struct cairn_up_members *members) {
    uint64_t one = 1;
    ssize_t put = write(members->hurry_fd, &one, sizeof(one));
    (void)put; /* a full counter is readable; without an eventfd callers poll */
}

void cairn_up_members_hurry(struct cairn_up_members *members) {
    CAIRN_HOLD(&members->lock);
    members->locked.hurried = true;
    ring(members);
}

bool cairn_up_members_hurried(struct cairn_up_members *members) {
    CAIRN_HOLD(&members->lock);
    uint64_t rings;
    ssize_t got = read(members->hurry_fd, &rings, sizeof(rings));
    (void)got;
    bool hurried = members->locked.hurried || members->locked.waiting;
    members->locked.hurried = false;
    return hurried;
}

static bool is_run(const struct cairn_up_roster *roster, const struct cairn_run_name *run) {
    return !strcmp(roster->run.run, run->run) && !strcmp(roster->run.project, run->project);
}

/* The lock is held. */
static const struct cairn_up_roster *find_attempt(const struct cairn_up_members *members,
                                                  const struct cairn_run_name *run,
                                                  uint64_t attempt) {
    const struct cairn_up_roster *at = members->locked.rosters;
    while (at && (at->attempt != attempt || !is_run(at, run))) at = at->next;
    return at;
}

bool cairn_up_members_key(struct cairn_up_members *members, const struct cairn_run_name *run,
                          uint64_t attempt, uint8_t ret_key[CAIRN_PEER_KEY_BYTES]) {
    CAIRN_HOLD(&members->lock);
    const struct cairn_up_roster *at = find_attempt(members, run, attempt);
    if (at) memcpy(ret_key, at->key, CAIRN_PEER_KEY_BYTES);
    return at != NULL;
}

bool cairn_up_members_partner(struct cairn_up_members *members, const struct cairn_run_name *run,
                              uint64_t attempt, const char *node, struct cairn_up_member *ret,
                              uint8_t ret_key[CAIRN_PEER_KEY_BYTES]) {
    CAIRN_HOLD(&members->lock);
    const struct cairn_up_roster *at = find_attempt(members, run, attempt);
    if (!at) return false;
    const char *wanted = node ? node : at->partner;
    for (size_t i = 0; *wanted && i < at->count; i++) {
        if (strcmp(at->members[i].node, wanted) != 0) continue;
        *ret = at->members[i];
        memcpy(ret_key, at->key, CAIRN_PEER_KEY_BYTES);
        return true;
    }
    return false;
}

bool cairn_up_members_heard(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t attempt, uint64_t within_ms) {
    CAIRN_HOLD(&members->lock);
    const struct cairn_up_roster *at = find_attempt(members, run, attempt);
    return at && at->heard_ms && cairn_mono_ms() < at->heard_ms + within_ms;
}

/* The lock is held. */
static struct cairn_up_roster *newest(struct cairn_up_members *members,
                                      const struct cairn_run_name *run) {
    struct cairn_up_roster *found = NULL;
    for (struct cairn_up_roster *at = members->locked.rosters; at; at = at->next)
        if (is_run(at, run) && (!found || at->attempt > found->attempt)) found = at;
    return found;
}

/* Finds the keepers of one version, which are adjacent in the sorted list. */
static const struct cairn_up_keeper *keepers_of(const struct cairn_up_roster *roster,
                                                const char *version, size_t *ret_count) {
    size_t first = 0, end = roster->keeper_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (strcmp(roster->keepers[middle].version.text, version) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    *ret_count = 0;
    while (first + *ret_count < roster->keeper_count &&
           !strcmp(roster->keepers[first + *ret_count].version.text, version))
        (*ret_count)++;
    return roster->keepers ? roster->keepers + first : NULL;
}

enum cairn_code cairn_up_members_get(struct cairn_up_members *members,
                                     const struct cairn_run_name *run, const char *version,
                                     struct cairn_up_roster *ret, struct cairn_error *err) {
    CAIRN_HOLD(&members->lock);
    const struct cairn_up_roster *found = newest(members, run);
    if (!found)
        return cairn_fail(err, CAIRN_NOT_FOUND, "this node holds no attempt of %s/%s", run->project,
                          run->run);
    size_t keeper_count = 0;
    const struct cairn_up_keeper *keepers = keepers_of(found, version, &keeper_count);
    struct cairn_up_member *copy = calloc(found->count + 1, sizeof(*copy));
    struct cairn_up_keeper *kept = calloc(keeper_count + 1, sizeof(*kept));
    if (!copy || !kept) {
        free(copy);
        free(kept);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a list of nodes");
    }
    if (found->count) memcpy(copy, found->members, found->count * sizeof(*copy));
    if (keeper_count) memcpy(kept, keepers, keeper_count * sizeof(*kept));
    *ret = *found;
    ret->next = NULL;
    ret->members = copy;
    ret->keepers = kept;
    ret->keeper_count = ret->keeper_capacity = keeper_count;
    return CAIRN_OK;
}

void cairn_up_members_outdate_attempt(struct cairn_up_members *members,
                                      const struct cairn_run_name *run, uint64_t attempt) {
    CAIRN_HOLD(&members->lock);
    struct cairn_up_roster *found = newest(members, run);
    if (found && found->attempt == attempt) found->outdated = true;
}

void cairn_up_members_outdate(struct cairn_up_members *members, const struct cairn_run_name *run) {
    CAIRN_HOLD(&members->lock);
    struct cairn_up_roster *found = newest(members, run);
    if (found) found->outdated = true;
}

static bool is_listed(struct cairn_up_members *members, const struct cairn_run_name *run) {
    const struct cairn_up_roster *found = newest(members, run);
    return found && found->complete && !found->outdated;
}

void cairn_up_members_await(struct cairn_up_members *members, const struct cairn_run_name *run,
                            uint64_t until_ms) {
    CAIRN_HOLD(&members->lock);
    members->locked.waiting++;
    if (!is_listed(members, run)) ring(members);
    while (!is_listed(members, run))
        if (!cairn_condition_wait(&members->changed, &members->lock, until_ms)) break;
    members->locked.waiting--;
}

/* ---- this node's address ---- */

/* The address of an interface by name; false: no such interface, or no address. */
static bool address_of_interface(const char *name, char *ret, size_t capacity) {
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list)) return false;
    for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (strcmp(at->ifa_name, name) != 0 || !at->ifa_addr) continue;
        bool v4 = at->ifa_addr->sa_family == AF_INET;
        if (!v4 && at->ifa_addr->sa_family != AF_INET6) continue;
        char host[64];
        socklen_t size = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(at->ifa_addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST)) continue;
        if (strchr(host, '%')) continue; /* link-local: has no meaning on another node */
        found = snprintf(ret, capacity, v4 ? "%s" : "[%s]", host) < (int)capacity;
    }
    freeifaddrs(list);
    return found;
}

static bool is_any(const char *host) {
    static const char *const any[] = {"", "0.0.0.0", "[::]", "0", "[::0]", "*"};
    for (size_t i = 0; i < CAIRN_COUNT(any); i++)
        if (!strcmp(host, any[i])) return true;
    return false;
}

/* The colon before a port; NULL: no port. */
static const char *port_of(const char *text) {
    const char *colon = strrchr(text, ':');
    return colon && !strchr(colon, ']') ? colon : NULL;
}

enum cairn_code cairn_up_address_told(const char *listen, const char *advertise, uint16_t port,
                                      char ret[CAIRN_UP_ADDRESS_BYTES + 1],
                                      struct cairn_error *err) {
    char host[CAIRN_UP_ADDRESS_BYTES + 1] = "", wanted[CAIRN_UP_ADDRESS_BYTES + 1];
    const char *given = *advertise ? advertise : listen, *colon = port_of(given);
    uint64_t number = port;
    if (!cairn_text_copy(wanted, sizeof(wanted), given))
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise is longer than %d bytes",
                          CAIRN_UP_ADDRESS_BYTES);
    if (colon) wanted[colon - given] = '\0';
    if (colon && *advertise &&
        (cairn_parse_u64(cairn_view_of(colon + 1), &number, NULL) || !number || number > 65535))
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise \"%s\": the port is 1 to 65535",
                          advertise);
    if (!address_of_interface(wanted, host, sizeof(host)))
        (void)cairn_text_copy(host, sizeof(host), wanted);
    if (is_any(host))
        return cairn_fail(err, CAIRN_INVALID,
                          "peer_listen %s is no address to tell other nodes; set peer_advertise",
                          listen);
    if (host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-[]:")])
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise \"%s\" is no HOST or HOST:PORT",
                          advertise);
    if (snprintf(ret, CAIRN_UP_ADDRESS_BYTES + 1, "%s:%u", host, (unsigned)number) >
        CAIRN_UP_ADDRESS_BYTES)
        return cairn_fail(err, CAIRN_INVALID, "peer_advertise is longer than %d bytes",
                          CAIRN_UP_ADDRESS_BYTES);
    return CAIRN_OK;
}
