/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: one save of one rank, from the call that counts it to the verdict about its version.
 *
 *     counted -> copying -> staged -> committed
 *                    \        /  \
 *                     copied      failed <-> cancelled
 *
 * Why:     a save outlives its handle: bytes are sent after cairn_save_free, and a failure is
 *          reported to the uploader and returned to the caller even then.
 * Promise: Q8a  n is counted before anything else of begin can fail. The same n is the same begin,
 *               however often it is sent, and a begin that failed stays in `reports` until an
 *               uploader has journaled it.
 *          Q14  a save waits for its own slab generation only.
 *          Q41  `free` frees a generation only with the owner that the generation has here, and a
 *               slab is offered for the save that owns it and for no other.
 *          Q44  a save that was given up after its seal is cancelled: only a commit wins.
 *          Q50  labels and meta that are taken here are taken by the server (api/wire/messages.h).
 *          P4   sources are read while training stands still in a call, or between
 *               cairn_save_stage_begin and its fence, each byte once.
 *          1    every save ends committed or with one problem, which some call returns; a failed
 *               one is kept until then. A verdict ends it, also when its handle was freed.
 *          2    a save that was copied while the uploader was away is sealed by the I/O thread with
 *               the one that comes back, also when its handle was freed; so is one that was begun
 *               meanwhile, in a generation that was free (Q43).
 *          3    its phase changes only by a row of client/save/state.def, and a milestone that was
 *               reached stays reached, also when the save fails afterwards.
 *          4    a change is noted whether a descriptor was asked for or not, so that one that is
 *               asked for later is readable for it (include/cairn/poll.h).
 *          5    a save that nobody has asked a descriptor for has none and costs no system call;
 *               one that was asked for costs one for each change that was looked at.
 *          6    the function of progress is called by the thread that is in a call on the handle,
 *               while no lock is held, and only when a figure has changed. What a call was made for
 *               is told before it returns CAIRN_OK.
 *          7    labels and meta of a later call stand for those of the begin or an earlier call;
 *               what it does not give stays. They travel with the seal.
 *          8    the second begin in a row that finds an earlier save under way is a warning of the
 *               session (cairn_session_warning), with what was measured; a begin that finds none
 *               starts the count again, and one warning is given for each row.
 * Limits:  8 dimensions; 1 MiB of names in one `stage` frame and in the replicated checksums. A
 *          report for which there is no memory is left out; the uploader finds the gap in the
 *          counts (Q12).
 * Threads: pieces, raws, files and shares belong to the handle's caller; the fields under "by the
 *          session's lock", the list of saves and the reports are guarded by it.
 * Next:    client/save/begin.c, pieces.c, stage.c, wait.c: the calls in the order of a save's life.
 */
#pragma once

#include <inttypes.h>
#include <pthread.h>

#include "api/documents/names.h"
#include "api/table/table.h"
#include "client/session/session.h"
#include "common/base.h"
#include "common/strided.h"

/* ---- its life, by client/save/state.def ---- */

enum cairn_client_phase {
#define PHASE(name, why) CAIRN_CLIENT_PHASE_##name,
#include "client/save/state.def"
#undef PHASE
};
enum cairn_client_event {
#define EVENT(name, why) CAIRN_CLIENT_EVENT_##name,
#include "client/save/state.def"
#undef EVENT
};
enum cairn_client_reached { /* as enum cairn_milestone */
                            CAIRN_CLIENT_REACHED_NOTHING,
                            CAIRN_CLIENT_REACHED_STAGED,
                            CAIRN_CLIENT_REACHED_DURABLE,
                            CAIRN_CLIENT_REACHED_COMMITTED
};
struct cairn_client_save_state {
    enum cairn_client_phase phase;
    enum cairn_client_reached reached;
};
/* False: nothing changed. */
bool cairn_client_save_state_move(struct cairn_client_save_state *save,
                                  enum cairn_client_event event);
/* Committed, failed or cancelled. */
bool cairn_client_save_state_is_over(const struct cairn_client_save_state *save);
/* An uploader holds its seal, and not every shard is durable yet. */
bool cairn_client_save_state_is_unsent(const struct cairn_client_save_state *save);

