/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: one rank's part of one version, from begin to the version's end.
 *
 * Why:     trainer, senders, server and journal know parts of a save; here all of it is decided.
 * Promise: 1   only the journal's fsync delays answers to begin and seal, never the server.
 *          2   each begun save ends in a seal or a fail at the server (Q8).
 *          3   its journal entry closes once the version is over and no request is in flight (Q16).
 *          4   its slab generation is given back when every shard is durable, failed or cancelled
 *              and no request carries its bytes (Q20) or copies them for its partner (Q57).
 *          5   a rank table is stored once in memory and once in the journal, in its own entry that
 *              ends with the last save or session that uses it. A save journaled with its digest
 *              finds it there after every restart and rewrite. Later seals name it once durable.
 *          9   streams' memory is given back like the slab, when the save needs no bytes again.
 *          6   the last store error of each shard and part is kept, with its count; beyond
 *              CAIRN_UP_ERRORS_MAX the oldest is replaced.
 *          Q8  the journal alone answers a begin; when it cannot take the record, the rank is
 *              refused and the server receives from memory that the rank gives the save up. A begin
 *              may repeat, from a trainer without an answer or one that reconnected.
 *          Q44 a count cancels a save that this process knows, also after its seal.
 *          7   a description is `copy` of api/messages.def: begin, seal, table, tokens, checksums;
 *              a partner may have to report and send all of it under the same tokens (Q57).
 * Limits:  65,536 shards a save; a table of CAIRN_TABLE_BYTES_MAX for each open session and save.
 * Threads: all fields not marked fixed are locked by uploader_state. Functions ending in _locked,
 *          and those of tables, need it held; the others take it.
 * Next:    uploader/server/outbox.h reports to the server; uploader/send/send.h moves the bytes.
 *
 * uploader/state/save.def has the phases; only cairn_up_save_event_locked moves a save and carries
 * out the actions due.
 */
#pragma once

#include "api/documents/names.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/error.h"
#include "common/json.h"
#include "common/trace.h"
#include "uploader/saves/ranks.h"
#include "uploader/saves/slabs.h"
#include "uploader/send/shards.h"
#include "uploader/state/save.h"
#include "uploader/up.h"

struct cairn_up_table {
    struct cairn_up_table *next;
    uint64_t entry; /* its own journal entry; 0: stored in a seal of an older format */
    uint32_t rank;
    uint32_t users;
    bool written;
    char hex[65];
    struct cairn_buf bytes;
};

