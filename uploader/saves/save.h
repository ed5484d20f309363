/* SPDX-License-Identifier: Apache-2.0 */
/*
 * save: one rank's part of one version, from begin to the version's end.
 *
 * Why:     the trainer, the senders, the server and the journal each know a piece of a save; what
 *          may be said to whom and when is decided here.
 * Promise: 1   begin and seal are answered after the journal's fsync and nothing else: a server
 *              that is away costs no stall.
 *          2   each save that was begun ends in a seal or a fail at the server (Q8).
 *          3   its journal entry is closed when the version is over and nothing of it is on the
 *              wire, never before (Q16).
 *          4   its slab generation is given back when every shard is durable, failed or cancelled
 *              and no request carries its bytes (Q20), nor are any copied for its partner (Q57).
 *          5   a rank table stands once in memory and once in the journal, in an entry of its own
 *              that ends when no save and no session uses it; a save that was journaled with its
 *              digest finds it there after every restart and every rewrite. A later seal names it
 *              once its record is on the disk, and not before.
 *          6   of each shard and part the store's last error is kept, and how often there was one;
 *              of more than CAIRN_UP_ERRORS_MAX the one that is longest ago makes room.
 *          Q8  the journal alone answers a begin; where it cannot take one, its rank is refused and
 *              the server hears from memory that the rank gives the save up. The same begin may
 *              come twice, from a trainer that had no answer or from one that came back.
 *          Q44 what this process knows is cancelled by a count, also after its seal.
 *          7   a description is `copy` of api/messages.def: begin, seal, table, tokens, checksums;
 *              a partner may have to tell and send all of it under the same tokens (Q57).
 * Limits:  65,536 shards a save; a table of CAIRN_TABLE_BYTES_MAX for each open session and save.
 * Threads: all fields are locked by uploader_state unless they are called fixed. Functions ending
 *          in _locked, and those of tables, need it held; the others take it.
 * Next:    uploader/server/outbox.h reports to the server; uploader/send/send.h moves the bytes.
 *
 * uploader/state/save.def has its phases; cairn_up_save_event_locked moves it and carries out what
 * is then due, and nobody else does.
 */
#pragma once

#include "api/documents/names.h"
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
    uint64_t entry; /* its own in the journal; 0: it stands in a seal's, of an older format */
    uint32_t rank;
    uint32_t users;
    bool written;
    char hex[65];
    struct cairn_buf bytes;
};

/* Checks and copies the table; it has one user. entry 0: it stood in an older journal's seal. */
enum cairn_code cairn_up_table_new_locked(struct cairn_up *up, struct cairn_view bytes,
                                          uint64_t entry, struct cairn_up_table **ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Finds a journaled table without adding a user; NULL: there is none. */
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
    uint32_t part; /* 0: not of a part: its upload's begin or end, or its proof */
    uint32_t tries;
    uint64_t at_ms; /* mono clock */
};
struct cairn_up_errors {
    struct cairn_up_shard_error items[CAIRN_UP_ERRORS_MAX]; /* the newest first */
    size_t count;
};
void cairn_up_errors_add(struct cairn_up_errors *errors, const char *shard, uint32_t part,
                         const char *text, uint64_t now_ms);

#define CAIRN_UP_SHARDS_MAX CAIRN_SHARDS_MAX

struct cairn_up_reply {
    uint64_t conn; /* 0: nobody asks */
    int64_t request;
};

struct cairn_up_trouble { /* uploader/server/outbox.h */
    uint32_t tries;       /* in a row */
    uint64_t next_ms;
    bool reported; /* to its rank */
    struct cairn_error why;
};

struct cairn_up_partnering {             /* uploader/partner/partner.h */
    char node[CAIRN_NAME_BYTES_MAX + 1]; /* that has a whole copy, as the journal says; "": none */
    bool recovered;                      /* by a process before this one */
    bool tokens_journaled;               /* before that node heard them */
    bool handed;                         /* it was told to send it, since the bytes are gone here */
    bool reading;                        /* bytes are being copied out of the slab */
    bool complained;
    uint64_t next_ms, since_ms; /* mono clock: the next try; the first one, or the last good one */
    uint64_t told_conn;         /* the connection over which its trainer was told */
};