/* ---- names of many pieces, in few pieces of memory, for one owner ---- */

struct cairn_client_texts {
    struct cairn_client_text *newest; /* a chunk; NULL: none */
};
/* A copy; NULL: there is no memory. */
char *cairn_client_texts_keep(struct cairn_client_texts *texts, const char *text);
void *cairn_client_texts_keep_bytes(struct cairn_client_texts *texts, const void *data,
                                    size_t bytes);
void cairn_client_texts_release(struct cairn_client_texts *texts);

/* ---- the save ---- */

#define CAIRN_CLIENT_NO_FILE UINT32_MAX

/* A described piece. Offsets are in the shard that holds it, known once it was arranged. */
struct cairn_client_piece {
    char *name; /* as alias_of and in_file: in the texts of its save or of known pieces */
    unsigned dtype;
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    enum cairn_tensor_kind kind;
    char *alias_of; /* NULL unless ALIAS */
    enum cairn_form form;
    struct cairn_fragment fragment;
    uint64_t bytes;        /* 0: an alias, or a piece without elements */
    uint64_t tensor_bytes; /* of the whole tensor */
    const void *source;
    unsigned source_dtype;         /* of its elements; dtype where they are not converted */
    struct cairn_strided *strided; /* owned, by known pieces where it is of them; NULL: the
                                      source is row-major and contiguous */
    int (*fill)(void *owner, uint64_t offset, void *to,
                uint64_t bytes); /* NULL: there is a source */
    void *fill_owner;
    uint64_t source_from; /* where in the bytes of strided or fill, as they are there, it begins */
    bool on_device;       /* source is memory of the session's device ... */
    void *stream;         /* ... that work in this stream of it writes */
    bool by_caller;       /* the bytes are written into the slab by the caller ... */
    bool written;         /* ... who said that they are there */
    bool late;            /* described after the others were copied */
    char *in_file;        /* NULL: the bytes come from source */
    uint64_t file_offset;
    uint32_t source_index;   /* which of what the caller described it is of ... */
    uint64_t source_offset;  /* ... and where in its source it begins */
    _Atomic uint32_t crc32c; /* of a replicated piece, once copied */
};
/* A shard beside the tensors one. */
struct cairn_client_raw {
    char *name; /* owned, as stored */
    const void *source;
    uint64_t bytes;
    uint32_t source_index; /* as a piece's */
    bool file;             /* sent by the uploader from a descriptor */
};
/* A shard in the slab, and how much of it the store has acknowledged. */
struct cairn_client_sent {
    char *name; /* owned */
    uint64_t bytes, released_bytes;
};
/* A condition that delays a save and has failed nothing so far; kept while it lasts. */
struct cairn_client_trouble {
    struct cairn_error why; /* CAIRN_OK: none */
    uint64_t since_ms;
};
/* Which tensors of replica groups a save still needs; see client/save/split.h. */
struct cairn_client_shares {
    struct cairn_split *const *splits; /* borrowed */
    size_t count;
    bool **seen; /* of each split, of each piece; owned */
};
/* A copy and what is known of it; see client/save/stager.h. */
struct cairn_client_stager;
/* Copied and sealed by a thread of the library; see client/save/stage.c. */
struct cairn_client_behind {
    bool busy;   /* the thread has it: pieces and generation are the thread's */
    bool reads;  /* it is not done with the sources ... */
    bool inside; /* ... and reads them now */
    bool queued; /* all copies of a device are under way */
    bool fenced; /* a fence was asked for */
    struct cairn_client_stager *stager; /* while it reads */
    uint32_t users;                     /* calls that use the stager's copies of a device */
};
/* Where the bytes of the last save stood; see client/save/arrange.h. */
struct cairn_client_arrangement;

