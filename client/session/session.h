/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: one rank's connection to its uploader, and the calls over it.
 *
 * Why:     training continues while the uploader works, dies or comes back; so a library thread
 *          receives answers and events, and a call waits only for its own answer.
 * Promise: 1   a call ends by its deadline; while the uploader is away, a call about a save ends
 *              with CAIRN_UPLOADER_GONE within CAIRN_CLIENT_GONE_MS of the loss. An uploader that
 *              announces its stop (it refuses a begin as `unavailable`) finishes its saves; for a
 *              new save it counts as away, and the next uploader gets that save.
 *          K35 an uploader that is silent (it answers neither a call nor a ping, as after SIGSTOP)
 *              counts as away for calls that stage a save. Its link stays: what was sent is not
 *              sent again, and answers are taken when it speaks again.
 *          2   a renewal with wrong options changes nothing: they are parsed into a separate
 *              session first. The next attempt opens without anything of the old one: no link,
 *              slab, window, page-lock or count of waiting calls. Run, socket and rights stay.
 *          Q2  if the uploader dies before the session is open, the client retries; the same
 *              process gets the same attempt.
 *          K04 the thread reconnects, offers the slabs and the unfinished saves, and reports
 *              pending failures (client/session/wire.c, client/save/sink.c).
 *          Q40 a sealed save whose version ended while the uploader was away learns the outcome
 *              from the server through the next uploader; an answer lost in between is no error.
 *          K06 cairn_close ends other threads' calls and waits for them before it frees anything.
 *          K10 a forked child is refused by its pid before any lock is touched.
 *          K11 events with another session's uuid are dropped.
 *          K21 library threads block all signals.
 * Limits:  2 slab generations; one restore window; frames as api/wire/frame.h.
 * Threads: `locked` is guarded by lock (client_session); `link` belongs to the I/O thread once it
 *          runs, and to calls during their turns (wire.h); all else is immutable after cairn_open.
 *          A struct cairn_client_message has one owner at a time.
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

/* ---- outgoing frames ---- */

