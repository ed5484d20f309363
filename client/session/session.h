/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: one rank's connection to its uploader, and the calls over it.
 *
 * Why:     training goes on while the uploader works, dies or comes back; so a thread of the
 *          library takes answers and events in, and a call waits for its own answer only.
 * Promise: 1    a call ends by its deadline; when the uploader is away, one about a save ends with
 *               CAIRN_UPLOADER_GONE within CAIRN_CLIENT_GONE_MS of the moment it went.
 *               An uploader that says it is stopping (a begin is refused as `unavailable`) finishes
 *               what it has; for a new save it counts as away, and the next one gets that save.
 *          2    a renewal with wrong options changes nothing: they are read into a session of their
 *               own first. Of the former attempt nothing is left when the next one is opened: no
 *               link, slab, window, page-lock or count of waiting calls. Run, socket and rights
 *               stay.
 *          Q2   when the uploader dies before the session is open, it is tried again; the same
 *               process gets the same attempt.
 *          K04  the thread connects again, offers the slabs and the unfinished saves, and sends the
 *               failures that were not reported yet (client/session/wire.c, client/save/sink.c).
 *          Q40  a save that was sealed, and whose version ended while the uploader was away, hears
 *               how from the server by the one that comes back; no answer lost in between is an
 *               error.
 *          K06  cairn_close ends and awaits calls of other threads before it frees anything.
 *          K10  a forked child is refused by its pid before any lock is touched.
 *          K11  events of another session's uuid are dropped.
 *          K21  no thread of the library takes signals.
 * Limits:  2 slab generations; one restore window; frames as api/wire/frame.h.
 * Threads: `locked` is guarded by lock (client_session); `link` belongs to the I/O thread once it
 *          runs, and to calls in their turns (wire.h); all else is immutable after cairn_open. A
 *          struct cairn_client_message belongs to whoever holds it.
 * Next:    client/README.md follows a save and a restore through the files.
 */
#pragma once

#include <cairn/cairn.h>
#include <poll.h>
#include <signal.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "api/wire/frame.h"
#include "api/wire/messages.h"
#include "client/device/device.h"
#include "client/session/options.h"
#include "common/clock.h"
#include "common/lock.h"
#include "common/memory.h"

/* ---- frames on their way out ---- */