struct cairn_save {
    struct cairn_session *session; /* NULL once the session is closed */
    uint64_t step;
    uint32_t n;
    int generation; /* -1: none */
    json_t *begin;  /* body of `begin`, for a new uploader that does not know the save; owned */
    json_t *labels, *meta; /* that were set after the begin, for `seal`; owned, or NULL */
    uint32_t file_epoch;   /* link over which descriptors were handed over; 0: none were */
    struct cairn_client_piece *pieces;
    size_t piece_count, piece_capacity;
    struct cairn_client_texts texts;
    uint32_t source_count;      /* pieces and raws that were described */
    uint64_t number;            /* of what it consists of; client/save/arrange.h */
    struct cairn_pieces *known; /* that described the first pieces; held; NULL: none did */
    const void **sources;       /* that were given with it; owned; NULL: its own */
    struct cairn_shard_names raw_names;
    struct cairn_client_raw *raws;
    size_t raw_count, raw_capacity;
    struct cairn_client_shares shares;
    struct cairn_split *
        *lists; /* as those of shares, and kept with the save; client/save/split.h */
    size_t list_count;
    void **owned; /* bytes of streams that were closed, for as long as the pieces; owned */
    size_t owned_count, owned_capacity;
    uint64_t stream_bytes;            /* in all of its streams */
    struct cairn_client_stager *kept; /* placed or copied, and not sealed; owned */
    void (*progress)(void *owner, const struct cairn_save_status *status);
    void *progress_owner;
    bool verify_sources;           /* they are compared with the copy when the fence is asked for */
    struct cairn_save_status told; /* what progress was told last */
    _Atomic uint64_t stall_us, wait_us; /* written by the caller's thread */

    /* by the session's lock */
    TAILQ_ENTRY(cairn_save) place;
    _Atomic uint64_t id; /* the uploader's; 0: the present uploader does not know it */
    uint64_t owner;      /* number of the save as an owner of its generation; 0 while id is 0 */
    char version[48];
    uint64_t total_bytes, sent_bytes;
    uint64_t link_us, store_us;     /* of what is sent: on its way, and with the store */
    uint64_t staged_bytes;          /* in place in the slab */
    uint64_t copied_ms;             /* when its copy began ... */
    uint64_t durable_ms;            /* ... and when it was durable; 0: not yet */
    struct cairn_client_sent *sent; /* by the shard's number in `stage`; owned */
    size_t sent_count;
    struct cairn_client_save_state state; /* moved by cairn_client_save_event alone */
    struct cairn_client_behind behind;
    bool copied; /* all that is described so far: CAIRN_COPIED */
    struct {     /* of the calls that change it */
        pthread_t thread;
        uint32_t depth;                       /* 0: no thread is in one */
        void (*end)(struct cairn_save *save); /* cairn_save_free, if it was called meanwhile */
    } user;
    bool freed;                              /* the caller has no handle any more */
    struct cairn_pieces *last;               /* what it consisted of; held; NULL: not known */
    const void **last_sources;               /* as `sources`; owned */
    bool partnered;                          /* another node has a copy of it */
    bool follows;                            /* it awaits the seal of rank 0 ... */
    bool decided;                            /* ... which the server has */
    bool seal_sent;                          /* to some uploader; its answer may have been lost */
    bool problem_returned;                   /* the problem was returned by some call */
    struct cairn_client_stager *handed_over; /* copied while no uploader was there; owned */
    bool finishing;                          /* the I/O thread is telling it to the new one */
    bool parked; /* COPYING, between the calls that copy and seal: no thread is at it */
    struct cairn_error problem;
    struct cairn_error notice; /* worth knowing, though it has not failed; CAIRN_OK: none */
    struct cairn_client_trouble trouble; /* the server fails at it; also once it was noticed */
    char *waits_for; /* why the server has not committed it, when that was asked last; owned */
    bool misused;    /* a call that describes it was refused */
    bool changed;    /* since cairn_save_poll looked at it last */
    int fd;          /* client/save/save.h; -1: nobody has asked for it */
};

