/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: one rank's part of one version, from begin to the version's end.
 *
 * Why:     the trainer, the senders, the server and the journal each know a piece of a save; what
 *          may be said to whom and when is decided here.
 * Promise: S1  begin and seal are answered after the journal's fsync and nothing else: a server
 *              that is away costs no stall.
 *          S2  each save that was begun ends in a seal or a fail at the server (Q8).
 *          S3  its journal entry is closed when the version is over and nothing of it is on the
 *              wire, never before (Q16).
 *          S4  its slab generation is given back when every shard is durable, failed or cancelled
 *              and no request carries its bytes (Q20).
 * Limits:  65,536 shards a save.
 * Threads: all fields are locked by uploader_state unless they are called fixed. Functions ending
 *          in _locked need it held; the others take it.
 * Next:    uploader/outbox.h tells the server; uploader/send.h moves the bytes.
 *
 *   begun --stage, file--> described --seal--> sealed --all durable, told--> over (committed)
 *      \---------- fail, trainer gone, verdict of the server ----------> failing, over
 */
#pragma once

#include "common/json.h"
#include "uploader/attempt.h"
#include "uploader/send.h"
#include "uploader/slabs.h"

#define CAIRN_UP_SHARDS_MAX 65536

enum cairn_up_end {
    CAIRN_UP_OPEN,
    CAIRN_UP_COMMITTED,
    CAIRN_UP_SKIPPED,
    CAIRN_UP_REFUSED,
    CAIRN_UP_ABORTED,
    CAIRN_UP_FAILED,
};

struct cairn_up_save {
    /* fixed */
    uint64_t entry; /* in the journal; names the save inside this process */
    struct cairn_up_attempt *attempt;
    struct cairn_version_place place;
    uint32_t rank, n;
    json_t *begin; /* what the server is told: step, n, rank, world_size, ... */
    /* locked by uploader_state */
    uint64_t conn;   /* the trainer's connection; 0: gone */
    uint32_t number; /* the save's number on that connection */
    struct cairn_up_slab *slab;
    struct { /* what the journal says of the slab that it was staged in; bytes 0: nothing */
        uint64_t device, inode, bytes;
    } staged_in;
    struct cairn_up_shard **shards;
    size_t shard_count, shard_capacity, stage_first, stage_count;
    bool described;              /* stage was taken */
    bool begun, sealing, sealed; /* begun, sealed: on the disk */
    bool failing, over, closed;
    bool recovered; /* came from the journal and no trainer has come for it yet */
    bool restages;  /* described before a restart, not sealed: `stage` comes once more, as it was */
    /* Its trainer had sealed it before a restart and the journal does not have it: watchers ask the
     * server how it ended, and nothing else is done for it. */
    bool unjournaled;
    struct cairn_buf table;
    char table_hex[65]; /* "": none */
    json_t *replicated; /* array, or NULL */
    uint64_t total_bytes;
    size_t durable_count;
    struct {
        bool begin, seal, fail;
    } told; /* answered by the server */
    bool durable_said;
    uint64_t asked_ms;    /* when a watcher last asked how it ended */
    bool fail_waits;      /* a request of the trainer waits for the server's word */
    int64_t fail_request; /* its id */
    enum cairn_up_end end;
    struct cairn_error why;
};

struct cairn_up_begin {
    const char *grant_text; /* or attempt */
    struct cairn_up_attempt *attempt;
    uint64_t conn;
    uint32_t number;
    const char *session;
    uint32_t rank, world_size, n;
    uint64_t step;
    const char *on_exists, *format;
    bool skip;
    json_t *labels, *meta, *split; /* borrowed, may be NULL */
};
/* Make it, without the journal (replay uses it too). */
enum cairn_code cairn_up_save_new_locked(struct cairn_up *up, uint64_t entry,
                                         const struct cairn_up_begin *begin,
                                         struct cairn_up_save **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Undo new_locked: nothing of it was journaled. */
void cairn_up_save_drop_locked(struct cairn_up *up, struct cairn_up_save *save);
struct cairn_up_save *cairn_up_save_find_locked(struct cairn_up *up, uint64_t entry);
struct cairn_up_save *cairn_up_save_of_locked(struct cairn_up *up, uint64_t conn, uint32_t number);
/* By version and rank: offers, and the journal's duplicates. */
struct cairn_up_save *cairn_up_save_known_locked(struct cairn_up *up, const char *version,
                                                 uint32_t rank);
enum cairn_code cairn_up_save_shard_add_locked(struct cairn_up *up, struct cairn_up_save *save,
                                               struct cairn_up_shard *take_shard,
                                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_up_save_key(const struct cairn_up_save *save, const char *shard_name,
                       struct cairn_key *ret);

/* The save fails at the server; its shards are given up. Nothing happens when it is over. */
void cairn_up_save_fail_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_code code, const char *reason);
/* The same with all that is known of the cause. */
void cairn_up_save_fail_for_locked(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_error *why);
/* The version is over, for whatever reason; tells the trainer. */
void cairn_up_save_over_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_up_end end, enum cairn_code code, const char *message);
void cairn_up_save_end_locked(struct cairn_up *up, struct cairn_up_save *save,
                              enum cairn_up_end end, const struct cairn_error *why);
/* Slab and entry are given back where they can be; save may be gone afterwards. */
void cairn_up_save_settle_locked(struct cairn_up *up, struct cairn_up_save *save);
void cairn_up_save_free_all(struct cairn_up *up); /* at the end of the process */
/* A trainer's connection ended: unsealed saves fail, sealed ones go on. */
void cairn_up_save_orphan_locked(struct cairn_up *up, uint64_t conn);
bool cairn_up_save_is_durable_locked(const struct cairn_up_save *save);
/* Is that the memory which the journal names? */
bool cairn_up_save_is_staged_in(const struct cairn_up_save *save, const struct cairn_up_slab *slab);
/* How many saves must still be sent, told or cleared away; ret_open (or NULL): all that the journal
 * holds open but for those that wait for a trainer. */
uint64_t cairn_up_save_unfinished(struct cairn_up *up, uint64_t *ret_open);

/* ---- called by the senders, with no lock held ---- */
void cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index, uint64_t offset,
                              uint64_t bytes);
/* why NULL: durable. */
void cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                               const struct cairn_error *why);
void cairn_up_save_settle(struct cairn_up *up, uint64_t entry);

/* ---- called by sessions ---- */
struct cairn_up_reply {
    uint64_t conn;
    int64_t request;
};
/* Each answers the request itself when the journal has it (S1), unless it fails at once. */
enum cairn_code cairn_up_save_begin(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_stage(struct cairn_up *up, uint64_t conn, const json_t *message,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_file(struct cairn_up *up, uint64_t conn, const json_t *message,
                                   int take_fd, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_staged(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_seal(struct cairn_up *up, const json_t *message,
                                   struct cairn_view table, struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_fail(struct cairn_up *up, uint32_t number, const char *reason,
                                   struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* A begin that never came: begin and fail in one. */
enum cairn_code cairn_up_save_count(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    const char *reason, struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
