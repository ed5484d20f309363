/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn: save and restore the checkpoints of a training job.
 *
 * Why:     a rank copies its tensors into memory that it shares with the uploader of its node, and
 *          trains on; the uploader sends them to the store, and the server commits the checkpoint
 *          once every rank's shards are there.
 * Promise: P3  restore gives exactly the bytes that were saved, or an error that names run, step,
 *              shard and byte range. Never short, zero-filled or mixed.
 *          P4  what is saved is what the sources held during cairn_save_stage, or from
 *              cairn_save_stage_begin until its fence (cairn/stage.h); after it returned they may
 *              be changed.
 *          P9  every call has a deadline and ends by it. The failure of a save between two calls is
 *              returned by the next call on its handle, and by cairn_session_problem, which is to
 *              be called before each save. It never fails the begin of another save: that failure
 *              would end the next version for all ranks, and so on.
 * Limits:  8 dimensions; tensor names 1,024 bytes; shard names 512 bytes, none the folder of
 *          another ("opt" and "opt/state"); one save holds at most the session's `bytes`; two saves
 *          under way, or one where memory is short.
 *          Not usable in a forked child: calls there return CAIRN_INVALID.
 * Threads: a session may be used by several threads at once; a save or restore handle by one at a
 *          time, but for cairn_save_cancel, cairn_save_status, cairn/poll.h, cairn_restore_read and
 *          cairn_read_begin; a second thread in a save's handle gets CAIRN_INVALID, and a save that
 *          is freed while another thread is in a call on it goes with the end of that call. Each
 *          session has one thread of the library, from cairn_open to cairn_close, and a second one
 *          from its first cairn_read_begin on; cairn_save_stage_begin and a stage that copies much
 *          have more for as long as they copy. They take no signals.
 *          cairn_close may be called while other threads wait in the session: their calls end, and
 *          it awaits them.
 * Next:    cairn/stage.h (a copy beside the training), cairn/pieces.h (many pieces at once, and
 *          once for many saves), cairn/items.h (bytes by name, streams), cairn/inspect.h (what a
 *          version holds),
 *          cairn/reads.h (reads in the background), cairn/poll.h (saves in a loop of events),
 *          cairn/runs.h (runs, removals), cairn/find.h (versions, labels, pins, aliases);
 *          docs/architecture.md follows one checkpoint end to end.
 *
 * Units:   sizes and offsets in bytes unless the name says elements; times in milliseconds, and a
 *          timeout of 0 means the session's default (60 s).
 * Options: a struct that is passed begins with its size, `.size = sizeof options`, so that programs
 *          and libraries of different releases know what the other has. A size of 0 is
 *          CAIRN_INVALID; zero is the default of every other option. Structs that a call fills in
 *          have none: their layout is frozen for a major version of the library.
 * Memory:  strings and arrays in option structs are copied during the call, tensor and raw sources
 *          are read during cairn_save_stage (or _copy) only and must stay until it returns. `*ret`
 *          is written on success alone; each handle has a function that frees it, which takes NULL.
 * NULL:    options are all defaults; a handle, `ret` or array that is needed is CAIRN_INVALID.
 * Errors:  the return value decides; err may be NULL. Besides the codes named at a call, each may
 *          return CAIRN_INVALID (an argument; a closed session; a forked child), CAIRN_NO_MEMORY,
 *          CAIRN_TIMEOUT, CAIRN_PROTOCOL and, after a bug of the library, CAIRN_INTERNAL, then
 *          CAIRN_BROKEN from every later call in this process.
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

#define CAIRN_VERSION "0.2.0"
const char *cairn_version(void); /* of the library that is linked; static storage */

/* ---- session: one rank and its uploader ---- */

struct cairn_session;