/* Q41: a generation is written by the save that took it; it is free when neither held nor lent. */
struct cairn_client_generation {
    struct cairn_save *held; /* the save that may write into it */
    uint64_t owner;          /* `owner` of `begun` of the save whose bytes it holds; 0: nobody's */
    bool lent;               /* the uploader reads it until it says `free` for that owner */
};
/* The blocks of the last save; client/save/stager.h. */
struct cairn_client_stale {
    uint64_t step;    /* of the last save */
    uint32_t *blocks; /* its checksums; owned */
    uint8_t *follows; /* of each block: it has changed from each save to the next; owned */
    size_t count;
    uint32_t compared; /* saves that were compared with the one before */
    bool is_stale;     /* the last one was */
};
/* Of one session, by its lock. */
struct cairn_client_saves {
    TAILQ_HEAD(, cairn_save) all;              /* in the order of their begins */
    TAILQ_HEAD(, cairn_client_report) reports; /* see client/save/save.h */
    struct cairn_client_generation generations[CAIRN_CLIENT_GENERATIONS_MAX];
    bool reserving;                /* the generations are being replaced: none can be taken */
    struct cairn_error unreserved; /* why there are none; CAIRN_OK: they were asked for, or never */
    struct cairn_error notice;     /* about no save in particular; CAIRN_OK: none */
    struct cairn_client_trouble store, server; /* of the node: not there */
    uint32_t behind_count;                     /* threads of client/save/stage.c */
    const struct cairn_save *copier;           /* whose turn it is to be copied by one of them */
    uint32_t late_in_row;    /* begins that found an earlier save under way; client/save/save.h */
    struct cairn_error late; /* what is to be said of it; CAIRN_OK: nothing */
    struct cairn_client_arrangement *kept; /* for a save of the same layout; owned; NULL: none */
    struct cairn_client_stale stale;       /* client/save/stager.h */
    struct cairn_error stale_warning;      /* what is to be said of it; CAIRN_OK: nothing */
};