struct cairn_client_message {
    STAILQ_ENTRY(cairn_client_message) place; /* in the session's queue */
    struct cairn_buf bytes;
    size_t sent;
    int fds[CAIRN_NET_FDS_MAX]; /* owned duplicates, closed once sent */
    size_t fd_count;
};
/* message is encoded and fds are duplicated, so the caller's may go. */
enum cairn_code cairn_client_message_new(const json_t *message, struct cairn_view blob,
                                         const int *fds, size_t fd_count,
                                         struct cairn_client_message **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_message_free(struct cairn_client_message *message);
CAIRN_DEFINE_AUTO_PTR(client_message);

struct cairn_client_link {
    int fd;                  /* -1: not connected */
    int pid;                 /* of the process that listens; 0: not known */
    bool interruptible;      /* wait ends with CAIRN_INTERRUPTED after a signal */
    const sigset_t *signals; /* blocked while it waits, instead of those of the thread; or NULL */
    struct cairn_frame_reader reader;
};
/* CAIRN_UPLOADER_GONE: nobody listens. *ret_left: the socket's file is there all the same, as a
 * killed uploader leaves it. */
enum cairn_code cairn_client_link_open(const char *path, struct cairn_client_link *ret,
                                       bool *ret_left, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_link_close(struct cairn_client_link *link);
/* poll of one descriptor; signals: blocked for as long, instead of those of the thread, or NULL. */
int cairn_client_poll(struct pollfd *wanted, uint64_t ms, const sigset_t *signals);
/* What an answer says: CAIRN_OK when it is named `wanted`, the error that it carries, or
 * CAIRN_PROTOCOL. */
enum cairn_code cairn_client_answer_check(const struct cairn_frame *answer, const char *wanted,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Value of an integer field; false: it is not there. */
bool cairn_client_u64_of(const json_t *message, const char *field, uint64_t *ret);

#define CAIRN_CLIENT_GENERATIONS_MAX 2
#define CAIRN_CLIENT_GONE_MS 900
#define CAIRN_CLIENT_RESTART_MS 10000 /* an uploader that said it stops is back by then */
#define CAIRN_CLIENT_PING_MS 500      /* a live uploader answers a ping by then */
#define CAIRN_CLIENT_COPY_THREADS_MAX 64
#define CAIRN_CLIENT_SLOTS 4 /* reads under way at once */
#define CAIRN_CLIENT_TIMEOUT_MS 60000
#define CAIRN_CLIENT_WAIT_STAGED_MS 30000
/* Room for a tensors header and the padding between shards, on top of the session's `bytes`. */
#define CAIRN_CLIENT_HEADER_BYTES (2 * CAIRN_MIB)

/* A call that was sent and waits for its answer; on the stack of its caller. */
struct cairn_client_pending {
    LIST_ENTRY(cairn_client_pending) place; /* until it is done */
    uint64_t id, since_ms;
    bool done;
    enum cairn_code code; /* not CAIRN_OK: the link ended before the answer */
    void (*on_answer)(void *subject, const struct cairn_frame *answer);
    void *subject;
    struct cairn_frame answer;
};
enum cairn_client_state {
    CAIRN_CLIENT_UP,
    CAIRN_CLIENT_AWAY,   /* the I/O thread tries to connect again */
    CAIRN_CLIENT_REFUSED /* the uploader refused the session for good: `refusal` */
};
/* A call that waits in a session that is `interruptible`; on the stack of its caller. */
struct cairn_client_sleeper {
    LIST_ENTRY(cairn_client_sleeper) place;
    int fd; /* an eventfd */
};
/* Callbacks for what no call waits for, implemented by the saves (client/save/sink.c), of which the
 * session knows nothing. Called with the lock held, except `offer`. */
struct cairn_client_sink {
    /* False: the uploader broke the protocol. */
    bool (*event)(struct cairn_session *session, const struct cairn_frame *frame);
    /* An answer for which no call waits. */
    void (*answer)(struct cairn_session *session, const struct cairn_frame *frame, uint64_t id);
    void (*link_ended)(struct cairn_session *session); /* the link ended */
    void (*up)(struct cairn_session *session); /* there is a new one, and it took the offer */
    /* After `up`, on the session's thread, without the lock: finishes copies that were handed over
     * after `offer` had looked for them. */
    void (*finish)(struct cairn_session *session);
    void (*refused)(struct cairn_session *session); /* there will be none: locked.refusal */
    /* For the next cairn_session_problem, where it has nothing to say yet. */
    void (*notice)(struct cairn_session *session, const struct cairn_error *why);
    /* After hello, on the session's thread, over a link that nobody else uses yet. */
    enum cairn_code (*offer)(struct cairn_session *session, uint64_t deadline_ms,
                             struct cairn_error *err);
};

struct cairn_session {
    pid_t pid;
    char run[2 * CAIRN_NAME_BYTES_MAX + 2];
    char job[CAIRN_CLIENT_JOB_BYTES];
    char incarnation[CAIRN_CLIENT_INCARNATION_BYTES];
    char proc[CAIRN_UUID_TEXT_BYTES];
    char *socket;
    char *resume;
    json_t *origin; /* client/session/options.h; rank 0's, immutable */
    uint32_t rank, world_size, local_rank, local_world_size;
    _Atomic uint64_t bytes, node_bytes; /* what cairn_session_reserve said last */
    uint32_t timeout_ms, wait_staged_ms;
    uint32_t copy_threads; /* 0: as many as help (client/save/copy.h) */
    char *weights;         /* owned: of the attempt's ranks, a digit each; NULL: equal */
    bool read_only, interruptible, abort_on_disconnect;
    const sigset_t *open_signals; /* of the thread in cairn_open, which has them blocked; or NULL */
    uint64_t attempt;
    char nonce[64];
    struct cairn_resume resumed;
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX];
    uint32_t slab_count;
    struct cairn_client_device device; /* by the lock; open until the session is freed */
    char uuid[CAIRN_UUID_TEXT_BYTES];  /* of the first welcome; survives a re-offer */

    int wake_fd;
    int heard_fd; /* epoll: wake_fd, and the link's while its thread is to read (wire.h) */
    pthread_t thread;
    bool thread_started;
    struct cairn_client_link link; /* of whoever has the turn (wire.h) */
    _Atomic uint64_t next_id;
    struct {            /* of whoever holds locked.window_taken */
        uint32_t epoch; /* 0: none */
        uint64_t id;
        struct cairn_slab slab;
        struct cairn_client_pending pending[CAIRN_CLIENT_SLOTS];
        bool busy[CAIRN_CLIENT_SLOTS]; /* asked, and the answer was not taken yet */
        uint32_t locked;               /* the epoch of the window that a device was shown */
    } window;

    struct cairn_lock lock;
    struct cairn_condition changed; /* answers, events, the link's state, reports */
    const struct cairn_client_sink *sink;
    struct cairn_client_saves *saves;   /* client/save/'s, by the lock, too */
    struct cairn_client_reader *reader; /* client/restore/'s; NULL: nothing was read in the
                                           background */
    struct {
        enum cairn_client_state state;
        uint64_t away_since_ms;
        char away_why[320];      /* what was lacking at the last try; "": the uploader alone ... */
        bool turned_away;        /* ... or, by its own word, what the uploader lacks */
        uint64_t received_ms;    /* when the last frame came */
        int uploader_pid;        /* of the process that listens; 0: not known */
        uint32_t version;        /* of the socket, as the last welcome said */
        uint32_t epoch;          /* counts links, from 1 */
        uint32_t stopping_epoch; /* the link over which the uploader said that it stops; 0: none */
        LIST_HEAD(, cairn_client_sleeper) sleepers;
        char welcome_uuid[CAIRN_UUID_TEXT_BYTES];
        char node[65];                             /* of the last welcome */
        char renamed[65];                          /* what the node was called before; "": as now */
        STAILQ_HEAD(, cairn_client_message) queue; /* to be sent */
        LIST_HEAD(, cairn_client_pending) pending;
        LIST_HEAD(, cairn_restore) restores; /* client/restore/'s */
        struct cairn_error refusal;
        struct { /* cairn_client_stoppable */
            pthread_t thread;
            bool (*stopped)(const void *owner); /* NULL: no thread is */
            const void *owner;
        } stoppable;
        bool stop, window_taken;
        bool reading, writing, cut; /* turns, and the link is broken (wire.h) */
        uint32_t calls;             /* under way; the session is not freed before they have ended */
        bool leaving; /* `bye` is on its way: a link that ends now is not made again */
    } locked;
};

/* First line of every public call: refuses NULL, a forked child and a library that broke a promise,
 * and counts the call, which cairn_close waits for. */
enum cairn_code cairn_client_enter(const struct cairn_session *session,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_leave(struct cairn_session *session);
static inline void cairn_client_leave_at(struct cairn_session **session) {
    cairn_client_leave(*session);
}
#define CAIRN_CLIENT_CALL(session, err)                                                            \
    CAIRN_TRY(cairn_client_enter((session), (err)));                                               \
    __attribute__((cleanup(cairn_client_leave_at)))                                                \
    CAIRN_UNUSED struct cairn_session *cairn_called = (session)
uint64_t cairn_client_deadline(const struct cairn_session *session, uint32_t timeout_ms);
/* Milliseconds until the deadline, for a message: at least 1, since 0 means that the field is
 * absent. */
uint64_t cairn_client_left_ms(uint64_t deadline_ms);

/* Wait for the next change, with the lock held. CAIRN_TIMEOUT: until_ms is over, err is untouched.
 * CAIRN_INTERRUPTED: a signal was handled, and the session is `interruptible`. CAIRN_CANCELLED:
 * this thread is stoppable, and was stopped. */
enum cairn_code cairn_client_pause(struct cairn_session *session, uint64_t until_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* From here on every wait of this thread ends with CAIRN_CANCELLED once stopped(owner) is true. It
 * is called with the lock held, whenever the session changes. NULL: no longer. One thread at a
 * time. */
void cairn_client_stoppable(struct cairn_session *session, bool (*stopped)(const void *owner),
                            const void *owner);
/* Wake every waiting call: it checks its condition again. The lock is held. */
void cairn_client_changed(struct cairn_session *session);
/* CAIRN_TIMEOUT with the socket's name, and whether any frame came over it since since_ms. The lock
 * is held. */
enum cairn_code cairn_client_timed_out(const struct cairn_session *session, const char *wanted,
                                       uint64_t since_ms, struct cairn_error *err);
/* Send a message that every uploader answers at once, so that cairn_client_timed_out can tell a
 * busy uploader from one that hangs. No call waits for the answer. The lock is not held. */
void cairn_client_ping(struct cairn_session *session);

/* Send a message (taken, also on failure) and wait for the answer named `wanted`. epoch 0: any
 * link; else CAIRN_UPLOADER_GONE when the link is another by now. ret may be NULL. */
struct cairn_client_request {
    json_t *take_message;
    struct cairn_view blob;
    const int *fds;
    size_t fd_count;
    const char *wanted; /* NULL: no answer comes */
    /* May be NULL. Called with the answer before the next frame is dispatched, so that no event is
     * missed that names what the answer has numbered; the lock is held. */
    void (*on_answer)(void *subject, const struct cairn_frame *answer);
    void *subject;
    uint32_t epoch;
    bool held;  /* it may be sent with the next call's, which comes soon; no answer comes */
    bool waits; /* an uploader that is away is waited for until the deadline */
    uint64_t deadline_ms;
};
/* {CAIRN_CLIENT_REQUEST(release, .restore = 5), .deadline_ms = ...}: the message and its answer. */
#define CAIRN_CLIENT_REQUEST(form, ...)                                                            \
    .take_message = CAIRN_PACK(form, __VA_ARGS__),                                                 \
    .wanted = cairn_client_wanted(CAIRN_MESSAGE_##form)
static inline const char *cairn_client_wanted(enum cairn_message message) {
    enum cairn_message answer = cairn_message_form(message)->answer;
    return answer ? cairn_message_form(answer)->text : NULL;
}
enum cairn_code cairn_client_call(struct cairn_session *session,
                                  const struct cairn_client_request *request,
                                  struct cairn_frame *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* The two halves of a call, for several at once. After a successful post, `pending` must live until
 * await or abandon has returned. */
enum cairn_code cairn_client_post(struct cairn_session *session,
                                  const struct cairn_client_request *request,
                                  struct cairn_client_pending *pending,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_await(struct cairn_session *session,
                                   const struct cairn_client_request *request,
                                   struct cairn_client_pending *pending, struct cairn_frame *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Abandons a posted call; its late answer is dropped. */
void cairn_client_abandon(struct cairn_session *session, struct cairn_client_pending *pending);
/* The uploader of the last link has said that it stops, and no other has come since. The lock is
 * held. */
bool cairn_client_stopping(const struct cairn_session *session);
/* Notes that the uploader stops if this answer refuses a begin as `unavailable`. The lock is held.
 * */
void cairn_client_stopping_note(struct cairn_session *session, const struct cairn_frame *answer);
/* Wait for the uploader after one that stops, up to deadline_ms and up to CAIRN_CLIENT_RESTART_MS
 * from the end of the link on. The lock is held. */
enum cairn_code cairn_client_reach_next(struct cairn_session *session, uint64_t deadline_ms,
                                        uint32_t *ret_epoch,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Wait until the uploader is there; *ret_epoch is its link's. waits: up to deadline_ms; else as
 * session.h#1 says. The lock is held. */
enum cairn_code cairn_client_reach(struct cairn_session *session, bool waits, uint64_t deadline_ms,
                                   uint32_t *ret_epoch, struct cairn_error *err) CAIRN_MUST_USE;
/* Appends to the queue, which owns the message from then on. The lock is held. */
void cairn_client_enqueue(struct cairn_session *session, struct cairn_client_message *message);
/* Wakes the session's thread, which sends what is queued. */
void cairn_client_wake(struct cairn_session *session);

/* CAIRN_UNSUPPORTED: the uploader is of a release that does not have `what`, which came with this
 * version of the socket. */
enum cairn_code cairn_client_speaks(struct cairn_session *session, uint32_t version,
                                    const char *what, struct cairn_error *err) CAIRN_MUST_USE;

/* CAIRN_INTERNAL with the place if a promise of libcairn's own was broken (common/base.h): what was
 * copied or read since is not trusted. Called before a seal, and before bytes are handed out. */
enum cairn_code cairn_client_sound(const struct cairn_session *session,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- opening and closing; the session's thread runs in between (client/session/open.c) ---- */

/* Checks the options; does not connect. The sink is called from open on. */
enum cairn_code cairn_client_session_new(const struct cairn_open_options *options,
                                         const struct cairn_client_sink *sink,
                                         struct cairn_session **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Connect, open the attempt, map the slabs, start the thread. */
enum cairn_code cairn_client_session_open(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the session's thread, its link and the calls that wait in it. */
void cairn_client_session_stop(struct cairn_session *session);
void cairn_client_session_free(struct cairn_session *session);

/* CAIRN_INVALID: sizes that are not possible. *node_bytes 0 becomes the sum over the node's ranks.
 * */
enum cairn_code cairn_client_bytes_check(const struct cairn_session *session, uint64_t bytes,
                                         uint64_t *node_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the same handle for another attempt; the session's thread does not run ---- */

/* A session that is not open, with the options that `session` is to have: those that are 0 or NULL
 * are kept, run, socket and rights must be the same, the job another. */
enum cairn_code cairn_client_session_renewal(const struct cairn_session *session,
                                             const struct cairn_open_options *options,
                                             struct cairn_session **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* A stopped session gets the options of take_made and may be opened. */
void cairn_client_session_take(struct cairn_session *session, struct cairn_session *take_made);
/* It could not be opened: every call returns why, until it is renewed or closed. */
void cairn_client_session_refuse(struct cairn_session *session, const struct cairn_error *why);

/* ---- threads ---- */

/* pthread_create, for a thread that takes no signals. */
int cairn_client_thread(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *owner),
                        void *owner) CAIRN_MUST_USE;

/* One that ends by itself. The session counts it as a call from before it starts until
 * cairn_client_leave, which is its last step: cairn_close awaits it. False: there is none, and the
 * call is not counted. */
bool cairn_client_detached(struct cairn_session *session, void *(*run)(void *owner), void *owner);