/* What becomes of staged saves when this process ends without cairn_close. */
enum cairn_on_disconnect {
    CAIRN_DISCONNECT_FINISH = 0, /* the uploader finishes them */
    CAIRN_DISCONNECT_ABORT = 1   /* they fail for all ranks, unless they are committed already */
};
struct cairn_open_options {
    size_t size;     /* of this struct */
    const char *run; /* "project/run"; required */
    const char *job; /* NULL: CAIRN_JOB, else torchelastic's run id and restart count, else
                        Slurm's job id and restart count; with world_size 1 a random one */
    uint32_t rank, world_size;             /* world_size 0 = 1 */
    uint32_t local_rank, local_world_size; /* local_world_size 0 = 1 */
    uint64_t bytes;      /* most bytes one save of this rank stages; 0 = files only, until
                            cairn_session_reserve says how many */
    uint64_t node_bytes; /* the same for the node's ranks together; 0 = local_world_size * bytes */
    /* NULL or "latest", a step number, a version id: go on from that, and what lies beyond it is
     * superseded; "none": from nothing, and all is superseded. "keep", "ahead": from nothing, and
     * nothing is superseded. Under "keep" a save of a lower step than that of latest stands among
     * the others by its step, and latest stays; under all others what is saved is newest, whatever
     * its step. */
    const char *resume;
    /* NULL: CAIRN_SOCKET, else /run/cairn/uploader.sock. Who listens there must be root, this user,
     * or one that CAIRN_UPLOADER_USERS names (docs/config.md). */
    const char *socket;
    uint32_t timeout_ms;     /* default of all calls; 0 = 60,000 */
    uint32_t wait_staged_ms; /* how long opening waits for an older attempt's saves and memory;
                                0 = 30,000 */
    int read_only;           /* no attempt is opened; only restore and list work */
    uint32_t
        copy_threads;  /* with how many cairn_save_stage copies, at most 64; 0: CAIRN_COPY_THREADS,
                              else as many as help: measured in the process's saves, at most the
                              rank's share of the cores, one for each 32 MiB of a shard */
    int interruptible; /* 1: a call that waits ends with CAIRN_INTERRUPTED when its thread has
                                handled a signal. From cairn_save_begin and cairn_save_stage that
                                gives the save up, as any other error does; a wait, a restore or a
                                list may be called again; cairn_close waits no longer */
    enum cairn_on_disconnect on_disconnect; /* an uploader of a release before it always finishes */
};

/* The version from which the attempt goes on. */
struct cairn_resume {
    uint64_t attempt;
    int found; /* 0: nothing to resume from; start at the beginning */
    uint64_t step;
    char version[48]; /* "ckpt_..." */
};

/* Connect, open or join the attempt, map the slabs. *ret is freed by cairn_close; ret_resume may be
 * NULL. CAIRN_UPLOADER_GONE: there is no socket, or the uploader had died, or died during the call,
 * and was not back within ten seconds. With read_only the wait for it lasts until timeout_ms.
 * CAIRN_JOB_REUSED, CAIRN_STALE_ATTEMPT: another incarnation holds the run. CAIRN_NO_MEMORY: the
 * node's budget cannot hold one save of every rank; the message has the numbers. */
enum cairn_code cairn_open(const struct cairn_open_options *options, struct cairn_session **ret,
                           struct cairn_resume *ret_resume, struct cairn_error *err);
/* Memory for saves of so many bytes, and node_bytes as in the options: where they are known late
 * (an optimizer makes its state at its first step) or have grown. Between two saves: it waits until
 * no save of this session needs its memory, gives that back, and asks for the new, as cairn_open
 * does; a begin meanwhile waits for it. timeout_ms 0: the default and wait_staged_ms.
 * CAIRN_NO_MEMORY, CAIRN_UPLOADER_GONE: the session has no memory, and the call may be repeated,
 * also with less. CAIRN_TIMEOUT because a save needs its memory, CAIRN_BUSY (another call
 * reserves), CAIRN_UNSUPPORTED (an uploader of a release before): it has what it had. */
enum cairn_code cairn_session_reserve(struct cairn_session *session, uint64_t bytes,
                                      uint64_t node_bytes, uint32_t timeout_ms,
                                      struct cairn_error *err);
/* The same, and return: a thread of the library asks for the memory and fills it, within ten
 * minutes, while training goes on (an optimizer's first step). A cairn_save_begin waits for what is
 * not there yet, as for memory that earlier saves hold (`wait_us`), so that the first save's stall
 * is no longer than the next one's. What fails later is returned by cairn_session_problem, as
 * CAIRN_UNAVAILABLE, and by the stage of a save that had no memory. Errors of the call itself:
 * CAIRN_INVALID, CAIRN_BUSY and CAIRN_UNSUPPORTED, as above. */
enum cairn_code cairn_session_reserve_begin(struct cairn_session *session, uint64_t bytes,
                                            uint64_t node_bytes, struct cairn_error *err);
/* Disconnect and free the session, whatever is returned; NULL is allowed. Staged saves go on in the
 * uploader; one that was never staged is failed for all ranks. Where failures are not reported yet,
 * or the uploader is away and staged bytes are not durable, the call waits up to ten seconds for
 * it. CAIRN_OK, the first failure that no call has returned yet, or CAIRN_UPLOADER_GONE when staged
 * saves end with an uploader that did not come back. Handles of saves and restores stay until they
 * are freed; their calls that need the session are CAIRN_INVALID. */
enum cairn_code cairn_close(struct cairn_session *session, struct cairn_error *err);
/* Go on in this process as another rank of another world, as an elastic job does that has lost or
 * got ranks: the former attempt ends as by cairn_close (staged saves go on, what was not staged is
 * failed, handles stay until they are freed), and the session opens a new one, with memory for its
 * new size: all ranks of a node renew or close at about the same time, since the new attempt waits
 * for what sessions of the former one hold there, up to wait_staged_ms. options as for cairn_open:
 * `job` must be new and the same on all ranks of the new world; ranks and sizes of ranks are the
 * new ones; run and socket are the session's own (NULL); bytes, timeouts and copy_threads that are
 * 0 stay as they were. The failure of a save of the former attempt is returned by the next
 * cairn_session_problem. After an error of cairn_open's kind every call on the session returns it,
 * and it may be renewed again or closed; CAIRN_INVALID for the options leaves it as it was. No
 * other thread may be in cairn_session_renew or cairn_close meanwhile; other calls end with
 * CAIRN_INVALID. */