/* Look a save up by the uploader's number; the lock is held. */
struct cairn_save *cairn_client_save_find(struct cairn_session *session, uint64_t id);
/* Move it by client/save/state.def; the lock is held. */
void cairn_client_save_event(struct cairn_save *save, enum cairn_client_event event);
/* It has reached a milestone, is over, or its uploader went or came. The lock is held. */
void cairn_client_save_changed(struct cairn_save *save);
/* The save ends with this problem unless it already ended; the lock is held. */
void cairn_client_save_end(struct cairn_save *save, const struct cairn_error *why);
bool cairn_client_save_over(const struct cairn_save *save);
/* Sources and names are no longer needed once a save is sealed or over ... */
void cairn_client_save_drop_pieces(struct cairn_save *save);
/* ... but for cairn_save_again, as long as the handle is there. */
void cairn_client_save_retire_pieces(struct cairn_save *save);
/* First line of every call with a save handle. */
enum cairn_code cairn_client_save_enter(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
#define CAIRN_CLIENT_SAVE_CALL(save, err)                                                          \
    CAIRN_TRY(cairn_client_save_enter((save), (err)));                                             \
    __attribute__((cleanup(cairn_client_leave_at)))                                                \
    CAIRN_UNUSED struct cairn_session *cairn_called = (save)->session
/* First line of a call that describes, copies or ends the save. One thread at a time may be in such
 * calls, and may nest them. CAIRN_INVALID: another thread is in one. */
enum cairn_code cairn_client_save_take(struct cairn_save *save,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the call, and frees the save if cairn_save_free was called meanwhile. */
void cairn_client_save_untake_at(struct cairn_save **save);
#define CAIRN_CLIENT_SAVE_OWN_CALL(save, err)                                                      \
    CAIRN_TRY(cairn_client_save_take((save), (err)));                                              \
    __attribute__((cleanup(cairn_client_save_untake_at)))                                          \
    CAIRN_UNUSED struct cairn_save *cairn_own_call = (save)
/* CAIRN_INVALID with run and step before the text. */
#define CAIRN_CLIENT_REFUSE(save, err, text, ...)                                                  \
    cairn_fail((err), CAIRN_INVALID, "%s step %" PRIu64 ": " text, (save)->session->run,           \
               (save)->step, ##__VA_ARGS__)
/* CAIRN_OK: pieces may still be added. CAIRN_INVALID: it is staged. Else the problem that ended it.
 * */
enum cairn_code cairn_client_save_describable(struct cairn_save *save,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Put run, step and rank before an error, and n from the step's second save on, so that a message
 * names one save (Q43). Returns code. */
enum cairn_code cairn_client_save_named(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err);
/* Return the problem that ended the save, named; sets problem_returned. */
enum cairn_code cairn_client_save_problem(struct cairn_save *save, struct cairn_error *err);
/* The thread of cairn_save_stage_begin reads its sources, or will. The lock is held. */
bool cairn_client_save_reads(const struct cairn_save *save);
/* Its copy or its upload is not finished. The lock is held. */
bool cairn_client_save_under_way(const struct cairn_save *save);
/* The seal is journaled: the milestone staged. */
void cairn_client_save_sealed(struct cairn_save *save);
/* The save writes no more into its generation; the lock is held. */
void cairn_client_save_give(struct cairn_save *save);
/* Is the generation's memory this save's, and still needed? The lock is held. */
bool cairn_client_save_owns(const struct cairn_save *save, uint32_t generation);

/* ---- begin.c, wait.c ---- */

/* Send `begin` to an uploader that does not know the save; on success save->id is new. alone:
 * over a link that only this thread uses. epoch 0: any link. */
enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: this uploader takes no labels and meta with the seal. */
enum cairn_code cairn_client_meta_can_be_sealed(struct cairn_session *session,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Calls the program's progress function if a figure has changed, and again while figures change
 * during that call, until until_ms. The lock is released during each call. */
void cairn_client_progress_tell(struct cairn_save *save, uint64_t until_ms);

/* ---- reports of failures ---- */

/* A begin that must end as failed at the server: `count`, or `fail` where the uploader knows the
 * save. */
struct cairn_client_failed {
    uint64_t save; /* its number; 0: the uploader does not know it */
    uint64_t step;
    uint32_t n;
    json_t *begin; /* owned; the message `begin`, with its options; NULL: none was made */
};
struct cairn_client_report {
    TAILQ_ENTRY(cairn_client_report) place;
    struct cairn_client_failed of;
    uint64_t request; /* `id` of its message on this link; 0: not sent */
    struct cairn_error why;
};
void cairn_client_report_free(struct cairn_client_report *report);
/* Copies what a report says of the save, since the save may be freed before the report is sent. The
 * lock is held. */
struct cairn_client_failed cairn_client_failed_of(const struct cairn_save *save);
/* Report that begin n of a step failed. The lock is not held. */
void cairn_client_report_add(struct cairn_session *session,
                             const struct cairn_client_failed *take_failed,
                             const struct cairn_error *why);
/* Queue the reports that were not sent over this link; the lock is held. */
void cairn_client_reports_send(struct cairn_session *session);
/* The link ended: all are sent again over the next one. The lock is held. */
void cairn_client_reports_unsent(struct cairn_session *session);
/* Takes the answer with this `id`; one that belongs to no report is dropped. The lock is held. */
void cairn_client_reports_answered(struct cairn_session *session, const struct cairn_frame *frame,
                                   uint64_t id);
/* End the save with this problem and report it. behind: for the thread that copies it, and no call
 * returns the problem yet. False: it was over before. */
bool cairn_client_save_give_up(struct cairn_save *save, const struct cairn_error *why, bool behind);
/* End the save with *err, report it, and give its generation back. Returns the code of *err, which
 * is the verdict's where the save had ended before. */
enum cairn_code cairn_client_save_fail(struct cairn_save *save, enum cairn_code code,
                                       struct cairn_error *err);

/* ---- the session's list of saves ---- */

/* Remove the saves whose handle was freed and that are committed, or failed with their problem
 * returned. The lock is held. */
void cairn_client_saves_sweep(struct cairn_session *session);
enum cairn_code cairn_client_saves_new(struct cairn_session *session,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_saves_free(struct cairn_session *session);
/* Empties the list; calls on the saves' handles fail from then on. The session is stopped, so no
 * other thread takes the lock. */
void cairn_client_saves_clear(struct cairn_session *session);
/* Before the session ends: waits until all failures are reported and, while the uploader is away,
 * until one has taken the offer. False: a signal ended the wait. */
bool cairn_client_saves_settle(struct cairn_session *session, uint64_t deadline_ms);
/* Returns a problem that no call has returned yet. Else CAIRN_UPLOADER_GONE, if the uploader is
 * gone and a staged save is not durable. */
enum cairn_code cairn_client_saves_last_problem(struct cairn_session *session, bool gone,
                                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- events of the uploader, and the offer to a new one (client/save/sink.c) ---- */

extern const struct cairn_client_sink cairn_client_saves_sink;