struct cairn_client_message {
    STAILQ_ENTRY(cairn_client_message) place;
    struct cairn_buf bytes;
    size_t sent;
    int fds[CAIRN_NET_FDS_MAX]; /* owned duplicates, closed once sent */
    size_t fd_count;
};
/* Encodes message and duplicates fds; the caller keeps its own. */
enum cairn_code cairn_client_message_new(const json_t *message, struct cairn_view blob,
                                         const int *fds, size_t fd_count,
                                         struct cairn_client_message **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_message_free(struct cairn_client_message *message);
CAIRN_DEFINE_AUTO_PTR(client_message);

struct cairn_client_link {
    int fd;                  /* -1: not connected */
    int pid;                 /* pid of the listening process; 0: unknown */
    bool interruptible;      /* wait ends with CAIRN_INTERRUPTED after a signal */
    const sigset_t *signals; /* the mask while the link waits; NULL: the thread's */
    struct cairn_frame_reader reader;
};
/* CAIRN_UPLOADER_GONE: no process listens. *ret_left: the socket file exists, as after a kill. */
enum cairn_code cairn_client_link_open(const char *path, struct cairn_client_link *ret,
                                       bool *ret_left, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_link_close(struct cairn_client_link *link);
/* poll of one descriptor; signals replaces the thread's mask meanwhile, or NULL. */
int cairn_client_poll(struct pollfd *wanted, uint64_t ms, const sigset_t *signals);
/* CAIRN_OK if the answer's name is `wanted`, else the error that it carries, or CAIRN_PROTOCOL. */
enum cairn_code cairn_client_answer_check(const struct cairn_frame *answer, const char *wanted,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Reads an integer field; false: the field is absent. */
bool cairn_client_u64_of(const json_t *message, const char *field, uint64_t *ret);

#define CAIRN_CLIENT_GENERATIONS_MAX 2
#define CAIRN_CLIENT_GONE_MS 900
#define CAIRN_CLIENT_RESTART_MS 10000 /* a stopping uploader is replaced within this time */
#define CAIRN_CLIENT_PING_MS 500      /* a live uploader answers a ping within this time */
#define CAIRN_CLIENT_ANSWER_MS_MIN 50 /* less after a ping: silence says nothing of the uploader */
#define CAIRN_CLIENT_SILENT_MS 1000   /* without an answer: it is pinged; without that's: silent */
#define CAIRN_CLIENT_COPY_THREADS_MAX 64
#define CAIRN_CLIENT_SLOTS 4 /* concurrent reads in the window */
#define CAIRN_CLIENT_TIMEOUT_MS 60000
#define CAIRN_CLIENT_WAIT_STAGED_MS 30000
/* Added to the session's `bytes`: a tensors header and the padding between shards. Less than a
 * slab's unit (2 MiB), so that a rank of up to 256 KiB takes one unit for a save, and not two. */
#define CAIRN_CLIENT_HEADER_BYTES (2 * CAIRN_MIB - 256 * CAIRN_KIB)

/* A sent call that awaits its answer; on its caller's stack. */
struct cairn_client_pending {
    LIST_ENTRY(cairn_client_pending) place;
    uint64_t id, since_ms;
    bool done;
    enum cairn_code code; /* not CAIRN_OK: the link ended first */
    int os_errno;         /* why this process could not read it; 0: the uploader ended it */
    void (*on_answer)(void *subject, const struct cairn_frame *answer);
    void *subject;
    struct cairn_frame answer;
};
/* A request whose caller went on without its answer, which the saves take when it comes (`answer`
 * of the sink). Guarded by the session's lock; all zero: there is none. */
struct cairn_client_late {
    uint64_t id;            /* of the request; 0: answered, or its link ended */
    bool answered;          /* and not yet taken by cairn_client_late_await */
    struct cairn_error why; /* CAIRN_OK: not refused */
};
enum cairn_client_state {
    CAIRN_CLIENT_UP,
    CAIRN_CLIENT_AWAY,   /* the I/O thread retries the connection */
    CAIRN_CLIENT_REFUSED /* the uploader refused the session permanently: `refusal` */
};
/* A waiting call of an `interruptible` session; on its caller's stack. */
struct cairn_client_sleeper {
    LIST_ENTRY(cairn_client_sleeper) place;
    int fd; /* an eventfd */
};
/* Callbacks for frames that no call awaits; the saves implement them (client/save/sink.c), so that
 * the session does not depend on saves. Called with the lock held, except offer and finish. */
struct cairn_client_sink {
    /* False: the uploader broke the protocol. */
    bool (*event)(struct cairn_session *session, const struct cairn_frame *frame);
    /* An answer that no call awaits. */
    void (*answer)(struct cairn_session *session, const struct cairn_frame *frame, uint64_t id);
    void (*link_ended)(struct cairn_session *session);
    void (*up)(struct cairn_session *session); /* a new link took the offer */
    /* After `up`, on the session's thread, without the lock: finishes copies that were handed over
     * after `offer` looked for them. */
    void (*finish)(struct cairn_session *session);
    void (*refused)(struct cairn_session *session); /* no new link will come: locked.refusal */
    /* A problem for the next cairn_session_problem, if none is pending. */
    void (*notice)(struct cairn_session *session, const struct cairn_error *why);
    /* After hello, on the session's thread, over a link that no other thread uses yet. */
    enum cairn_code (*offer)(struct cairn_session *session, uint64_t deadline_ms,
                             struct cairn_error *err);
};

struct cairn_session {
    pid_t pid;
    bool has_run;                           /* false: read_only, and each call names its run */
    char run[2 * CAIRN_NAME_BYTES_MAX + 2]; /* "(no run)" in messages if there is none */
    uint16_t run_number;                    /* for errors; 0: there is none */
    char job[CAIRN_CLIENT_JOB_BYTES];
    char incarnation[CAIRN_CLIENT_INCARNATION_BYTES];
    char proc[CAIRN_UUID_TEXT_BYTES];
    char *socket;
    char *resume;
    json_t *origin; /* client/session/options.h; rank 0's, immutable */
    uint32_t rank, world_size, local_rank, local_world_size;
    _Atomic uint64_t bytes, node_bytes; /* the last cairn_session_reserve's */
    uint32_t timeout_ms, wait_staged_ms;
    uint32_t copy_threads; /* 0: as many as speed up the copy (client/save/copy.h) */
    char *weights;         /* owned; one digit per rank of the attempt; NULL: equal */
    bool read_only, interruptible, abort_on_disconnect;
    const sigset_t *open_signals; /* the mask to wait with in cairn_open; or NULL */
    uint64_t attempt;
    char nonce[64];
    struct cairn_resume resumed;
    struct cairn_slab slabs[CAIRN_CLIENT_GENERATIONS_MAX]; /* as slab_count: guarded by lock once
                                                              a save holds none of them */
    uint32_t slab_count;
    struct cairn_client_device device; /* guarded by lock; open until the session is freed */
    char uuid[CAIRN_UUID_TEXT_BYTES];  /* from the first welcome; survives a re-offer */

    int wake_fd;
    int heard_fd; /* epoll: wake_fd, and the link while the thread must read it (wire.h) */
    pthread_t thread;
    bool thread_started;
    struct cairn_client_link link; /* owned by the thread with the turn (wire.h) */
    _Atomic uint64_t next_id;
    struct {            /* owned by the holder of locked.window_taken */
        uint32_t epoch; /* 0: none */
        uint64_t id;
        struct cairn_slab slab;
        struct cairn_client_pending pending[CAIRN_CLIENT_SLOTS];
        bool busy[CAIRN_CLIENT_SLOTS]; /* requested, answer not yet taken */
        uint32_t locked;               /* epoch of the window that is page-locked for a device */
        bool writable;                 /* mapped so, for a device that locks no other memory */
    } window;

    struct cairn_lock lock;
    struct cairn_condition changed; /* answers, events, the link's state, reports */
    const struct cairn_client_sink *sink;
    struct cairn_client_saves *saves;   /* of client/save/; guarded by lock, too */
    struct cairn_client_reader *reader; /* of client/restore/; NULL: no background read yet */
    struct {
        enum cairn_client_state state;
        uint64_t away_since_ms;
        char away_why[320]; /* why the last try failed; "": no uploader there */
        bool turned_away;   /* away_why is the uploader's own refusal */
        uint64_t received_ms;
        uint64_t silent_since_ms; /* a ping was not answered since; 0: the uploader is heard */
        bool heard;               /* it was silent and spoke: the session's thread calls finish */
        int uploader_pid;         /* the listening process; 0: unknown */
        uint32_t version;         /* socket protocol version of the last welcome */
        uint32_t epoch;           /* counts links, from 1 */
        uint32_t stopping_epoch;  /* link on which the uploader announced its stop; 0: none */
        LIST_HEAD(, cairn_client_sleeper) sleepers;
        char welcome_uuid[CAIRN_UUID_TEXT_BYTES];
        char node[65];
        char renamed[65]; /* the node's earlier name; "": unchanged */
        STAILQ_HEAD(, cairn_client_message) queue;
        LIST_HEAD(, cairn_client_pending) pending;
        LIST_HEAD(, cairn_restore) restores; /* client/restore/'s */
        struct cairn_error refusal;
        struct { /* cairn_client_stoppable */
            pthread_t thread;
            bool (*stopped)(const void *owner); /* NULL: no thread is stoppable */
            const void *owner;
        } stoppable;
        bool stop, window_taken;
        bool window_unwanted;       /* its holder gives it back (client/session/memory.h) */
        uint32_t slab_users;        /* calls that use the slabs without a save */
        bool reading, writing, cut; /* turns; cut: the link is broken (wire.h) */
        int cut_errno;              /* why this process could not read it; 0: it could */
        uint32_t calls;             /* calls under way; the session is freed only at 0 */
        bool leaving;               /* `bye` is being sent: do not reconnect */
    } locked;
};

/* First line of every public call: refuses NULL, a forked child and a library with a broken
 * promise, and counts the call so that cairn_close waits for it. */
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
/* Milliseconds left, for a message: at least 1, because 0 means that the field is absent. */
uint64_t cairn_client_left_ms(uint64_t deadline_ms);

/* Waits for the next change; the lock is held. CAIRN_TIMEOUT: until_ms has passed, err is
 * untouched. CAIRN_INTERRUPTED: a signal was handled in an `interruptible` session.
 * CAIRN_CANCELLED: this thread is stoppable and was stopped. */
enum cairn_code cairn_client_pause(struct cairn_session *session, uint64_t until_ms,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* From now on every wait of this thread ends with CAIRN_CANCELLED once stopped(owner), called with
 * the lock held at each change of the session, is true. NULL ends this. One thread at a time. */
void cairn_client_stoppable(struct cairn_session *session, bool (*stopped)(const void *owner),
                            const void *owner);
/* Wakes every waiting call, to re-check its condition. The lock is held. */
void cairn_client_changed(struct cairn_session *session);
/* CAIRN_TIMEOUT with the socket and whether a frame came since since_ms. The lock is held. */
enum cairn_code cairn_client_timed_out(const struct cairn_session *session, const char *wanted,
                                       uint64_t since_ms, struct cairn_error *err);
/* Sends a message that every uploader answers at once, so that cairn_client_timed_out can tell a
 * busy uploader from a hung one. The answer is dropped. The lock is not held. */
void cairn_client_ping(struct cairn_session *session);

/* A request; its message is taken, also on failure. epoch 0: any link; else CAIRN_UPLOADER_GONE if
 * the link has another epoch by now. */
struct cairn_client_request {
    json_t *take_message;
    struct cairn_view blob;
    const int *fds;
    size_t fd_count;
    const char *wanted; /* name of the answer; NULL: none comes */
    /* May be NULL. Called with the answer, the lock held, before the next frame is dispatched, so
     * that no event is missed that carries a number from the answer. */
    void (*on_answer)(void *subject, const struct cairn_frame *answer);
    void *subject;
    uint32_t epoch;
    bool held;    /* may be sent together with the next call, which follows soon; no answer comes */
    bool waits;   /* wait until the deadline for an uploader that is away */
    bool goes_on; /* CAIRN_UPLOADER_GONE if the uploader is silent; the link stays */
    /* With goes_on: set if the call ends without its answer, which is then kept. May be NULL. */
    struct cairn_client_late *late;
    uint64_t deadline_ms;
};
/* {CAIRN_CLIENT_REQUEST(release, .restore = 5), .deadline_ms = ...}: message and answer name. */
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
/* A call in two halves, to send several at once; `pending` lives until await or abandon returns. */
enum cairn_code cairn_client_post(struct cairn_session *session,
                                  const struct cairn_client_request *request,
                                  struct cairn_client_pending *pending,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_await(struct cairn_session *session,
                                   const struct cairn_client_request *request,
                                   struct cairn_client_pending *pending, struct cairn_frame *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Takes the answer to a request that a call went on without, or waits for it as that call would
 * (goes_on). CAIRN_UPLOADER_GONE: silent, or the link ended. The lock is not held. */
enum cairn_code cairn_client_late_await(struct cairn_session *session,
                                        struct cairn_client_late *late, const char *wanted,
                                        uint64_t deadline_ms,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Waits until the uploader is not silent; false: it still is at until_ms. The lock is held. */
bool cairn_client_heard(struct cairn_session *session, uint64_t until_ms);
/* Has the session's thread call finish. The lock is held. */
void cairn_client_finish_soon(struct cairn_session *session);
/* Abandons a posted call; its late answer is dropped. */
void cairn_client_abandon(struct cairn_session *session, struct cairn_client_pending *pending);
/* The last link's uploader announced its stop, and none has replaced it. The lock is held. */
bool cairn_client_stopping(const struct cairn_session *session);
/* Notes the stop if this answer refuses a begin as `unavailable`. The lock is held. */
void cairn_client_stopping_note(struct cairn_session *session, const struct cairn_frame *answer);
/* Waits for the successor of a stopping uploader, until deadline_ms and at most
 * CAIRN_CLIENT_RESTART_MS from the end of the link. The lock is held. */
enum cairn_code cairn_client_reach_next(struct cairn_session *session, uint64_t deadline_ms,
                                        uint32_t *ret_epoch,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Waits until the uploader is connected; *ret_epoch is the link's. waits: until deadline_ms; else
 * as session.h#1. The lock is held. */
enum cairn_code cairn_client_reach(struct cairn_session *session, bool waits, uint64_t deadline_ms,
                                   uint32_t *ret_epoch, struct cairn_error *err) CAIRN_MUST_USE;
/* Appends to the queue, which then owns the message. The lock is held. */
void cairn_client_enqueue(struct cairn_session *session, struct cairn_client_message *message);
/* Wakes the session's thread to send the queue. */
void cairn_client_wake(struct cairn_session *session);

/* Notes run and rank in the error of a call of this session; returns code. */
enum cairn_code cairn_client_about(const struct cairn_session *session, enum cairn_code code,
                                   struct cairn_error *err);
/* The same, and the context "RUN rank N". */
enum cairn_code cairn_client_named(const struct cairn_session *session, enum cairn_code code,
                                   struct cairn_error *err);
/* CAIRN_INVALID: the session was opened without a run. */
enum cairn_code cairn_client_need_run(const struct cairn_session *session,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: the uploader's socket protocol is older than `version`, which has `what`. */
enum cairn_code cairn_client_speaks(struct cairn_session *session, uint32_t version,
                                    const char *what, struct cairn_error *err) CAIRN_MUST_USE;

/* CAIRN_INTERNAL with the place if libcairn broke a promise (common/base.h): bytes copied or read
 * since are not trusted. Called before a seal, and before bytes are handed out. */
enum cairn_code cairn_client_sound(const struct cairn_session *session,
                                   struct cairn_error *err) CAIRN_MUST_USE;

/* ---- opening and closing; the session's thread runs in between (client/session/open.c) ---- */

/* Checks the options; does not connect. The sink is called from open on. */
enum cairn_code cairn_client_session_new(const struct cairn_open_options *options,
                                         const struct cairn_client_sink *sink,
                                         struct cairn_session **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Connects, opens the attempt, maps the slabs, starts the thread. */
enum cairn_code cairn_client_session_open(struct cairn_session *session,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the session's thread, its link and its waiting calls. */
void cairn_client_session_stop(struct cairn_session *session);
void cairn_client_session_free(struct cairn_session *session);

/* CAIRN_INVALID: impossible sizes. *node_bytes 0 becomes the sum over the node's ranks. */
enum cairn_code cairn_client_bytes_check(const struct cairn_session *session, uint64_t bytes,
                                         uint64_t *node_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* ---- renewal: the same handle for another attempt; the session's thread does not run ---- */

/* Makes an unopened session from options: those that are 0 or NULL are copied from `session`; run,
 * socket and rights must be equal, the job must differ. */
enum cairn_code cairn_client_session_renewal(const struct cairn_session *session,
                                             const struct cairn_open_options *options,
                                             struct cairn_session **ret,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Moves the options of take_made into a stopped session, which may then be opened. */
void cairn_client_session_take(struct cairn_session *session, struct cairn_session *take_made);
/* After a failed open: every call returns `why` until the session is renewed or closed. */
void cairn_client_session_refuse(struct cairn_session *session, const struct cairn_error *why);

/* ---- threads ---- */

/* pthread_create for a thread that blocks all signals. */
int cairn_client_thread(pthread_t *ret, const pthread_attr_t *attributes, void *(*run)(void *owner),
                        void *owner) CAIRN_MUST_USE;

/* Starts a detached thread. The session counts it as a call until the thread's last step,
 * cairn_client_leave, so cairn_close waits for it. False: no thread started, nothing is counted. */
bool cairn_client_detached(struct cairn_session *session, void *(*run)(void *owner), void *owner);