enum cairn_code cairn_session_renew(struct cairn_session *session,
                                    const struct cairn_open_options *options,
                                    struct cairn_resume *ret_resume, struct cairn_error *err);
/* CAIRN_OK, or the failure of the first save whose failure no call has returned yet. Its message
 * names run, step and rank, and n from the step's second save in this process on. Waits for
 * nothing. CAIRN_UNAVAILABLE: nothing has failed, but a save is delayed: the server keeps failing
 * at it, or the store is not there. Each is returned once; the uploader goes on trying. */
enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err);
/* CAIRN_OK, or CAIRN_UNAVAILABLE once for each row of begins of which the second found an earlier
 * save under way: saves take longer than the time between them, and some begin will wait for
 * memory. The message says what holds them up (the store or the link to it, the slab, the server
 * or other ranks, the uploader) with what was measured: bytes, seconds, MB/s. The same once for
 * each row of saves that may be stale: half or more of what had changed in every save before (three
 * of them, in blocks of 1 MiB) is what the save before held. Waits for nothing. */
enum cairn_code cairn_session_warning(struct cairn_session *session, struct cairn_error *err);

struct cairn_warmup_options {
    size_t size;         /* of this struct */
    int memory;          /* CAIRN_MEMORY_CUDA: the plug-in is loaded and the memory of saves is
                            page-locked for the device, too; where the process has used none yet,
                            the first save page-locks it */
    uint32_t timeout_ms; /* 0: the session's */
};
/* Go the way of a save before the first one: the uploader writes a small probe to the store, the
 * server looks whether it finds it there, and it is removed again. Ranks do not wait for each
 * other. CAIRN_OK, or what would fail the first save: keys, bucket, endpoint, proxy, a folder that
 * is read-only or not the server's; the message names node and rank. What was found of each rank is
 * at the server as well (GET /v1/runs/PROJECT/RUN/probes). options may be NULL. */
enum cairn_code cairn_warmup(struct cairn_session *session,
                             const struct cairn_warmup_options *options, struct cairn_error *err);

/* For cairn_split_options.weights: one for each of these ranks, from 1 to 8, by how fast its node
 * has uploaded in the attempt before, so that slow nodes save less. They are the same in every rank
 * and for as long as the attempt lives; all 1 where that is not known, or the nodes are alike. */
enum cairn_code cairn_session_weights(struct cairn_session *session, const uint32_t *ranks,
                                      size_t count, uint32_t *ret_weights, struct cairn_error *err);

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
enum cairn_memory { CAIRN_MEMORY_HOST = 0, CAIRN_MEMORY_CUDA = 1 };
struct cairn_tensor_piece {
    size_t size; /* of this struct */
    const char *name;
    const char *dtype; /* safetensors' names: "BF16", "F32", "I64", "F8_E4M3", ...; of what it
                                 has no name for docs/format.md's: "C128", "QI8", "I4", ... */
    uint32_t dimension_count; /* 0: a scalar */
    const uint64_t *shape;    /* of the whole tensor */
    enum cairn_kind kind;
    const char *alias_of; /* CAIRN_ALIAS only */
    enum cairn_form form;
    const uint64_t *start, *count; /* in elements; 1 of each for FLAT, dimension_count for BOX */
    const void *source;            /* the piece's first element; read during cairn_save_stage */
    uint64_t source_bytes;         /* must equal the piece's bytes, however far they lie apart */
    const int64_t *source_stride;  /* elements from one index to the next, per dimension of the
                                     piece, 1 for FLAT; NULL: row-major and contiguous */
    /* or: this writes the bytes [offset, offset + bytes) of the piece to `to`, during
     * cairn_save_stage, and returns 0; anything else fails the save with CAIRN_SOURCE_GONE. Each
     * byte is asked for once, in ranges of up to 16 MiB, by as many threads as copy: with
     * copy_threads 1 by the caller's own, in ascending order. It may not call the session. */
    int (*fill)(void *owner, uint64_t offset, void *to, uint64_t bytes);
    void *fill_owner;
    /* CAIRN_MEMORY_CUDA: source is memory of a CUDA device, which is copied after the work that
     * `stream` (a cudaStream_t of that device; NULL: its default stream) has when
     * cairn_save_stage is called. It needs libcairn_cuda.so beside libcairn, and the process's CUDA
     * runtime. */
    enum cairn_memory memory;
    void *stream;
    const char *in_file;  /* or: the piece lies in this file of cairn_save_file ... */
    uint64_t file_offset; /* ... from this byte on; source is then NULL */
    int by_caller; /* or, 1: the caller writes it to its place in the slab (cairn_save_slot_at) */
    /* Several FLAT ranges or boxes of one SHARDED or LOCAL tensor, with one source: start and count
     * hold region_count of them one after the other, and so does the source. 0 is 1. Not with
     * source_stride or source_dtype, nor of a tensor that a split has listed. Any may be without
     * elements. */
    uint32_t region_count;
    /* What the elements of source are, where that is not dtype: "F32" of a piece that is stored as
     * "BF16" or "F16" (half the bytes), or the reverse; F64 as well. They are rounded to the
     * nearest, ties to even, on the way into the memory that is sent, and no other memory is taken.
     * source_bytes and source_stride are those of the source. In memory of a device it does so
     * before the bytes cross the link: F32, BF16 and F16 among each other. CAIRN_UNSUPPORTED: F64
     * there, and a libcairn_cuda.so that was built without nvcc. */
    const char *source_dtype;
};

