/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn: save and restore the checkpoints of a training job.
 *
 * Why:     a rank hands its buffers to the uploader of its node and trains on; the uploader sends
 *          them, the server decides when the checkpoint is complete.
 * Promise: P3  restore gives exactly the bytes that were saved, or an error that names run, step,
 *              shard and byte range. Never short, zero-filled or mixed.
 *          P4  what is saved is what the sources held during cairn_save_stage; after it returned
 *              they may be changed.
 *          P9  every call has a deadline and ends by it. A save that fails in the background is
 *              told by the next call on its handle and by cairn_session_problem, which is asked
 *              before each save. It never fails the begin of another save: that would end the next
 *              version for all ranks, and its failure the one after it.
 * Limits:  8 dimensions; tensor names 1,024 bytes; shard names 512 bytes, none the folder of
 *          another ("opt" and "opt/state"); one save holds at most the session's `bytes`; two saves
 *          under way, or one where memory is short.
 *          Not usable in a forked child: calls there return CAIRN_INVALID.
 * Threads: a session may be used by any thread; a save or restore handle by one at a time.
 *          The library runs one thread of its own per session, started by cairn_open.
 * Next:    docs/architecture.md follows one checkpoint end to end.
 *
 * Units:   sizes and offsets in bytes unless the name says elements; times in milliseconds, and a
 *          timeout of 0 means the session's default (60 s).
 * Memory:  strings and arrays in option structs are copied during the call, tensor sources are
 *          read during cairn_save_stage only. Zero is the default of every option.
 */
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stddef.h>
#include <stdint.h>

#include <cairn/error.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

#define CAIRN_VERSION "0.1.0"
const char *cairn_version(void);

/* ---- session: one rank and its uploader ---- */

struct cairn_session;

struct cairn_open_options {
    const char *run; /* "project/run"; required */
    const char *job; /* NULL: CAIRN_JOB, else torchelastic's run id and restart count, else
                        Slurm's job id and restart count; with world_size 1 a random one */
    uint32_t rank, world_size;             /* world_size 0 = 1 */
    uint32_t local_rank, local_world_size; /* local_world_size 0 = 1 */
    uint64_t bytes;      /* most bytes one save of this rank stages; 0 = files only */
    uint64_t node_bytes; /* the same for the node's ranks together; 0 = local_world_size * bytes */
    const char *resume;  /* NULL or "latest", "none", "keep", a step number or a version id */
    const char *socket;  /* NULL: CAIRN_SOCKET, else /run/cairn/uploader.sock */
    uint32_t timeout_ms; /* default of all calls; 0 = 60,000 */
    uint32_t wait_staged_ms; /* how long opening waits for an older attempt's saves and memory;
                                0 = 30,000 */
    int read_only;           /* no attempt is opened; only restore and list work */
    int interruptible;       /* 1: a call that waits ends with CAIRN_INTERRUPTED when its thread has
                                handled a signal. From cairn_save_begin and cairn_save_stage that
                                gives the save up, as any other error does; a wait, a restore or a
                                list may be called again; cairn_close waits no longer */
};

/* What the attempt goes on from. */
struct cairn_resume {
    uint64_t attempt;
    int found; /* 0: nothing to resume from; start at the beginning */
    uint64_t step;
    char version[48]; /* "ckpt_..." */
};

/* Connect, open or join the attempt, map the slabs. CAIRN_UPLOADER_GONE: there is no socket,
 * or the uploader died, before it or over it, and was not back within ten seconds. With read_only
 * it is waited for until timeout_ms.
 * CAIRN_JOB_REUSED, CAIRN_STALE_ATTEMPT: another incarnation holds the run. CAIRN_NO_MEMORY: the
 * node's budget cannot hold one save of every rank; the message has the numbers. */
enum cairn_code cairn_open(const struct cairn_open_options *options, struct cairn_session **ret,
                           struct cairn_resume *ret_resume, struct cairn_error *err);
/* Waits until what was staged is the uploader's alone (it already is), then disconnects. Unfinished
 * saves go on in the uploader; a save that was never staged is failed. NULL is allowed, and the
 * session is gone whatever is returned: CAIRN_OK, the first background failure that no call has
 * reported yet, or CAIRN_UPLOADER_GONE when staged saves ended with an uploader that did not come
 * back. */