struct cairn_up_save {
    /* fixed */
    uint64_t entry; /* in the journal; names the save inside this process */
    struct cairn_up_attempt *attempt;
    struct cairn_version_place place;
    uint32_t rank, n;
    json_t *begin;                    /* what the server is told: step, n, rank, world_size, ... */
    char proc[CAIRN_UUID_TEXT_BYTES]; /* of the trainer that began it; "": an older journal's */
    char trace[CAIRN_TRACE_TEXT_BYTES]; /* traceparent of who began it; "": none */
    bool abort_on_disconnect;           /* it does not outlive its trainer, unless that says bye */
    /* locked by uploader_state */
    struct cairn_up_save_state state; /* moved by cairn_up_save_event_locked alone */
    uint64_t conn;                    /* the trainer's connection; 0: gone */
    uint32_t number;                  /* the save's number on that connection */
    bool follows;                     /* its trainer awaits the seal of rank 0 ... */
    bool decided;                     /* ... which the server has */
    struct cairn_up_slab *slab;       /* while state.holds_slab */
    struct { /* what the journal says of the slab that it was staged in; bytes 0: nothing */
        uint64_t device, inode, bytes;
    } staged_in;
    struct cairn_up_shard **shards; /* state.shard_count of them */
    size_t shard_capacity, stage_first, stage_count;
    uint32_t file_count;            /* of shards that are files */
    uint32_t held_count;            /* of these, those that hold a descriptor */
    size_t unquiet, unended;        /* a shard that was not, the last time; looked at first */
    struct cairn_shard_names names; /* of stage and file */
    struct cairn_up_table *table;   /* of its seal; NULL: none */
    json_t *replicated;             /* array, or NULL */
    json_t *labels, *meta;          /* of the seal, for those of the begin; or NULL */
    uint64_t total_bytes;
    uint32_t copy_threads; /* with which its trainer copied it; 0: not known */
    uint64_t copy_rate;    /* bytes a second; 0: not known */
    char stale[201];       /* its trainer says that it saved the same before; "": it does not */
    uint64_t unsaid_bytes, said_ms;  /* of files: acknowledged since the last `released` of them */
    uint64_t begun_us, described_us; /* mono clock; 0: by a process before this one, or measured */
    uint64_t stall_ms;               /* its trainer stood still; CAIRN_MESSAGE_NONE: not known */
    uint64_t polled_ms;              /* when a watcher last asked how it ended */
    struct cairn_up_held *held;      /* it has ended, and is told why later (server/lists.h) */
    struct cairn_up_trouble trouble; /* with the server */
    struct cairn_up_partnering partner;
    char store_error[200];         /* of the last request that failed, with its shard; "" */
    struct cairn_up_errors errors; /* of those of each shard and part */
    struct cairn_up_reply begin_reply, seal_reply, fail_reply; /* requests that wait */
    enum cairn_up_end end;
    struct cairn_error why; /* it fails, or ended otherwise than committed */
};