/* ---- split: what several ranks hold alike is saved once, by each of them a share ---- */

/* The members of a replica group (the ranks of a data-parallel group; of an expert-data-parallel
 * group for experts; of each tensor- and pipeline-parallel coordinate one of their own) hold the
 * same parts of the same tensors. Each lists them and gets its share by computing alone; no message
 * is sent. A save that is begun with the split takes this rank's share of each listed tensor. */
struct cairn_split;

enum cairn_split_by {
    CAIRN_SPLIT_FIRST = 0,  /* member 0 saves all */
    CAIRN_SPLIT_LAYER = 1,  /* whole layers (names up to their first component of digits), balanced
                               by bytes */
    CAIRN_SPLIT_TENSOR = 2, /* whole tensors, balanced by bytes */
    CAIRN_SPLIT_SLICE = 3   /* ranges of elements: shares of equal weight differ by at most 4 KiB */
};
/* As DeepSpeed names them; tensor_slice counts where both are set, CAIRN_SPLIT_FIRST is neither. */
struct cairn_parallel_write {
    size_t size; /* of this struct */
    int pipeline_stage, tensor_slice;
};
enum cairn_code cairn_split_by_of(const struct cairn_parallel_write *config,
                                  enum cairn_split_by *ret, struct cairn_error *err);

struct cairn_split_options {
    size_t size;              /* of this struct */
    const char *group;        /* its name, the same in each member; another for each group */
    uint32_t member, members; /* which this rank is, from 0; at most 65,536 */
    enum cairn_split_by by;
    const uint32_t *weights; /* one a member: the bytes of a share go with it; NULL = equal */
};
/* CAIRN_INVALID. *ret is freed by cairn_split_free, after the saves begun with it were staged. It
 * is used by one thread at a time. */
enum cairn_code cairn_split_new(const struct cairn_split_options *options, struct cairn_split **ret,
                                struct cairn_error *err);
void cairn_split_free(struct cairn_split *split);
/* List a tensor: name, dtype, shape and the part of it that every member holds (form, start,
 * count). The order does not matter; other fields are not read, but for the kind CAIRN_ALIAS: a
 * tied tensor is saved once, under its other name, and is part of no share. CAIRN_INVALID: also
 * once shares were asked for, or a save was begun with it. */
enum cairn_code cairn_split_add(struct cairn_split *split, const struct cairn_tensor_piece *piece,
                                struct cairn_error *err);
/* Bytes of a member's share. CAIRN_INVALID: a tensor was listed twice, or all weights are 0. */
enum cairn_code cairn_split_bytes(struct cairn_split *split, uint32_t member, uint64_t *ret,
                                  struct cairn_error *err);
/* One tensor of a share: elements [start, start + count) of the flattened part that was listed. */
struct cairn_split_share {
    const char *name; /* the split's, until it is freed */
    uint64_t start, count;
};
/* index from 0, in the order of the names; CAIRN_NOT_FOUND past the last. */
enum cairn_code cairn_split_share_at(struct cairn_split *split, uint32_t member, uint32_t index,
                                     struct cairn_split_share *ret, struct cairn_error *err);

/* ---- save ---- */

struct cairn_save;
struct cairn_save_status; /* below: cairn_save_status */

enum cairn_on_exists {
    CAIRN_EXISTS_ERROR = 0,
    CAIRN_EXISTS_NEW_VERSION = 1,
    CAIRN_EXISTS_SUPERSEDE = 2
};
/* CAIRN_PARTNERED lies beside the others: another node has compared a copy of all of this rank's
 * save, so that it survives the loss of one node. Where nodes keep no copies (partner_copies
 * of the run's policy or of the server) it is reached with the commit. CAIRN_COPIED lies before
 * them: the sources may be changed. CAIRN_DECIDED, of a save with `follow`: rank 0 has sealed its
 * part, and the server has it. */
