/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: one save of one rank, from its counted begin to the verdict on its version.
 *
 *     counted -> copying -> staged -> committed
 *                    \        /  \
 *                     copied      failed <-> cancelled
 *
 * Why:     a save outlives its handle: bytes are sent, and failures reported to the uploader and
 *          the caller, even after cairn_save_free.
 * Promise: Q8a n is counted before anything else in begin can fail. The same n is the same begin,
 *              however often it is sent; a failed begin stays in `reports` until an uploader has
 *              journaled it.
 *          Q14 a save waits only for its own slab generation.
 *          Q41 `free` frees a generation only if its owner matches here, and a slab is offered only
 *              for the save that owns it.
 *          Q44 a save given up after its seal is cancelled: only a commit overrides this.
 *          Q50 labels and meta accepted here are accepted by the server (api/wire/messages.h).
 *          P4  sources are read while training stands still in a call, or between
 *              cairn_save_stage_begin and its fence, each byte once.
 *          1   every save ends committed or with one problem, which some call returns; a failed
 *              save is kept until then. A verdict ends a save even after its handle was freed.
 *          2   a save copied while the uploader was away is sealed by the I/O thread with the next
 *              uploader, even after its handle was freed; so is a save begun meanwhile in a free
 *              generation (Q43).
 *          3   a phase changes only by a row of client/save/state.def; a reached milestone stays
 *              reached, even if the save fails later.
 *          4   a change is recorded without a descriptor, too, so a descriptor created later is
 *              readable for it (include/cairn/poll.h).
 *          5   without a descriptor a save costs no system call for notification; with one it costs
 *              one per change that was polled.
 *          6   the progress function runs on the thread that is in a call on the handle, without
 *              locks, only when a figure changed. The call reports its own milestone before it
 *              returns CAIRN_OK.
 *          7   labels and meta of a later call replace earlier ones; omitted ones stay. They travel
 *              with the seal.
 *          8   the second consecutive begin that finds an earlier save under way raises a session
 *              warning (cairn_session_warning) with measurements; a begin that finds none resets
 *              the count; one warning per series.
 * Limits:  8 dimensions; 1 MiB of names in one `stage` frame and in the replicated checksums. A
 *          report that finds no memory is dropped; the uploader detects the gap in the counts
 *          (Q12).
 * Threads: pieces, raws, files and shares belong to the handle's caller; the session's lock guards
 *          the fields marked so, the list of saves and the reports.
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

/* ---- states, by client/save/state.def ---- */

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
/* False: no such move, nothing changed. */
bool cairn_client_save_state_move(struct cairn_client_save_state *save,
                                  enum cairn_client_event event);
/* Committed, failed or cancelled. */
bool cairn_client_save_state_is_over(const struct cairn_client_save_state *save);
/* Sealed at an uploader, but not every shard is durable. */
bool cairn_client_save_state_is_unsent(const struct cairn_client_save_state *save);

/* ---- names of many pieces, in few allocations, with one owner ---- */

struct cairn_client_texts {
    struct cairn_client_text *newest; /* newest chunk; NULL: none */
};
/* Copies the text; NULL: no memory. */
char *cairn_client_texts_keep(struct cairn_client_texts *texts, const char *text);
void *cairn_client_texts_keep_bytes(struct cairn_client_texts *texts, const void *data,
                                    size_t bytes);
void cairn_client_texts_release(struct cairn_client_texts *texts);

/* ---- the save ---- */

#define CAIRN_CLIENT_NO_FILE UINT32_MAX

