/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: one rank's connection to its uploader, and the one thread that reads and writes it.
 *
 * Why:     training must go on while the uploader works, dies or comes back; so answers and events
 *          are taken in by a thread of the library, and calls only wait for what they need.
 * Promise: P9a  a call ends by its deadline; when the uploader is away it ends with
 *               CAIRN_UPLOADER_GONE within CAIRN_CLIENT_GONE_MS of the moment it went.
 *          K04  the thread connects again, offers the slabs and the unfinished saves, and sends the
 *               failures that were not told yet (client/session/reoffer.c).
 *          Q40  a save that was sealed, and whose version ended while the uploader was away, hears
 *               how from the server by the one that comes back; no answer lost in between is an
 *               error.
 *          K10  a forked child is refused by its pid before any lock is touched.
 *          K11  events of another session's uuid are dropped.
 *          Q8   a begin that failed stays in `tells` until an uploader has journaled it.
 * Limits:  2 slab generations; one restore window.
 * Threads: `locked` is guarded by lock (client_session); `link` belongs to the I/O thread once it
 *          runs; everything else is immutable after cairn_open.
 * Next:    client/save/save.h for what is staged, reoffer.c for the uploader's death.
 */
#pragma once

#include <sys/types.h>

#include <cairn/cairn.h>

#include "api/keys.h"
#include "client/session/job.h"
#include "client/session/link.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/slab.h"

#define CAIRN_CLIENT_GENERATIONS_MAX 2
#define CAIRN_CLIENT_GONE_MS 900
#define CAIRN_CLIENT_SLOTS 4 /* reads under way at once */
#define CAIRN_CLIENT_TIMEOUT_MS 60000
#define CAIRN_CLIENT_WAIT_STAGED_MS 30000
/* Room for a tensors header and the padding between shards, on top of the session's `bytes`. */
#define CAIRN_CLIENT_HEADER_BYTES (2 * CAIRN_MIB)

/* One question on its way; lives on its asker's stack. */
struct cairn_client_request {
    struct cairn_client_request *next;
    uint64_t id;
    bool done;
    enum cairn_code code; /* not CAIRN_OK: the link ended before the answer */
    struct cairn_save *begins;
    struct cairn_frame answer;
};
/* A begin that must end as failed at the server: `count`, or `fail` where the uploader knows the
 * save. */
struct cairn_client_tell {
    struct cairn_client_tell *next;
    uint64_t save; /* 0: the uploader does not know it */
    uint64_t step;
    uint32_t n;
    uint64_t request; /* id it was sent under on this link; 0: not sent */
    struct cairn_error why;
};
enum cairn_client_state {
    CAIRN_CLIENT_UP,
    CAIRN_CLIENT_AWAY,   /* the I/O thread tries to connect again */
    CAIRN_CLIENT_REFUSED /* the uploader refused the session for good: `refusal` */
};
/* Q41: a generation is written by the save that took it; it is free when neither held nor lent. */
struct cairn_client_generation {
    struct cairn_save *held; /* the save that may write into it */
    uint64_t owner;          /* number of the save whose bytes it has, as `begun` told; 0: nobody */
    bool lent;               /* the uploader reads it until it says `free` for that owner */
};

struct cairn_session {
    pid_t pid;
    char run[2 * CAIRN_NAME_BYTES_MAX + 2];
    char job[CAIRN_CLIENT_JOB_BYTES];
    char incarnation[CAIRN_CLIENT_INCARNATION_BYTES];
    char proc[CAIRN_UUID_TEXT_BYTES];
    char *socket;
    char *resume;
    uint32_t rank, world_size, local_rank, local_world_size;
    uint64_t bytes, node_bytes;
    uint32_t timeout_ms, wait_staged_ms;
    bool read_only;
    uint64_t attempt;
    char nonce[64];
    struct cairn_resume resumed;
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    uint32_t slab_count;
    char uuid[CAIRN_UUID_TEXT_BYTES]; /* of the first welcome; survives a re-offer */

    int wake_fd;
    pthread_t thread;
    bool thread_started;
    struct cairn_client_link link; /* the I/O thread's */
    _Atomic uint64_t next_id;
    struct {            /* of whoever holds locked.window_taken */
        uint32_t epoch; /* 0: none */
        uint64_t id;
        struct cairn_slab slab;
        struct cairn_client_request requests[CAIRN_CLIENT_SLOTS];
        bool busy[CAIRN_CLIENT_SLOTS]; /* asked, and the answer was not taken yet */
    } window;