enum cairn_milestone {
    CAIRN_STAGED = 1,
    CAIRN_DURABLE = 2,
    CAIRN_COMMITTED = 3,
    CAIRN_PARTNERED = 4,
    CAIRN_COPIED = 5,
    CAIRN_DECIDED = 6
};

struct cairn_save_options {
    size_t size; /* of this struct */
    enum cairn_on_exists on_exists;
    int skip;                /* 1: skip this save while an earlier one is still being sent */
    const char *format;      /* tag that an opener can insist on; NULL = none */
    const char *labels_json; /* object of strings; of rank 0 */
    const char *meta_json;   /* object, 64 KiB as canonical JSON; rank 0's. "origin" is added: host,
                                user, git commit, job ids; one that is there, also null, stays */
    uint32_t timeout_ms;     /* for begin: includes the wait for this rank's own memory */
    /* Replica groups that this rank saves a share of; they must stay until it is staged. Ranks
     * whose lists differ end the save for all with CAIRN_BEGIN_DIFFERS, which says where. */
    struct cairn_split *const *splits;
    size_t split_count;
    /* Told how far the save is each time that has changed, by the thread that is in
     * cairn_save_stage, _copy, _seal or cairn_save_wait of it, at the latest before such a call
     * returns CAIRN_OK; between these calls nobody is told. It may call cairn_save_status and
     * cairn_save_cancel, and its time is the call's. */
    void (*progress)(void *owner, const struct cairn_save_status *status);
    void *progress_owner;
    /* 1, for tests: the sources of cairn_save_stage_begin are read once more when the fence is
     * asked for, and compared with the copy; the save is sealed afterwards. One that was changed
     * fails it with CAIRN_SOURCE_CHANGED and its name. Functions (`fill`) are called twice. */
    int verify_sources;
    /* 1: the seal of rank 0 decides when the checkpoint is whole. Each of the other ranks begins
     * with it, hears of that seal by cairn_save_wait, _poll or a descriptor (CAIRN_DECIDED), and
     * then stages what it has by then, also nothing; until then it may be given files, items and
     * tensors. Where rank 0 fails or cancels, or its process ends, the wait returns that failure.
     * CAIRN_INVALID: of rank 0 itself; CAIRN_UNSUPPORTED: the uploader is of a release before. */
    int follow;
};
/* Every rank calls it for every step it saves; no rank waits for another. It waits for a free slab
 * of this rank, since an earlier save may hold its own until it is durable. *ret lives until
 * cairn_save_free, also when the save fails later; a begin that fails gives no handle, and fails
 * the step for all ranks. CAIRN_SKIPPED, CAIRN_STEP_EXISTS and CAIRN_STALE_ATTEMPT come here or
 * from a later call, since the server decides for all ranks at once. While the uploader is away the
 * save is begun in a free slab, and the next uploader hears of it; CAIRN_UPLOADER_GONE, within a
 * second: none is free. */
enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err);
/* Describe a piece; its source is read by cairn_save_stage. Of a tensor that a split has listed the
 * piece is the whole part that was listed, SHARDED or REPLICATED; only this rank's share of it is
 * read and saved, and cairn_save_stage refuses a save without it. CAIRN_INVALID, CAIRN_TOO_LARGE,
 * CAIRN_UNSUPPORTED (memory of a device without its plug-in or its runtime, or whose elements it
 * does not convert): this piece is not part of the save, and the others stay. A save that is not
 * staged after such an error is failed when a later one needs its memory. */
enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err);
/* A shard of raw bytes, named <name> in this rank's folder ("rank-00003/<name>"). source is read by
 * cairn_save_stage. */
enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err);
/* A file as a shard, under the name as it is: for tools that keep a directory tree. The uploader
 * reads it through fd (a regular file, opened for reading; duplicated during the call) in bounded
 * memory, so it may be larger than the session's `bytes`. It must not change until durable: if it
 * does, the save fails with CAIRN_SOURCE_CHANGED or CAIRN_SOURCE_GONE, where that can be seen.
 * Other nodes keep no copy of a save with a file (CAIRN_PARTNERED). */
enum cairn_code cairn_save_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                struct cairn_error *err);
/* Labels and meta instead of those of cairn_save_begin, until the save is sealed: what is known
 * only when the ranks have written, such as a loss. NULL leaves what is there. Of rank 0; others'
 * are checked and not kept. CAIRN_INVALID: nothing has changed. CAIRN_UNSUPPORTED: the uploader is
 * of a release before. */
enum cairn_code cairn_save_set_meta(struct cairn_save *save, const char *labels_json,
                                    const char *meta_json, struct cairn_error *err);