/* A described piece. Offsets are within its shard, known after arranging. */
struct cairn_client_piece {
    char *name; /* like alias_of and in_file: in the texts of its save or known pieces */
    unsigned dtype;
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    enum cairn_tensor_kind kind;
    char *alias_of; /* NULL unless ALIAS */
    enum cairn_form form;
    struct cairn_fragment fragment;
    uint64_t bytes; /* 0: an alias, or an empty piece */
    uint64_t tensor_bytes;
    const void *source;
    unsigned source_dtype;         /* elements' type in source; dtype if not converted */
    struct cairn_strided *strided; /* owned, if not by known pieces; NULL: row-major, contiguous */
    int (*fill)(void *owner, uint64_t offset, void *to, uint64_t bytes); /* NULL: use source */
    void *fill_owner;
    uint64_t source_from; /* offset of the piece in the bytes of strided or fill */
    bool on_device;
    void *stream;   /* the stream that writes source */
    bool by_caller; /* the caller writes the bytes into the slab */
    bool written;   /* the caller declared them written */
    bool late;      /* described after the copy of the others */
    char *in_file;  /* NULL: bytes come from source */
    uint64_t file_offset;
    uint32_t source_index;   /* index of the caller's described source */
    uint64_t source_offset;  /* the piece's offset in that source */
    _Atomic uint32_t crc32c; /* of a replicated piece, after the copy */
};
/* A shard other than the tensors shard. */
struct cairn_client_raw {
    char *name; /* owned, as stored */
    const void *source;
    uint64_t bytes;
    uint32_t source_index;
    bool file; /* the uploader sends it from a descriptor */
};
/* A closed stream in memory of its own (client/save/streams.c), sealed against every change. */
struct cairn_client_memory {
    char *shard;   /* its name as stored; owned */
    uint8_t *crcs; /* u32le CRC32C of each block; owned */
    uint64_t bytes;
    int fd;         /* owned */
    uint32_t epoch; /* link whose uploader has it; 0: none */
};
/* A shard in the slab and the bytes that the store acknowledged. */
struct cairn_client_sent {
    char *name; /* owned */
    uint64_t bytes, released_bytes;
};
/* A condition that delays a save without failing it; kept while it lasts. */
struct cairn_client_trouble {
    struct cairn_error why; /* CAIRN_OK: none */
    uint64_t since_ms;
};
/* Tensors of replica groups that a save still needs (client/save/split.h). */
struct cairn_client_shares {
    struct cairn_split *const *splits; /* borrowed */
    size_t count;
    uint32_t **seen; /* per split and piece: the call that described it; 0: none; owned */
    uint32_t call;   /* the describing call under way */
};
/* A copy and its state (client/save/stager.h). */
struct cairn_client_stager;
/* A save that a library thread copies and seals (client/save/stage.c). */
struct cairn_client_behind {
    bool busy;   /* the thread owns pieces and generation */
    bool reads;  /* sources are still needed */
    bool inside; /* the thread is reading sources now */
    bool queued; /* all device copies are queued */
    bool fenced;
    struct cairn_client_stager *stager; /* set until the thread is done */
    uint32_t users;                     /* calls that use the stager's device copies */
};
/* The layout of the last save (client/save/arrange.h). */
struct cairn_client_arrangement;

struct cairn_save {
    struct cairn_session *session; /* NULL once the session is closed */
    uint64_t step;
    uint32_t n;
    int generation;        /* -1: none */
    json_t *begin;         /* body of `begin`, to repeat it at a new uploader; owned */
    json_t *labels, *meta; /* set after the begin, sent with `seal`; owned, or NULL */
    uint32_t file_epoch;   /* link that received the files' descriptors; 0: none */
    struct cairn_client_piece *pieces;
    size_t piece_count, piece_capacity;
    struct cairn_client_texts texts;
    uint32_t source_count;      /* described pieces and raws */
    uint64_t number;            /* number of its description (client/save/arrange.h) */
    struct cairn_pieces *known; /* described the first pieces; held; NULL: none */
    const void **sources;       /* sources passed with `known`; owned; NULL: its own */
    struct cairn_shard_names raw_names;
    struct cairn_client_raw *raws;
    size_t raw_count, raw_capacity;
    struct cairn_client_shares shares;
    struct cairn_split *
        *lists; /* the splits of `shares`, kept with the save; client/save/split.h */
    size_t list_count;
    void **owned; /* bytes of closed streams, kept as long as the pieces; owned */
    size_t owned_count, owned_capacity;
    uint64_t stream_bytes;
    struct cairn_client_stager *kept; /* placed or copied, not sealed; owned */
    void (*progress)(void *owner, const struct cairn_save_status *status);
    void *progress_owner;
    bool verify_sources;                /* the fence compares sources with the copy */
    struct cairn_save_status told;      /* last status passed to progress */
    _Atomic uint64_t stall_us, wait_us; /* written by the caller's thread */