    struct cairn_lock lock;
    struct cairn_condition changed; /* answers, events, the link's state, tells */
    struct {
        enum cairn_client_state state;
        uint64_t away_since_ms;
        uint32_t epoch; /* counts links, from 1 */
        char welcome_uuid[CAIRN_UUID_TEXT_BYTES];
        struct cairn_client_message *first, *last; /* to be sent */
        struct cairn_client_request *requests;
        struct cairn_client_tell *tells;
        struct cairn_save *saves;
        struct cairn_restore *restores;
        struct cairn_client_generation generations[CAIRN_CLIENT_GENERATIONS_MAX];
        struct cairn_error refusal;
        struct cairn_error notice; /* about no save in particular; CAIRN_OK: none */
        bool broken, stop, window_taken;
        bool leaving; /* `bye` is on its way: a link that ends now is not made again */
    } locked;
};

/* Refuse NULL, a forked child and a broken session. First line of every public call. */
enum cairn_code cairn_client_enter(const struct cairn_session *session,
                                   struct cairn_error *err) CAIRN_MUST_USE;
uint64_t cairn_client_deadline(const struct cairn_session *session, uint32_t timeout_ms);

/* Ask `message` (taken, also on failure) and wait for the answer named `wanted`. epoch 0: any link;
 * else CAIRN_UPLOADER_GONE when the link is another by now. ret may be NULL. */
struct cairn_client_ask {
    json_t *take_message;
    struct cairn_view blob;
    const int *fds;
    size_t fd_count;
    const char *wanted; /* NULL: no answer comes */
    /* Of a `begin`: the save has its number before the next frame is taken in, so that no event
     * about it is missed. */
    struct cairn_save *begins;
    uint32_t epoch;
    uint64_t deadline_ms;
};
enum cairn_code cairn_client_call(struct cairn_session *session, const struct cairn_client_ask *ask,
                                  struct cairn_frame *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The two halves, for several questions under way at once. After a successful post, request must
 * stay until await has returned. */
enum cairn_code cairn_client_post(struct cairn_session *session, const struct cairn_client_ask *ask,
                                  struct cairn_client_request *request,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_await(struct cairn_session *session,
                                   const struct cairn_client_ask *ask,
                                   struct cairn_client_request *request, struct cairn_frame *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Give the question up; a late answer is dropped. Nothing happens when it is not under way. */
void cairn_client_abandon(struct cairn_session *session, struct cairn_client_request *request);
/* Wait until the uploader is there (P9a); its link's epoch. The lock is held. */
enum cairn_code cairn_client_reach(struct cairn_session *session, uint64_t deadline_ms,
                                   uint32_t *ret_epoch, struct cairn_error *err) CAIRN_MUST_USE;
/* Remember that begin n of a step must be told as failed. Never fails: without memory the
 * uploader's Q12 closes the gap. The lock is not held. */
void cairn_client_tell(struct cairn_session *session, uint64_t save, uint64_t step, uint32_t n,
                       const struct cairn_error *why);

/* For our own bugs: a debug build aborts; a release build marks the session broken and every later
 * call on it returns CAIRN_BROKEN, since ending a training run is worse than a failed save. */
enum cairn_code cairn_client_broken(struct cairn_session *session, const char *condition,
                                    const char *origin, struct cairn_error *err);
#ifdef NDEBUG
#define CAIRN_CLIENT_PROMISE(session, condition, err)                                              \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            return cairn_client_broken((session), #condition, CAIRN_ORIGIN, (err));                \
    } while (0)
#else
#define CAIRN_CLIENT_PROMISE(session, condition, err) CAIRN_ASSERT(condition)
#endif

/* `fail` of a save that the uploader knows. NULL: no memory. */
json_t *cairn_client_fail_message(uint64_t save, const struct cairn_error *why);

/* ---- between the parts of the session ---- */
enum cairn_code cairn_client_thread_start(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_thread_stop(struct cairn_session *session);
void cairn_client_wake(struct cairn_session *session);
/* hello and welcome over a link that nobody else uses yet. */
enum cairn_code cairn_client_hello(struct cairn_session *session, uint64_t deadline_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Ask over such a link; events that come in between are taken in. Takes ask->take_message. */
enum cairn_code cairn_client_ask_alone(struct cairn_session *session,
                                       const struct cairn_client_ask *ask, struct cairn_frame *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Take in one frame; the lock is held. False: the uploader broke the protocol. */
bool cairn_client_dispatch(struct cairn_session *session, struct cairn_frame *frame);
/* The link ended; the lock is held. Questions under way end, the state is AWAY. */
void cairn_client_link_lost(struct cairn_session *session);
/* Try to connect and to offer what is unfinished. CAIRN_OK: the state is UP again. */
enum cairn_code cairn_client_reoffer(struct cairn_session *session,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Send what is told and not sent yet; the lock is held. */
void cairn_client_tells_send(struct cairn_session *session);