enum cairn_code cairn_close(struct cairn_session *session, struct cairn_error *err);
/* CAIRN_OK, or the first background failure that no call has reported yet (which this reports). Its
 * message names run, step and rank, and n from the step's second save in this process on.
 * CAIRN_UNAVAILABLE: nothing has failed, but a save does not get on: the server keeps failing at
 * it, or the store is not there. Each is said once; the uploader goes on trying. */
enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err);

/* ---- tensors ---- */

enum cairn_kind {
    CAIRN_SHARDED = 1,    /* the ranks' pieces cover the tensor exactly once */
    CAIRN_REPLICATED = 2, /* each rank that lists it has the whole, with equal content */
    CAIRN_ALIAS = 3,      /* another name for the tensor `alias_of`; has no bytes */
    CAIRN_LOCAL = 4       /* this rank's own */
};
enum cairn_form {
    CAIRN_WHOLE = 0, /* the piece is the whole tensor */
    CAIRN_FLAT = 1,  /* elements [start[0], start[0] + count[0]) of the flattened tensor */
    CAIRN_BOX = 2    /* start[d], count[d] per dimension */
};
struct cairn_tensor_piece {
    const char *name;
    const char *dtype;        /* safetensors' names: "BF16", "F32", "I64", "F8_E4M3", ... */
    uint32_t dimension_count; /* 0: a scalar */
    const uint64_t *shape;    /* of the whole tensor */
    enum cairn_kind kind;
    const char *alias_of; /* CAIRN_ALIAS only */
    enum cairn_form form;
    const uint64_t *start, *count;
    const void *source;    /* row-major, contiguous; read during cairn_save_stage */
    uint64_t source_bytes; /* must equal the piece's bytes */
    const char *in_file;   /* or: the piece lies in this file of cairn_save_file ... */
    uint64_t file_offset;  /* ... from this byte on; source is then NULL */
};

/* ---- save ---- */

struct cairn_save;

enum cairn_on_exists {
    CAIRN_EXISTS_ERROR = 0,
    CAIRN_EXISTS_NEW_VERSION = 1,
    CAIRN_EXISTS_SUPERSEDE = 2
};
enum cairn_milestone { CAIRN_STAGED = 1, CAIRN_DURABLE = 2, CAIRN_COMMITTED = 3 };

struct cairn_save_options {
    enum cairn_on_exists on_exists;
    int skip;                /* 1: skip this save while an earlier one is still being sent */
    const char *format;      /* tag that an opener can insist on; NULL = none */
    const char *labels_json; /* object of strings; of rank 0 */
    const char *meta_json;   /* object, 64 KiB as canonical JSON; rank 0's */
    uint32_t timeout_ms;     /* for begin: includes the wait for this rank's own memory */
};
/* Every rank calls it for every step it saves; no rank waits for another. The handle lives until
 * cairn_save_free, also after a failure. CAIRN_SKIPPED, CAIRN_STEP_EXISTS, CAIRN_STALE_ATTEMPT may
 * come here or later, since the server judges for all ranks at once. While the uploader is away the
 * save is begun in memory of this rank that is free, and told to the one that comes back;
 * CAIRN_UPLOADER_GONE, within a second: none is free, and the save is failed for all ranks. */
enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err);
/* Describe a piece; nothing is read yet. One that is refused is not part of the save, and the
 * others stay. A handle that is left behind after that ends when a later save needs its memory. */
enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err);
/* A shard of raw bytes, stored as <name> under this rank's folder ("rank-00003/<name>"). */
enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err);
/* A file as a shard, under the name as it is: for tools that keep a directory tree. The uploader
 * reads it through fd (a regular file, opened for reading; duplicated during the call) in bounded
 * memory, so it may be larger than the session's `bytes`. It must not change until durable: if it
 * does, the save fails with CAIRN_SOURCE_CHANGED or CAIRN_SOURCE_GONE, where that can be seen. */
enum cairn_code cairn_save_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                struct cairn_error *err);
/* Copy everything into the slab and seal. When it returns the sources may be changed: this is the
 * only time training stands still. CAIRN_UPLOADER_GONE: the bytes are copied, but the uploader is
 * away; the session seals the save with the one that comes back. cairn_save_wait says whether it
 * did; the handle may also be freed and training go on. Any other error is final. */