    /* guarded by the session's lock */
    TAILQ_ENTRY(cairn_save) place;
    _Atomic uint64_t id; /* uploader's id; 0: unknown to the present uploader */
    uint64_t owner;      /* number of this save as its generation's owner; 0 while id is 0 */
    char version[48];
    uint64_t total_bytes, sent_bytes;
    uint64_t link_us, store_us;     /* time of sent bytes on the link and in the store */
    uint64_t staged_bytes;          /* copied into the slab */
    uint64_t copied_ms;             /* time the copy began */
    uint64_t durable_ms;            /* time it became durable; 0: not yet */
    struct cairn_client_sent *sent; /* by shard number in `stage`; owned */
    size_t sent_count;
    struct cairn_client_memory *streams; /* until the save is durable or over; owned */
    size_t stream_count, stream_capacity;
    bool offering;                        /* the I/O thread is sending them to a new uploader */
    struct cairn_client_save_state state; /* changed only by cairn_client_save_event */
    struct cairn_client_behind behind;
    bool copied; /* everything described so far is copied: CAIRN_COPIED */
    struct {     /* the thread in calls that change the save */
        pthread_t thread;
        uint32_t depth;                       /* nesting; 0: no thread */
        void (*end)(struct cairn_save *save); /* deferred cairn_save_free */
    } user;
    uint32_t visitors;         /* other calls under way: until they end the save is kept */
    bool freed;                /* cairn_save_free was called */
    struct cairn_pieces *last; /* its contents, for cairn_save_again; held; or NULL */
    const void **last_sources; /* as `sources`; owned */
    bool partnered;            /* another node has a copy */
    bool follows;              /* waits for rank 0's seal */
    bool decided;              /* the server has rank 0's seal */
    bool seal_sent;            /* sent to some uploader; the answer may be lost */
    struct cairn_client_late late_begin, late_stage; /* K35 */
    bool lent_before;                                /* the generation, before the late stage */
    bool problem_returned;
    struct cairn_client_stager *handed_over; /* copied while the uploader was away; owned */
    bool finishing;                          /* the I/O thread is sending it */
    bool parked; /* COPYING, between cairn_save_copy and _seal: no thread works on it */
    struct cairn_error problem;
    struct cairn_error notice; /* to be reported, though the save has not failed; CAIRN_OK: none */
    struct cairn_client_trouble trouble; /* the server keeps failing it; stays after notice */
    char *waits_for; /* why it is not committed, by the server's last answer; owned */
    bool misused;    /* a describing call was refused */
    bool changed;    /* since the last cairn_save_poll */
    int fd;          /* -1: cairn_save_fd was not called */
};

/* Q41: only the save that took a generation writes to it; neither held nor lent means free. */
struct cairn_client_generation {
    struct cairn_save *held; /* the save that may write into it */
    uint64_t owner;          /* `owner` from `begun` of the save whose bytes it holds; 0: none */
    bool lent;               /* the uploader reads it until `free` for that owner */
};
/* Block checksums of the last save; client/save/stager.h. */
struct cairn_client_stale {
    uint64_t step;    /* of the last save */
    uint32_t *blocks; /* its checksums; owned */
    uint8_t *follows; /* per block: changed in every save so far; owned */
    size_t count;
    uint32_t compared; /* comparisons with the previous save */
    bool is_stale;
};
/* One per session, guarded by its lock. */
struct cairn_client_saves {
    TAILQ_HEAD(, cairn_save) all; /* in order of begin */
    TAILQ_HEAD(, cairn_client_report) reports;
    struct cairn_client_generation generations[CAIRN_CLIENT_GENERATIONS_MAX];
    bool reserving;                /* generations are being replaced: none can be taken */
    struct cairn_error unreserved; /* why there are none; CAIRN_OK: requested, or never needed */
    struct cairn_error notice;     /* not about one save; CAIRN_OK: none */
    struct cairn_client_trouble store, server; /* unreachable from this node */
    bool finishing, finish_again;              /* a thread tells copies; it is to look again */
    uint32_t behind_count;                     /* threads of client/save/stage.c */
    const struct cairn_save *copier;           /* the save whose turn it is to be copied */
    uint32_t late_in_row;                  /* consecutive begins that found an unfinished save */
    size_t stream_count;                   /* streams in memory of their own, of all saves */
    struct cairn_error late;               /* pending warning; CAIRN_OK: none */
    struct cairn_client_arrangement *kept; /* for a save with the same layout; owned; NULL: none */
    struct cairn_client_stale stale;
    struct cairn_error stale_warning; /* pending warning; CAIRN_OK: none */
};