struct cairn_up_begin {
    const char *grant_text; /* or attempt */
    struct cairn_up_attempt *attempt;
    uint64_t conn;
    uint32_t number;
    const char *session, *proc;
    const char *trace; /* traceparent; NULL or "": none */
    uint32_t rank, world_size, n;
    uint64_t step;
    const char *on_exists, *format;
    bool skip, abort_on_disconnect, follow;
    bool of_partner; /* it is another node's: what its rank counts is not known here (Q12) */
    json_t *labels, *meta, *splits; /* borrowed, may be NULL */
};
/* Makes a save without journaling it, for begin and replay. */
enum cairn_code cairn_up_save_new_locked(struct cairn_up *up, uint64_t entry,
                                         const struct cairn_up_begin *begin,
                                         struct cairn_up_save **ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Undoes new_locked; nothing of the save was journaled. */
void cairn_up_save_drop_locked(struct cairn_up *up, struct cairn_up_save *save);
struct cairn_up_save *cairn_up_save_find_locked(struct cairn_up *up, uint64_t entry);
struct cairn_up_save *cairn_up_save_of_locked(struct cairn_up *up, uint64_t conn, uint32_t number);
/* Finds a save by version and rank, for offers and repeated begins. */
struct cairn_up_save *cairn_up_save_known_locked(struct cairn_up *up, const char *version,
                                                 uint32_t rank);
/* Another shard of it; entry, index and key of the options are set here. past: what the journal
 * holds of it, or NULL. */
enum cairn_code cairn_up_save_shard_new_locked(struct cairn_up *up, struct cairn_up_save *save,
                                               struct cairn_up_shard_options *options,
                                               const struct cairn_up_shard_past *past,
                                               struct cairn_error *err) CAIRN_MUST_USE;
json_t *cairn_up_save_begin_record(const struct cairn_up_save *save); /* for the journal */
/* The trace context of the trainer that began it, else one derived from the version's id. */
void cairn_up_save_trace(const struct cairn_up_save *save, struct cairn_trace *ret);
json_t *cairn_up_save_begun(const struct cairn_up_save *save);  /* for the trainer */
json_t *cairn_up_save_sealed(const struct cairn_up_save *save); /* for the trainer */

/* True while the save follows rank 0, is known to the server and may still be staged. */
bool cairn_up_save_awaits_decision(const struct cairn_up_save *save);
/* Moves the save by the table and carries out what is due; the save may be freed. */
void cairn_up_save_event_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_event event);
struct cairn_up_record;
/* Journals the records of its phase; the event WRITTEN or UNWRITTEN follows unless this fails. */
enum cairn_code cairn_up_save_post_locked(struct cairn_up *up, struct cairn_up_save *save,
                                          const struct cairn_up_record *records, size_t count,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* What its seal says beside the table: of the frame and of the journal's record. Copied; each may
 * be NULL. CAIRN_NO_MEMORY. */
enum cairn_code cairn_up_save_set_sealed(struct cairn_up_save *save, const json_t *replicated,
                                         const json_t *labels, const json_t *meta,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Makes the save the owner of the generation. False: another save owns it. */
bool cairn_up_save_slab_take_locked(struct cairn_up_save *save, struct cairn_up_slab *slab);
/* Reports everything again, after a HEAD of every object: the server lost the save (Q19). */
void cairn_up_save_report_again_locked(struct cairn_up *up, struct cairn_up_save *save);

/* The save fails at the server; its shards are given up. Nothing happens when it is over. */
void cairn_up_save_fail_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_code code, const char *reason);
/* The same with the whole error. */
void cairn_up_save_fail_for_locked(struct cairn_up *up, struct cairn_up_save *save,
                                   const struct cairn_error *why);
/* Ends the save with the version, and tells the trainer. */
void cairn_up_save_over_locked(struct cairn_up *up, struct cairn_up_save *save,
                               enum cairn_up_end end, enum cairn_code code, const char *message);
void cairn_up_save_end_locked(struct cairn_up *up, struct cairn_up_save *save,
                              enum cairn_up_end end, const struct cairn_error *why);
/* Gives back slab and journal entry where possible; the save may be freed. */
void cairn_up_save_settle_locked(struct cairn_up *up, struct cairn_up_save *save);
void cairn_up_save_free_all(struct cairn_up *up); /* at the end of the process */
/* A trainer's connection ended: unsealed saves fail, sealed ones go on, unless they are aborted by
 * an end without a bye. */
void cairn_up_save_orphan_locked(struct cairn_up *up, uint64_t conn, bool said_bye);
/* True when the slab is the memory that the save's `stage` record names. */
bool cairn_up_save_is_staged_in(const struct cairn_up_save *save, const struct cairn_up_slab *slab);
/* A request about a shard of it has failed, and is tried again or is not: for whoever asks what the
 * save waits for. */
void cairn_up_save_store_error(struct cairn_up *up, uint64_t entry, const char *shard,
                               uint32_t part, const struct cairn_error *why);
/* How many saves must still be sent, told or cleared away; ret_open (or NULL): all that the journal
 * holds open but for those that wait for a trainer. */
uint64_t cairn_up_save_unfinished(struct cairn_up *up, uint64_t *ret_open);

/* For struct cairn_up_journal_options: a record of that entry was not written (Q45). */
void cairn_up_save_unwritten(void *owner_up, uint64_t entry, const struct cairn_error *why);

/* ---- called by the senders, with no lock held ---- */
struct cairn_up_acked {
    uint64_t offset, bytes;
    uint64_t link_us, store_us; /* of its time; 0 both: not known */
};
void cairn_up_save_part_acked(struct cairn_up *up, uint64_t entry, uint32_t index,
                              const struct cairn_up_acked *acked);
/* why NULL: durable. */
void cairn_up_save_shard_ended(struct cairn_up *up, uint64_t entry, uint32_t index,
                               const struct cairn_error *why);
void cairn_up_save_settle(struct cairn_up *up, uint64_t entry);

/* ---- begins ---- */

/* What a begin says of its save, wherever it stands: frames begin and count, the journal's record.
 * Who begins (attempt, rank, connection) is left as it was; texts and objects are borrowed. */
enum cairn_code cairn_up_begin_read(const json_t *json, const char *pointer,
                                    struct cairn_up_begin *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;

/* Each answers the request itself when the journal has it (save.h#1), unless it fails at once. */
enum cairn_code cairn_up_save_begin(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Begins and fails a save whose begin never came. */
enum cairn_code cairn_up_save_count(struct cairn_up *up, const struct cairn_up_begin *begin,
                                    const struct cairn_error *why, struct cairn_up_reply reply,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Q12: this node has nothing of that save, the server calls its version open, and the rank will not
 * begin it: a new save that fails. */
enum cairn_code cairn_up_save_abandoned_locked(struct cairn_up *up,
                                               const struct cairn_up_begin *begin,
                                               const struct cairn_error *why,
                                               struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_UP_DESCRIPTION_BYTES_MAX (16 * CAIRN_MIB)

/* CAIRN_NOT_FOUND: not all of it is staged here, or it has files. */
enum cairn_code cairn_up_save_describe_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                              struct cairn_buf *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
