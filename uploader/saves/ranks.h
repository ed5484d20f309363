/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks: the attempts under which this node writes, what their ranks have counted, and ranks that
 *        are connected no longer, until the server knows that their process has ended.
 *
 * Why:     a fence (a newer attempt of the run) must stop everything of the older one at once, and
 *          heartbeats name each right once, however many ranks hold it. Nobody can take a rank's
 *          place inside its attempt (Q2), so a version that it has not sealed can never become
 *          whole; the others would wait for it until the version is a day old (V41). Only this node
 *          sees the process and knows what its journal still holds.
 * Promise: 1    one attempt per grant text; it lives while a session or save uses it.
 *          2    stale is final (Q6).
 *          3    Q12: a rank begins no save that is counted here, but for those that this node has.
 *               What it has counted outlives its connection, as the attempt does.
 *          4    the end of a process that had an attempt here is reported within a second (Q54),
 *               and as settled once nothing of that rank is under way (Q56), again and again until
 *               the server has taken it; it may be away meanwhile, this uploader too.
 *          5    the end of a connection says nothing, nor does a `bye`: the process may come back.
 *               The kernel is asked about the process itself.
 *          6    what was taken is reported again to a catalog of another generation.
 *          7    for a moment after a connection ended, and after a restart for as long as offers
 *               are awaited, its rank still holds the attempt (Q7); after a `bye` it does not.
 *          8    a process is called ended only when that very process has ended: another one with
 *               its number, another boot or another namespace of numbers is told apart. One of
 *               another PID namespace is watched like one of the uploader's own, by a descriptor.
 * Limits:  of each rank the last CAIRN_UP_COUNTED_STEPS_MAX steps that it began. 256 ranks that
 *          have left; beyond that the oldest is forgotten. A process that this uploader cannot see
 *          is not noticed; nor is one that had not opened its attempt, whose place is still free.
 *          What was taken is forgotten with this process. A process of another PID namespace has
 *          no number here, so the next uploader finds it only when it connects again.
 * Threads: attempts, counts and _locked: uploader_state is held; an attempt's texts are immutable.
 *          tick: the main thread; taken, again, processes: any.
 * Next:    protocol rules Q2-Q6 and Q12; uploader/server/watch.h, server/intake/intake.h.
 */
#pragma once

#include <sys/types.h>

#include "api/wire/rights.h"
#include "common/base.h"
#include "common/json.h"
#include "uploader/up.h"

#define CAIRN_UP_COUNTED_STEPS_MAX 1024

struct cairn_up_counted { /* by one rank */
    struct cairn_up_counted *next;
    uint32_t rank, world_size;
    struct { /* a ring; n: the begins 1 to n of that step are counted; 0: a free place */
        uint64_t step;
        uint32_t n;
    } steps[CAIRN_UP_COUNTED_STEPS_MAX];
    size_t place; /* of the next new step */
};
struct cairn_up_attempt {
    struct cairn_up_attempt *next;
    struct cairn_up_counted *counted; /* a list, owned */
    struct cairn_grant grant;
    char text[CAIRN_GRANT_BYTES_MAX];
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2]; /* "project/run" */
    uint32_t users;
    uint64_t reserving_bytes; /* taken from the budget, pages not made yet */
    bool stale;
    struct cairn_error foreign; /* the server refuses the grant for good (Q49), or CAIRN_OK */
};
enum cairn_code cairn_up_attempt_join(struct cairn_up *up, const char *grant_text,
                                      struct cairn_up_attempt **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is allowed; frees it with the last user. */
void cairn_up_attempt_leave(struct cairn_up *up, struct cairn_up_attempt *attempt);
/* The right of (run, attempt, nonce), if any session or save of this node holds it. */
struct cairn_up_attempt *cairn_up_attempt_find(struct cairn_up *up, const char *run_text,
                                               uint64_t number, const char *nonce);

/* ---- Q12 ---- */
/* The rank has counted n begins of that step. Without memory it is forgotten, and nothing is
 * concluded from it. */
void cairn_up_attempt_count(struct cairn_up_attempt *attempt, uint32_t rank, uint32_t world_size,
                            uint64_t step, uint32_t n);
/* How many begins of that step are counted; 0: unknown. */
uint32_t cairn_up_counted_of(const struct cairn_up_counted *counted, uint64_t step);
/* The counts of a rank; NULL: unknown. */
const struct cairn_up_counted *cairn_up_attempt_counted(const struct cairn_up_attempt *attempt,
                                                        uint32_t rank);

/* ---- ranks that have left ---- */

/* A rank of an attempt, its process, and its session's entry in the journal. */
struct cairn_up_rank {
    struct cairn_up_attempt *attempt; /* one use of it */
    uint32_t rank, world_size;
    const char *proc, *name; /* name: of cairn_up_process_name */
    uint64_t entry;          /* 0: none */
    int process;             /* of cairn_up_process_watch */
    bool ended;              /* as is known already */
};

/* Its connection ended, after a `bye` or without. Takes over attempt, entry and process. */
void cairn_up_ended_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* A session of the uploader before this one, whose entry is in the journal. */
void cairn_up_ended_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* Forgets the rank, which is connected again. */
void cairn_up_ended_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                                uint32_t rank);
/* True when a session or save holds the attempt, not only ranks that have left. */
bool cairn_up_ended_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* Ranks of that attempt whose process has ended (Q54), for the server; a new array. */
json_t *cairn_up_ended_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* The heartbeat's list of processes that have ended; a new array, or NULL. */
json_t *cairn_up_ended_report_locked(struct cairn_up *up);
/* The server took those of that report; indexes: array of numbers, or NULL. */
void cairn_up_ended_taken(struct cairn_up *up, const json_t *report, const json_t *indexes);
/* Reports all ends again, to another catalog. */
void cairn_up_ended_again(struct cairn_up *up);
/* Looks at the processes; true: a heartbeat is due at once, to report an end. Cheap
 * when there are none. */
bool cairn_up_ended_tick(struct cairn_up *up) CAIRN_MUST_USE;
void cairn_up_ended_free(struct cairn_up *up);

/* ---- processes ---- */

#define CAIRN_UP_PROCESS_BYTES 128

enum cairn_up_process {
    CAIRN_UP_PROCESS_UNSEEN, /* nobody here can tell */
    CAIRN_UP_PROCESS_LIVES,
    CAIRN_UP_PROCESS_ENDED
};

/* Whom the kernel and the process itself name: a descriptor of cairn_net_peer_process, its number
 * in this namespace (0: it has none here), and the descriptor that came with `hello`; -1: none. */
struct cairn_up_process_names {
    int peer;
    pid_t pid;
    int told;
};
/* A descriptor that becomes readable with the end of that process; -1: it cannot be seen. The
 * kernel's word counts more than the process's. Takes both descriptors of *take_names. */
int cairn_up_process_watch(struct cairn_up_process_names *take_names);
/* What cairn_up_process_find knows it by, for the journal; "": it cannot be told apart. */
void cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]);
/* *ret_fd as of cairn_up_process_watch when it lives, else -1. */
enum cairn_up_process cairn_up_process_find(const char *name, int *ret_fd);