/* Copy every piece and raw shard into the slab, and seal. Strided pieces are copied from where
 * they lie, without a temporary. Where the process may use several cores for each rank of the node,
 * large shards are copied by several threads (`copy_threads`), which end with the call. After it
 * returned the sources may be changed, and training goes on. CAIRN_UPLOADER_GONE: the bytes are
 * copied, and the uploader is away; the session seals the save with the next uploader.
 * cairn_save_wait tells whether it did; the handle may be freed meanwhile. Any other error is
 * final: the save is failed for all ranks. CAIRN_IO with CUDA's own name of it: a device failed;
 * saves of host memory go on. */
enum cairn_code cairn_save_stage(struct cairn_save *save, struct cairn_error *err);
/* The two halves of cairn_save_stage, for what is known only when the ranks have written: after
 * cairn_save_copy the sources may be changed, and what is described from then on (tensors and raw
 * shards from memory; cairn_save_set_meta) is copied by cairn_save_seal behind the rest. It must
 * fit into the session's `bytes`, too. The uploader sends what is copied meanwhile. A save that is
 * copied and not sealed holds its memory; it ends with its handle or the process. Errors as of
 * cairn_save_stage, which does after a copy what is left. CAIRN_INVALID (an order of calls) changes
 * nothing; CAIRN_UNSUPPORTED of a description after the copy: the uploader is of a release
 * before. */
enum cairn_code cairn_save_copy(struct cairn_save *save, struct cairn_error *err);
enum cairn_code cairn_save_seal(struct cairn_save *save, struct cairn_error *err);
/* The place in the slab of a piece with by_caller, for copies that the caller makes itself (of
 * pinned memory, by a kernel, from a file). */
struct cairn_save_slot {
    const char *name; /* of its tensor; until the save is sealed */
    void *to;         /* the caller's to write until cairn_save_copy or cairn_save_stage; NULL: no
                         bytes */
    uint64_t bytes;   /* of a tensor that a split has listed: this rank's share */
};
/* index from 0, in the order in which they were described; CAIRN_NOT_FOUND past the last. The first
 * call gives every piece its place: nothing can be described between it and the copy. */
enum cairn_code cairn_save_slot_at(struct cairn_save *save, uint32_t index,
                                   struct cairn_save_slot *ret, struct cairn_error *err);
/* The slot's bytes are all there. cairn_save_copy and cairn_save_stage are CAIRN_INVALID, and may
 * be repeated, while this was not said of a slot. */
enum cairn_code cairn_save_written(struct cairn_save *save, uint32_t index,
                                   struct cairn_error *err);
/* Wait for a milestone; one that was reached stays so. CAIRN_TIMEOUT: not yet; the call may be
 * repeated, and the message says what is missing: shards that the store does not have, a copy on
 * another node, other ranks, the store, the server, or an uploader that is there and does not
 * answer. A save is committed although one node is lost once CAIRN_PARTNERED was returned for every
 * rank. CAIRN_UPLOADER_GONE, within a second: the uploader is away; the next one takes the save
 * over, so the call may be repeated. Any other error is final. */
enum cairn_code cairn_save_wait(struct cairn_save *save, enum cairn_milestone milestone,
                                uint32_t timeout_ms, struct cairn_error *err);
/* Is it decided what becomes of the save? Waits for nothing; any thread may ask. 1: it is, and
 * *ret (NULL is allowed) is CAIRN_OK, committed, or its failure. 0: it is not, and *ret is
 * CAIRN_TIMEOUT, or CAIRN_UPLOADER_GONE while the uploader is away, or CAIRN_CANCELLED where it was
 * cancelled and a commit may have come first. NULL is over, with CAIRN_INVALID. What each code of
 * each call means, where that differs:
 *
 *     call                           code             the save
 *     cairn_save_begin, _again       any error        there is none; the step failed for all ranks,
 *                                                     but for CAIRN_INVALID of arguments
 *     cairn_save_tensor and its kin  any error        as before the call
 *     cairn_save_stage, _seal        UPLOADER_GONE    goes on: its bytes are copied
 *     cairn_save_stage, _copy,       INVALID          as before the call (an order of calls)
 *       _seal, _stage_begin          any other error  over
 *     cairn_save_fence               TIMEOUT,         goes on, and its sources are read
 *                                    INTERRUPTED
 *                                    INVALID          as before the call
 *                                    any other error  over
 *     cairn_save_wait, _poll         TIMEOUT, INTERRUPTED,  goes on: ask again
 *                                    UPLOADER_GONE
 *                                    any other error  over
 *     cairn_save_fail, _cancel       OK               over, as failed; but see _cancel
 *                                    ALREADY_COMMITTED      over, as committed
 *                                    UPLOADER_GONE    over here; the others are told later
 *     cairn_session_problem          UNAVAILABLE      goes on, delayed
 *                                    any other error  the one that it names is over */