/* Finds a save by the uploader's id; the lock is held. */
struct cairn_save *cairn_client_save_find(struct cairn_session *session, uint64_t id);
/* Moves the save by client/save/state.def; the lock is held. */
void cairn_client_save_event(struct cairn_save *save, enum cairn_client_event event);
/* Notifies: a milestone, the end, or a change of the uploader. The lock is held. */
void cairn_client_save_changed(struct cairn_save *save);
/* Ends the save with this problem unless it already ended; the lock is held. */
void cairn_client_save_end(struct cairn_save *save, const struct cairn_error *why);
bool cairn_client_save_over(const struct cairn_save *save);
/* Frees pieces and names, which a sealed or ended save no longer needs. */
void cairn_client_save_drop_pieces(struct cairn_save *save);
/* Keeps them for cairn_save_again while the handle lives, else frees them. */
void cairn_client_save_retire_pieces(struct cairn_save *save);
/* First line of every call on a save handle. */
enum cairn_code cairn_client_save_enter(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* First line of a call in which any number of threads may be: until it ends cairn_save_free
 * destroys nothing that it uses. */
enum cairn_code cairn_client_save_visit(struct cairn_save *save,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_save_unvisit_at(struct cairn_save **save);
#define CAIRN_CLIENT_SAVE_CALL(save, err)                                                          \
    CAIRN_TRY(cairn_client_save_visit((save), (err)));                                             \
    __attribute__((cleanup(cairn_client_save_unvisit_at)))                                         \
    CAIRN_UNUSED struct cairn_save *cairn_visited = (save)
/* First line of a call that describes, copies or ends the save. One thread at a time may be in such
 * calls, also nested. CAIRN_INVALID: another thread is in one. */
enum cairn_code cairn_client_save_take(struct cairn_save *save,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Ends the call, and runs a deferred cairn_save_free. */
void cairn_client_save_untake_at(struct cairn_save **save);
#define CAIRN_CLIENT_SAVE_OWN_CALL(save, err)                                                      \
    CAIRN_TRY(cairn_client_save_take((save), (err)));                                              \
    __attribute__((cleanup(cairn_client_save_untake_at)))                                          \
    CAIRN_UNUSED struct cairn_save *cairn_own_call = (save)
/* Counts the rest of the caller's scope as time for which the save stopped its caller, unless an
 * outer call counts it. Behind CAIRN_CLIENT_SAVE_OWN_CALL. */
struct cairn_client_stall {
    struct cairn_save *save;
    uint64_t since_us; /* 0: an outer call counts */
};
struct cairn_client_stall cairn_client_stall_begin(struct cairn_save *save);
void cairn_client_stall_end(struct cairn_client_stall *stall);
#define CAIRN_CLIENT_DESCRIBE_CALL(save, err)                                                      \
    CAIRN_CLIENT_SAVE_OWN_CALL((save), (err));                                                     \
    __attribute__((cleanup(cairn_client_stall_end)))                                               \
    CAIRN_UNUSED struct cairn_client_stall cairn_stall = cairn_client_stall_begin(save)
/* CAIRN_INVALID, prefixed by run and step. */
#define CAIRN_CLIENT_REFUSE(save, err, text, ...)                                                  \
    cairn_client_save_about((save),                                                                \
                            cairn_fail((err), CAIRN_INVALID, "%s step %" PRIu64 ": " text,         \
                                       (save)->session->run, (save)->step, ##__VA_ARGS__),         \
                            (err))
/* Notes run, step and rank in the error of a call on the save; returns code. */
enum cairn_code cairn_client_save_about(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err);
/* CAIRN_OK: pieces may be added. CAIRN_INVALID: it is staged. Else the problem that ended it. */
enum cairn_code cairn_client_save_describable(struct cairn_save *save,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Prefixes the error with run, step and rank, and with n from the step's second save on, so that it
 * identifies one save (Q43). Returns code. */
enum cairn_code cairn_client_save_named(const struct cairn_save *save, enum cairn_code code,
                                        struct cairn_error *err);
/* Returns the problem that ended the save, named; sets problem_returned. */
enum cairn_code cairn_client_save_problem(struct cairn_save *save, struct cairn_error *err);
/* The thread of cairn_save_stage_begin reads the sources, or will. The lock is held. */
bool cairn_client_save_reads(const struct cairn_save *save);
/* Copy or upload is unfinished. The lock is held. */
bool cairn_client_save_under_way(const struct cairn_save *save);
/* Notes the journaled seal: milestone staged. */
void cairn_client_save_sealed(struct cairn_save *save);
/* The save stops writing to its generation; the lock is held. */
void cairn_client_save_give(struct cairn_save *save);
/* The generation holds this save's bytes, and they are needed. The lock is held. */
bool cairn_client_save_owns(const struct cairn_save *save, uint32_t generation);

/* ---- begin.c, wait.c ---- */

/* Sends `begin` to an uploader that does not know the save; sets save->id. alone: over a link that
 * this thread has exclusively. epoch 0: any link. */
enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Takes the answer to a begin whose call went on without it (K35). The lock is held. */
void cairn_client_save_begun_late(struct cairn_save *save, const struct cairn_frame *answer);
/* CAIRN_UNSUPPORTED: this uploader accepts no labels and meta with the seal. */
enum cairn_code cairn_client_meta_can_be_sealed(struct cairn_session *session,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Calls the program's progress function, unlocked, while figures change, at most until until_ms. */
void cairn_client_progress_tell(struct cairn_save *save, uint64_t until_ms);

/* ---- reports of failures ---- */

/* A begin to end as failed at the server: by `count`, or by `fail` if the uploader knows it. */
struct cairn_client_failed {
    uint64_t save; /* its id; 0: unknown to the uploader */
    uint64_t step;
    uint32_t n;
    json_t *begin; /* owned; the `begin` message with options; NULL: none was made */
};
struct cairn_client_report {
    TAILQ_ENTRY(cairn_client_report) place;
    struct cairn_client_failed of;
    uint64_t request; /* `id` of its message on this link; 0: not sent */
    struct cairn_error why;
};
void cairn_client_report_free(struct cairn_client_report *report);
/* Copies a save's data for a report, which may outlive the save. The lock is held. */
struct cairn_client_failed cairn_client_failed_of(const struct cairn_save *save);
/* Reports begin n of a step as failed. The lock is not held. */
void cairn_client_report_add(struct cairn_session *session,
                             const struct cairn_client_failed *take_failed,
                             const struct cairn_error *why);
/* Queues reports not yet sent on this link; the lock is held. */
void cairn_client_reports_send(struct cairn_session *session);
/* The link ended: marks all reports for resending. The lock is held. */
void cairn_client_reports_unsent(struct cairn_session *session);
/* Handles the answer `id`; ignores it if no report has that id. The lock is held. */
void cairn_client_reports_answered(struct cairn_session *session, const struct cairn_frame *frame,
                                   uint64_t id);
/* Ends the save with this problem and reports it. behind: called by the copying thread, no call
 * returns the problem yet. False: the save was over. */
bool cairn_client_save_give_up(struct cairn_save *save, const struct cairn_error *why, bool behind);
/* Ends the save with *err, reports it, and releases its generation. Returns the code of *err, which
 * becomes the earlier verdict if the save had ended. */
enum cairn_code cairn_client_save_fail(struct cairn_save *save, enum cairn_code code,
                                       struct cairn_error *err);

/* ---- the session's list of saves ---- */

/* Frees freed saves that are committed, or failed with the problem returned. The lock is held. */
void cairn_client_saves_sweep(struct cairn_session *session);
enum cairn_code cairn_client_saves_new(struct cairn_session *session,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_client_saves_free(struct cairn_session *session);
/* Empties the list; later calls on the handles fail. The session is stopped: no other threads. */
void cairn_client_saves_clear(struct cairn_session *session);
/* Before the session ends: waits until all failures are reported and, if the uploader is away,
 * until one took the offer. False: a signal ended the wait. */
bool cairn_client_saves_settle(struct cairn_session *session, uint64_t deadline_ms);
/* Returns a problem that no call has returned. Else CAIRN_UPLOADER_GONE, if the uploader is gone
 * and a staged save is not durable. */
enum cairn_code cairn_client_saves_last_problem(struct cairn_session *session, bool gone,
                                                struct cairn_error *err) CAIRN_MUST_USE;

/* ---- describing (pieces.c) ---- */

/* Nothing is added between layout and copy, and after the copy neither files nor pieces that the
 * caller writes into the slab. */
enum cairn_code cairn_client_save_extensible(struct cairn_save *save, bool early_only,
                                             struct cairn_error *err) CAIRN_MUST_USE;
/* Describes a shard whose bytes the uploader gets by a descriptor. */
enum cairn_code cairn_client_save_add_file(struct cairn_save *save, const char *name,
                                           uint64_t bytes, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- events of the uploader, and the offer to a new one (client/save/sink.c) ---- */

extern const struct cairn_client_sink cairn_client_saves_sink;