enum cairn_code cairn_save_stage(struct cairn_save *save, struct cairn_error *err);
/* Wait for a milestone. CAIRN_TIMEOUT: not yet, ask again; the message says what is missing: shards
 * that the store does not have, other ranks, the store, the server, or an uploader that is there
 * and does not answer. CAIRN_UPLOADER_GONE: the uploader is
 * away, which is told within a second; the save is offered to the one that comes back, so ask
 * again or go on training. Any other error is final. */
enum cairn_code cairn_save_wait(struct cairn_save *save, enum cairn_milestone milestone,
                                uint32_t timeout_ms, struct cairn_error *err);
/* Give the save up for all ranks. CAIRN_ALREADY_COMMITTED when it was too late. */
enum cairn_code cairn_save_fail(struct cairn_save *save, const char *reason,
                                struct cairn_error *err);
struct cairn_save_status {
    uint64_t step;
    char version[48];             /* "" until an uploader has heard of the begin */
    enum cairn_milestone reached; /* 0: nothing yet */
    uint64_t total_bytes, durable_bytes;
    uint64_t stall_us; /* time spent in cairn_save_begin and cairn_save_stage */
};
void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret);
void cairn_save_free(struct cairn_save *save);

/* ---- restore ---- */

struct cairn_restore;
struct cairn_restore_options {
    const char *ref; /* NULL: what cairn_open resumed from, else "latest"; a step, a version id */
    const char *format; /* insist on this tag; another is CAIRN_UNSUPPORTED */
    uint32_t timeout_ms;
};
struct cairn_restore_info {
    uint64_t step, attempt, total_bytes;
    uint32_t world_size, shard_count, tensor_count;
    char version[48];
    char format[64];
};
/* An uploader that is away, or goes away meanwhile, is waited for until the call's deadline. */
enum cairn_code cairn_restore_open(struct cairn_session *session,
                                   const struct cairn_restore_options *options,
                                   struct cairn_restore **ret, struct cairn_restore_info *ret_info,
                                   struct cairn_error *err);
void cairn_restore_free(struct cairn_restore *restore);

struct cairn_shard_info {
    char name[513];
    uint32_t rank;
    uint64_t bytes;
};
struct cairn_tensor_info {
    char name[1025];
    char dtype[16];
    uint32_t dimension_count;
    uint64_t shape[8];
    enum cairn_kind kind;
    char alias_of[1025];
    uint64_t bytes;
};
/* Sorted by name; CAIRN_NOT_FOUND past the end. */
enum cairn_code cairn_restore_shard_at(struct cairn_restore *restore, uint32_t index,
                                       struct cairn_shard_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_at(struct cairn_restore *restore, uint32_t index,
                                        struct cairn_tensor_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_find(struct cairn_restore *restore, const char *name,
                                          struct cairn_tensor_info *ret, struct cairn_error *err);

/* One read; many are given at once so that they run in parallel and are joined. */
struct cairn_read {
    const char *shard;      /* whole shards and ranges of them ... */
    uint64_t offset, bytes; /* bytes of the shard; bytes UINT64_MAX = to its end */
    const char *tensor;     /* ... or a tensor by name; aliases are followed */
    uint32_t local_rank_of; /* LOCAL tensors: whose */
    enum cairn_form form;   /* CAIRN_WHOLE, CAIRN_FLAT, CAIRN_BOX */
    const uint64_t *start, *count;
    void *into;          /* row-major, contiguous */
    uint64_t into_bytes; /* must equal the bytes that are read */
};
/* All of them, each block checked before its bytes count; or CAIRN_CORRUPT naming the first bad
 * place, with the destinations then undefined. */
enum cairn_code cairn_restore_read(struct cairn_restore *restore, const struct cairn_read *reads,
                                   size_t count, uint32_t timeout_ms, struct cairn_error *err);

/* ---- list ---- */

struct cairn_checkpoint {
    char version[48];
    uint64_t step, attempt, total_bytes;
    uint32_t shard_count;
    char state[16];    /* "open", "committed", "aborting", ... */
    char saved_at[32]; /* RFC 3339 */
    int superseded, latest;
};
/* Newest first. *ret_list is freed with cairn_list_free. A failure is never an empty list. */
enum cairn_code cairn_list(struct cairn_session *session, struct cairn_checkpoint **ret_list,
                           size_t *ret_count, struct cairn_error *err);
void cairn_list_free(struct cairn_checkpoint *list);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