int cairn_save_over(const struct cairn_save *save, enum cairn_code *ret);
/* Give the save up for all ranks. reason goes to the server; NULL is allowed. CAIRN_OK also where
 * it had failed before. CAIRN_ALREADY_COMMITTED: the commit came first. CAIRN_UPLOADER_GONE: the
 * session reports it when an uploader is back. */
enum cairn_code cairn_save_fail(struct cairn_save *save, const char *reason,
                                struct cairn_error *err);
/* The same from any thread, also while another is in a call on the handle (it must not free it
 * meanwhile), and without waiting: cairn_save_stage ends within its next 16 MiB and cairn_save_wait
 * at once, both with CAIRN_CANCELLED; a fill function that runs is awaited. The other ranks hear of
 * it from the session's thread. CAIRN_OK also where it had failed before. CAIRN_ALREADY_COMMITTED:
 * the commit is known here. One that the server decides meanwhile wins, and is what cairn_save_wait
 * then returns. */
enum cairn_code cairn_save_cancel(struct cairn_save *save, const char *reason,
                                  struct cairn_error *err);
struct cairn_save_status {
    uint64_t step;
    char version[48];             /* "" until an uploader has answered the begin */
    enum cairn_milestone reached; /* 0: nothing yet; CAIRN_PARTNERED and CAIRN_COPIED are for
                                     cairn_save_wait to tell */
    /* Progress, in bytes of the objects, headers included; each grows up to total_bytes, which is
     * 0 until cairn_save_stage knows it. */
    uint64_t total_bytes;
    uint64_t staged_bytes;  /* copied into the slab; files count once all is staged */
    uint64_t sent_bytes;    /* of which the store has acknowledged the part */
    uint64_t durable_bytes; /* of which the store has checked the object: 0, then all at once */
    uint64_t stall_us;      /* time spent in cairn_save_begin and cairn_save_stage ... */
    uint64_t wait_us;       /* ... of which begin waited for memory that earlier saves held */
};
/* What is known at this moment; waits for nothing, and may be asked by any thread, also while
 * another copies. All zero for a save that is NULL. */
void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret);
/* A staged save goes on without its handle. One that was not staged is failed for all ranks. */
void cairn_save_free(struct cairn_save *save);

/* ---- the last chance: a signal says that the process will be ended ---- */

struct cairn_last_chance_options {
    size_t size;         /* of this struct */
    const int *signals;  /* which; up to 8 */
    size_t signal_count; /* 0: SIGTERM and SIGUSR1 */
    uint32_t grace_ms;   /* between the signal and the kill that follows it; 0 = 30,000 */
};
/* From here on these signals of the process set a flag, and end nothing by themselves; handlers
 * that were there are still called. One watch for a process. CAIRN_INVALID: there is one, or a
 * signal that cannot be handled. */
enum cairn_code cairn_last_chance_watch(const struct cairn_last_chance_options *options,
                                        struct cairn_error *err);
/* 0, or the first of these signals that came: to be asked between two steps, and to be followed by
 * a save and the end. *ret_left_ms (NULL is allowed) is what is left of grace_ms since it came; it
 * is not written with 0. In a forked child always 0. Saves that rank 0 begins from then on bear the
 * label cairn.preempted with the signal's name. */
int cairn_last_chance(uint32_t *ret_left_ms);
/* The handlers that were there are back. */
void cairn_last_chance_unwatch(void);

/* ---- restore ---- */

struct cairn_restore;
/* A rule for names: tensors whose stored name begins with `stored` (with `whole`: is it) are known
 * by `known` and the rest of their name. {"model.", ""} makes "w" of "model.w", {"", "model."} the
 * reverse. */
struct cairn_rename {
    size_t size; /* of this struct */
    const char *stored, *known;
    int whole;
};
struct cairn_restore_options {
    size_t size;        /* of this struct */
    const char *ref;    /* NULL: what cairn_open resumed from, else "latest"; a step, a version id,
                        "best" or an alias of the run ("prod") */
    const char *format; /* insist on this tag; another is CAIRN_UNSUPPORTED */
    uint32_t timeout_ms;
    /* The first rule that fits a stored name says how every call on this handle knows its tensor;
     * one that none fits keeps its name. CAIRN_INVALID: two tensors would have one name. */
    const struct cairn_rename *renames;
    size_t rename_count;
};
struct cairn_restore_info {
    uint64_t step, attempt, total_bytes;
    uint32_t world_size, shard_count, tensor_count;
    char version[48];
    char format[64];
};
/* Open one committed version: every read is of this version alone. ret_info may be NULL. An
 * uploader that is away, or goes away meanwhile, is waited for until the call's deadline.
 * CAIRN_NOT_FOUND, CAIRN_NOT_COMMITTED: no such version; CAIRN_CORRUPT: its manifest or layout is
 * damaged. */
enum cairn_code cairn_restore_open(struct cairn_session *session,
                                   const struct cairn_restore_options *options,
                                   struct cairn_restore **ret, struct cairn_restore_info *ret_info,
                                   struct cairn_error *err);
