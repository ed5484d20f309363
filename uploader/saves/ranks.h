/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks: the attempts under which this node writes, the begins that their ranks counted, and
 * disconnected ranks, until the server knows that their process ended.
 *
 * Why:     a newer attempt fences the older one at once, and heartbeats name each attempt once,
 *          however many ranks hold it. No process can replace a rank inside its attempt (Q2), so a
 *          version that the rank has not sealed can never become whole; the other ranks would wait
 *          until it is a day old (V41). Only this node sees its process and journal.
 * Promise: 1    one attempt per grant text; it lives while a session or save uses it.
 *          2    stale is final (Q6).
 *          3    Q12: a rank begins no counted save, except those that this node has. The count
 *               outlives the connection, as the attempt does.
 *          4    the end of a process with an attempt here is reported within a second (Q54), and as
 *               settled once nothing of that rank is in flight (Q56), repeatedly until the server
 *               acknowledges it, whatever restarts meanwhile.
 *          5    neither the end of a connection nor a `bye` ends a process, which may reconnect;
 *               only the kernel's answer about the process counts.
 *          6    acknowledged ends are reported again to a catalog of another generation.
 *          7    for a moment after a disconnect, and after a restart while offers are awaited, the
 *               rank still holds the attempt (Q7); after a `bye` it does not.
 *          8    only that very process counts as ended: pid reuse, another boot and another PID
 *               namespace are told apart. Processes of other PID namespaces are watched, too.
 * Limits:  of each rank the last CAIRN_UP_COUNTED_STEPS_MAX steps that it began. 256 disconnected
 *          ranks, then the oldest is dropped. Invisible processes, or without an attempt, are not
 *          reported. Acknowledgements are lost with this process. A process of another PID
 *          namespace has no number here: the next uploader finds it only when it reconnects.
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

struct cairn_up_counted { /* begins of one rank */
    struct cairn_up_counted *next;
    uint32_t rank, world_size;
    struct { /* ring; begins 1 to n of the step are counted; 0: free */
        uint64_t step;
        uint32_t n;
    } steps[CAIRN_UP_COUNTED_STEPS_MAX];
    size_t place; /* for the next new step */
};
struct cairn_up_attempt {
    struct cairn_up_attempt *next;
    struct cairn_up_counted *counted; /* a list, owned */
    struct cairn_grant grant;
    char text[CAIRN_GRANT_BYTES_MAX];
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2]; /* "project/run" */
    uint32_t users;                              /* sessions, saves and slabs that point to it */
    uint32_t sessions;                           /* connected ranks */
    uint32_t local_world_size;                   /* the largest that its ranks told; 0: none told */
    uint64_t reserving_bytes;                    /* reserved in the budget, pages not made yet */
    bool stale;
    struct cairn_error foreign; /* the server's final refusal of the grant (Q49), or CAIRN_OK */
};
enum cairn_code cairn_up_attempt_join(struct cairn_up *up, const char *grant_text,
                                      struct cairn_up_attempt **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* The id of a version of the attempt. */
void cairn_up_attempt_version(const struct cairn_up_attempt *attempt, uint64_t step, uint32_t n,
                              struct cairn_version_id *ret);
/* Drops one use; the last one frees it. NULL is allowed. */
void cairn_up_attempt_leave(struct cairn_up *up, struct cairn_up_attempt *attempt);
/* Finds the attempt of (run, attempt, nonce) if a session or save of this node uses it. */
struct cairn_up_attempt *cairn_up_attempt_find(struct cairn_up *up, const char *run_text,
                                               uint64_t number, const char *nonce);

/* Counts begins 1 to n of the step. Without memory the count becomes unknown. */
void cairn_up_attempt_count(struct cairn_up_attempt *attempt, uint32_t rank, uint32_t world_size,
                            uint64_t step, uint32_t n);
/* How many begins of that step are counted; 0: unknown. */
uint32_t cairn_up_counted_of(const struct cairn_up_counted *counted, uint64_t step);
/* The counts of a rank; NULL: unknown. */
const struct cairn_up_counted *cairn_up_attempt_counted(const struct cairn_up_attempt *attempt,
                                                        uint32_t rank);

/* ---- disconnected ranks ---- */

/* A rank of an attempt, its process, and its session's entry in the journal. */
struct cairn_up_rank {
    struct cairn_up_attempt *attempt; /* holds one use */
    uint32_t rank, world_size;
    const char *proc, *name; /* name: from cairn_up_process_name */
    uint64_t entry;          /* 0: none */
    int process;             /* from cairn_up_process_watch */
    bool ended;              /* already known to have ended */
};

/* Adds a rank that disconnected, with or without `bye`. Takes over attempt, entry and process. */
void cairn_up_ended_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* Adds a journaled session of the previous uploader process. */
void cairn_up_ended_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye);
/* Removes the rank, which reconnected. */
void cairn_up_ended_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                                uint32_t rank);
/* True when a session or save holds the attempt, not only disconnected ranks. */
bool cairn_up_ended_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* A new array of the attempt's ranks whose process has ended (Q54), for the server. */
json_t *cairn_up_ended_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt);
/* The heartbeat's list of ended processes; a new array, or NULL. */
json_t *cairn_up_ended_report_locked(struct cairn_up *up);
/* The server acknowledged these indexes of the report; indexes: array of numbers, or NULL. */
void cairn_up_ended_taken(struct cairn_up *up, const json_t *report, const json_t *indexes);
/* Reports all ends again, to a new catalog. */
void cairn_up_ended_again(struct cairn_up *up);
/* Checks the processes; true: an end must be reported by a heartbeat now. Cheap without any. */
bool cairn_up_ended_tick(struct cairn_up *up) CAIRN_MUST_USE;
void cairn_up_ended_free(struct cairn_up *up);

#define CAIRN_UP_PROCESS_BYTES 128

enum cairn_up_process {
    CAIRN_UP_PROCESS_UNSEEN, /* invisible to this uploader */
    CAIRN_UP_PROCESS_LIVES,
    CAIRN_UP_PROCESS_ENDED
};

/* A process by the kernel and by itself: a descriptor of cairn_net_peer_process, its number in this
 * namespace (0: none), and the descriptor from `hello`; -1: none. */
struct cairn_up_process_names {
    int peer;
    pid_t pid;
    int told;
};
/* Returns a descriptor that becomes readable when the process ends; -1: invisible. Prefers the
 * kernel's descriptor to the process's own. Takes both descriptors of *take_names. */
int cairn_up_process_watch(struct cairn_up_process_names *take_names);
/* A journalable name for cairn_up_process_find; "": the process cannot be identified. */
void cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]);
/* *ret_fd as from cairn_up_process_watch if the process lives, otherwise -1. */
enum cairn_up_process cairn_up_process_find(const char *name, int *ret_fd);