/* Checks and copies the table, with one user. entry 0: from an older journal's seal. */
enum cairn_code cairn_up_table_new_locked(struct cairn_up *up, struct cairn_view bytes,
                                          uint64_t entry, struct cairn_up_table **ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Finds a journaled table without adding a user; NULL: none. */
struct cairn_up_table *cairn_up_table_find_locked(struct cairn_up *up, const char *hex);
/* The journal's record, whose blob is the table's bytes. */
json_t *cairn_up_table_record(const struct cairn_up_table *table);
struct cairn_up_table *cairn_up_table_use(struct cairn_up_table *table);
/* Drops one use; the last one closes the journal entry. */
void cairn_up_table_leave_locked(struct cairn_up *up, struct cairn_up_table **in_table);
/* Drops the tables that no save uses after a restart. */
void cairn_up_tables_sweep_locked(struct cairn_up *up);
void cairn_up_tables_free_all(struct cairn_up *up); /* at the end of the process */

#define CAIRN_UP_ERRORS_MAX 4

struct cairn_up_shard_error {
    char shard[160], text[200];
    uint32_t part; /* 0: the upload's begin or end, or its proof */
    uint32_t tries;
    uint64_t at_ms; /* mono clock */
};
struct cairn_up_errors {
    struct cairn_up_shard_error items[CAIRN_UP_ERRORS_MAX]; /* newest first */
    size_t count;
};
void cairn_up_errors_add(struct cairn_up_errors *errors, const char *shard, uint32_t part,
                         const char *text, uint64_t now_ms);

#define CAIRN_UP_SHARDS_MAX CAIRN_SHARDS_MAX

struct cairn_up_reply {
    uint64_t conn; /* 0: no request waits */
    int64_t request;
};

struct cairn_up_trouble { /* uploader/server/outbox.h */
    uint32_t tries;       /* in a row */
    uint64_t next_ms;
    bool reported; /* to its rank */
    struct cairn_error why;
};

struct cairn_up_partnering {             /* for uploader/partner/partner.h */
    char node[CAIRN_NAME_BYTES_MAX + 1]; /* the node with a whole, journaled copy; "": none */
    bool recovered;                      /* copied before the last restart */
    bool tokens_journaled;               /* before the partner receives them */
    bool handed;                         /* the partner must send: bytes lost here */
    bool reading;                        /* slab bytes are being copied for the partner */
    bool complained;
    uint64_t next_ms, since_ms; /* mono clock: the next try; the first or last good try */
    uint64_t told_conn;         /* the connection on which the trainer was told */
};

struct cairn_up_save {
    /* fixed */
    uint64_t entry; /* journal entry; the save's id in this process */
    struct cairn_up_attempt *attempt;
    struct cairn_version_place place;
    uint32_t rank, n;
    json_t *begin;                      /* reported to the server: step, n, rank, world_size, ... */
    char proc[CAIRN_UUID_TEXT_BYTES];   /* of the trainer that began it; "": an older journal */
    char trace[CAIRN_TRACE_TEXT_BYTES]; /* traceparent of that trainer; "": none */
    bool abort_on_disconnect;           /* abort when the connection ends without bye */
    /* locked by uploader_state */
    struct cairn_up_save_state state; /* moved only by cairn_up_save_event_locked */
    uint64_t conn;                    /* the trainer's connection; 0: gone */
    uint32_t number;                  /* the save's number on that connection */
    bool follows;                     /* the trainer awaits the seal of rank 0 ... */
    bool decided;                     /* ... which the server has */
    struct cairn_up_slab *slab;       /* while state.holds_slab */
    struct {                          /* slab of the journal's `stage` record; bytes 0: none */
        uint64_t device, inode, bytes;
    } staged_in;
    struct cairn_up_shard **shards; /* state.shard_count of them */
    size_t shard_capacity, stage_first, stage_count;
    uint32_t file_count;            /* shards that are files */
    uint32_t stream_count;          /* shards in streams' memory */
    bool streams_released;          /* that memory is no longer needed, and given back */
    uint32_t held_count;            /* file shards with an open descriptor */
    size_t unquiet, unended;        /* index of the last shard found busy; checked first */
    struct cairn_shard_names names; /* names in stage and file */
    struct cairn_up_table *table;   /* the seal's; NULL: none */
    json_t *replicated;             /* array, or NULL */
    json_t *labels, *meta;          /* from the seal, replacing the begin's; or NULL */
    uint64_t total_bytes;
    uint32_t copy_threads;           /* threads of the trainer's copy; 0: unknown */
    uint64_t copy_rate;              /* bytes a second; 0: unknown */
    char stale[201];                 /* the trainer reports an unchanged save; "": no */
    uint64_t unsaid_bytes, said_ms;  /* files: acknowledged since the last `released` */
    uint64_t begun_us, described_us; /* mono clock; 0: earlier process, or already measured */
    uint64_t stall_ms;               /* the trainer's stall; CAIRN_MESSAGE_NONE: unknown */
    uint64_t polled_ms;              /* when a watcher last polled the outcome */
    struct cairn_up_held *held;      /* ended, verdict held back (uploader/server/outbox.h) */
    struct cairn_up_trouble trouble; /* failures of the server's requests */
    struct cairn_up_partnering partner;
    char store_error[200];         /* the last failed request, with its shard; "" */
    struct cairn_up_errors errors; /* last errors of each shard and part */
    struct cairn_up_reply begin_reply, seal_reply, fail_reply; /* waiting requests */
    enum cairn_up_end end;
    struct cairn_error why; /* its fail, or an end other than committed */
};

struct cairn_up_begin {
    const char *grant_text; /* or `attempt` is set */
    struct cairn_up_attempt *attempt;
    uint64_t conn;
    uint32_t number;
    const char *session, *proc;
    const char *trace; /* traceparent; NULL or "": none */
    uint32_t rank, world_size;
    bool of_partner; /* sent for another node: its rank's counts are unknown here (Q12) */
    struct cairn_msg_begin told; /* borrowed */
};
/* Makes an unjournaled save, for begin and replay. */
enum cairn_code cairn_up_save_new_locked(struct cairn_up *up, uint64_t entry,
                                         const struct cairn_up_begin *begin,
                                         struct cairn_up_save **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Undoes new_locked; the journal has no record of the save. */
void cairn_up_save_drop_locked(struct cairn_up *up, struct cairn_up_save *save);
struct cairn_up_save *cairn_up_save_find_locked(struct cairn_up *up, uint64_t entry);
struct cairn_up_save *cairn_up_save_of_locked(struct cairn_up *up, uint64_t conn, uint32_t number);
/* Finds a save by version and rank, for offers and repeated begins. */
struct cairn_up_save *cairn_up_save_known_locked(struct cairn_up *up, const char *version,
                                                 uint32_t rank);
/* Adds a shard; sets entry, index and key of the options. past: its journal records, or NULL. */
enum cairn_code cairn_up_save_shard_new_locked(struct cairn_up *up, struct cairn_up_save *save,
                                               struct cairn_up_shard_options *options,
                                               const struct cairn_up_shard_past *past,
                                               struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_up_save_begin_record(const struct cairn_up_save *save); /* for the journal */
/* The begin's trace context, or one derived from the version's id. */
void cairn_up_save_trace(const struct cairn_up_save *save, struct cairn_trace *ret);
json_t *cairn_up_save_begun(const struct cairn_up_save *save);  /* for the trainer */
json_t *cairn_up_save_sealed(const struct cairn_up_save *save); /* for the trainer */

/* True while the save follows rank 0, is known to the server and may still be committed. */
bool cairn_up_save_awaits_decision(const struct cairn_up_save *save);
/* Moves the save by its table and carries out actions due; may free the save. */
void cairn_up_save_event_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_event event);
struct cairn_up_record;
/* Journals the records of the phase; WRITTEN or UNWRITTEN follows unless this call fails. */
enum cairn_code cairn_up_save_post_locked(struct cairn_up *up, struct cairn_up_save *save,
                                          const struct cairn_up_record *records, size_t count,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Copies what a seal adds to the table; each may be NULL. CAIRN_NO_MEMORY. */
enum cairn_code cairn_up_save_set_sealed(struct cairn_up_save *save, const json_t *replicated,
                                         const json_t *labels, const json_t *meta,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Makes the save the owner of the generation. False: another save owns it. */
bool cairn_up_save_slab_take_locked(struct cairn_up_save *save, struct cairn_up_slab *slab);
/* Q19, the server lost the save: HEADs every object, then reports everything again. */
void cairn_up_save_report_again_locked(struct cairn_up *up, struct cairn_up_save *save);

/* Fails the save at the server and gives up its shards. No effect when it is over. */
void cairn_up_save_fail_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_code code, const char *reason);
/* fail_locked with the whole error. */
void cairn_up_save_fail_for_locked(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_error *why);
/* Ends the save with its version and sends the verdict to the trainer. */
void cairn_up_save_over_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_up_end end, enum cairn_code code, const char *message);
void cairn_up_save_end_locked(struct cairn_up *up, struct cairn_up_save *save,
                              enum cairn_up_end end, const struct cairn_error *why);
/* Gives back slab and journal entry when possible; may free the save. */
void cairn_up_save_settle_locked(struct cairn_up *up, struct cairn_up_save *save);
void cairn_up_save_free_all(struct cairn_up *up); /* at the end of the process */
/* The trainer disconnected: unsealed saves fail, sealed ones go on, but for abort_on_disconnect. */
void cairn_up_save_orphan_locked(struct cairn_up *up, uint64_t conn, bool said_bye);
/* True when all bytes that a trainer has in memory are here: its slab, and its streams. */
bool cairn_up_save_is_here_locked(struct cairn_up *up, const struct cairn_up_save *save);
/* The shard's bytes in the slab or the stream's memory; NULL: not here. */
const uint8_t *cairn_up_save_bytes_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                          size_t index);
/* True when the slab is the memory of the save's `stage` record. */
bool cairn_up_save_is_staged_in(const struct cairn_up_save *save, const struct cairn_up_slab *slab);
/* Notes a failed request of a shard, retried or not, for the reason why a save waits. */
void cairn_up_save_store_error(struct cairn_up *up, uint64_t entry, const char *shard,
                               uint32_t part, const struct cairn_error *why);
/* Counts saves with work due; ret_open (or NULL): all open but those that await trainers. */
uint64_t cairn_up_save_unfinished(struct cairn_up *up, uint64_t *ret_open);

/* The journal's callback `lost` (Q45). */
void cairn_up_save_unwritten(void *owner_up, uint64_t entry, const struct cairn_error *why);

/* ---- called by the senders, with no lock held ---- */
struct cairn_up_acked {
    uint64_t offset, bytes;
    uint64_t link_us, store_us; /* parts of its time; 0 in either: unknown */
};
void cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index,
                              const struct cairn_up_acked *acked);
/* why NULL: the shard is durable. */
void cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                               const struct cairn_error *why);
void cairn_up_save_settle(struct cairn_up *up, uint64_t entry);

/* Reads a begin from the frames begin and count or the journal's record. Leaves attempt, rank and
 * connection; texts and objects are borrowed. */
enum cairn_code cairn_up_begin_read(const json_t *json, const char *pointer,
                                    struct cairn_up_begin *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* Each answers the request once the journal has it (save.h#1), unless it fails at once. */
enum cairn_code cairn_up_save_begin(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Begins and fails a save whose begin never came. */
enum cairn_code cairn_up_save_count(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    const struct cairn_error *why, struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Q12: makes a failing save for an open version that the rank will not begin. */
enum cairn_code cairn_up_save_abandoned_locked(struct cairn_up *up,
                                               const struct cairn_up_begin *begin,
                                               const struct cairn_error *why,
                                               struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_UP_DESCRIPTION_BYTES_MAX (16 * CAIRN_MIB)

/* CAIRN_NOT_FOUND: not fully staged here, or it has files. */
enum cairn_code cairn_up_save_describe_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                              struct cairn_buf *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