void cairn_restore_free(struct cairn_restore *restore);

/* What the save was given (cairn_save_begin, cairn_save_set_meta): objects in canonical JSON, "{}"
 * where it was given none; what was written to the version after its commit is not among it. The
 * restore's, until it is freed. */
const char *cairn_restore_labels(const struct cairn_restore *restore);
const char *cairn_restore_meta(const struct cairn_restore *restore);

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
/* index from 0, in the order of the names; CAIRN_NOT_FOUND past the last. No message is sent. */
enum cairn_code cairn_restore_shard_at(struct cairn_restore *restore, uint32_t index,
                                       struct cairn_shard_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_at(struct cairn_restore *restore, uint32_t index,
                                        struct cairn_tensor_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_find(struct cairn_restore *restore, const char *name,
                                          struct cairn_tensor_info *ret, struct cairn_error *err);

/* Does the version have what a job wants, and nothing else? By names, without reading a tensor. */
enum cairn_mismatch {
    CAIRN_TENSOR_MISSING = 1, /* wanted, and the version does not have it */
    CAIRN_TENSOR_SURPLUS = 2  /* the version has it, and nobody wants it */
};
struct cairn_match_options {
    size_t size;              /* of this struct */
    const char *const *names; /* that are wanted; one that is there twice counts once */
    size_t name_count;
    int allow_missing, allow_surplus; /* 1: reported, and no error */
    /* Called for each that does not match, during the call: the missing ones in the order of
     * `names`, then the surplus ones in the order of their names. NULL is allowed. */
    void (*report)(void *owner, enum cairn_mismatch what, const char *name);
    void *owner;
};
/* CAIRN_NOT_FOUND: tensors are missing, or surplus, that are not allowed to be; the message counts
 * them and names the first. */
enum cairn_code cairn_restore_match(struct cairn_restore *restore,
                                    const struct cairn_match_options *options,
                                    struct cairn_error *err);

/* One read of a call; those of one call run in parallel, and blocks that they share are read
 * once. */
struct cairn_read {
    size_t size;                   /* of this struct */
    const char *shard;             /* whole shards and ranges of them ... */
    uint64_t offset, bytes;        /* bytes of the shard; bytes UINT64_MAX = to its end */
    const char *tensor;            /* ... or a tensor by name; aliases are followed */
    uint32_t local_rank_of;        /* LOCAL tensors: whose */
    enum cairn_form form;          /* CAIRN_WHOLE, CAIRN_FLAT, CAIRN_BOX */
    const uint64_t *start, *count; /* in elements, as in struct cairn_tensor_piece */
    void *into;                    /* row-major, contiguous; written to during the call alone */
    uint64_t into_bytes;           /* must equal the bytes that are read */
    enum cairn_memory memory; /* CAIRN_MEMORY_CUDA: into is memory of a CUDA device, which is */
    void *stream;             /* written after the work that this stream of it has */
    /* Of tensors, into host memory: */
    const char *into_dtype;     /* F64, F32, BF16 and F16 become each other, rounded to the nearest,
                                   ties to even (F64 by way of F32); NULL: as it is stored */
    const int64_t *into_stride; /* elements from one index of the region to the next, per dimension,
                                   1 for FLAT; what lies between is not written to. NULL: row-major
                                   and contiguous. into_bytes is that of the elements alone */
    int optional; /* 1: of a tensor that the version does not have, into stays as it is */
};
/* CAIRN_OK: every destination is filled, and every block was compared with its checksum. After any
 * error the destinations are undefined. CAIRN_CORRUPT names the first bad place; CAIRN_NOT_FOUND:
 * no such shard or tensor; CAIRN_RANGE: bytes or elements outside of it; CAIRN_UNSUPPORTED:
 * elements of less than a byte that are cut within one, types that do not become each other,
 * into_dtype or into_stride of a device's memory, memory of a device without its plug-in or its
 * runtime; CAIRN_IO: a device failed, with CUDA's own name of it; CAIRN_TOO_LARGE: the
 * reads fall into too many pieces for one call. Reads of one session take turns. */
enum cairn_code cairn_restore_read(struct cairn_restore *restore, const struct cairn_read *reads,
                                   size_t count, uint32_t timeout_ms, struct cairn_error *err);

/* ---- list ---- */

struct cairn_checkpoint {
    char version[48];
    uint64_t step, attempt, total_bytes;
    uint32_t shard_count;
    char state[16];    /* "open", "committed", "aborting", "trashed", ... */
    char saved_at[32]; /* RFC 3339 */
    int superseded, latest;
};
/* All versions of the run, those that the newest attempt saved first. *ret_list is freed with
 * cairn_list_free, also when *ret_count is 0. A page that fails is an error of the call, never a
 * shorter list. CAIRN_TOO_LARGE: more than a million versions. */
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
