/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn: save and restore the checkpoints of a training job.
 *
 * Why:     a rank copies its tensors into memory that it shares with the uploader of its node, and
 *          trains on; the uploader sends them to the store, and the server commits the checkpoint
 *          once every rank's shards are there.
 * Promise: P3  restore gives exactly the bytes that were saved, or an error that names run, step,
 *              shard and byte range. Never short, zero-filled or mixed.
 *          P4  a save holds what its sources held during cairn_save_stage, or between
 *              cairn_save_stage_begin and its fence (cairn/stage.h); afterwards the sources may
 *              change.
 *          P9  every call has a deadline and ends by it. A save that fails between two calls
 *              returns its error from the next call on its handle, and from cairn_session_problem:
 *              call that before each save. The failure of one save never fails the begin of
 *              another, which would end the next version for all ranks, and so on.
 * Limits:  8 dimensions; tensor names 1,024 bytes; shard names 512 bytes, none the folder of
 *          another ("opt" and "opt/state"); one save stages at most the session's `bytes`; two
 *          saves under way, or one where memory is short. A forked child cannot use the library:
 *          calls there return CAIRN_INVALID.
 * Threads: several threads may use a session at once; one thread at a time may use a save or
 *          restore handle, except for cairn_save_cancel, cairn_save_status, cairn/poll.h,
 *          cairn_restore_read and cairn_read_begin. A second thread on a save handle gets
 *          CAIRN_INVALID; a save freed while another thread is in a call on it is released when
 *          that call ends. The library runs one thread per session, from cairn_open to cairn_close,
 *          a second one from the session's first cairn_read_begin on, and more while
 *          cairn_save_stage_begin or a large stage copies, or cairn_session_reserve_begin reserves.
 *          These threads block all signals.
 *          cairn_close may be called while other threads wait in the session: it ends their calls
 *          and waits for them to return.
 * Next:    cairn/stage.h (copy while training goes on), cairn/pieces.h (describe many pieces at
 *          once, and once for many saves), cairn/items.h (bytes by name, streams), cairn/inspect.h
 *          (what a version holds), cairn/reads.h (background reads), cairn/poll.h (saves in an
 *          event loop), cairn/runs.h (runs, removals), cairn/find.h (versions, labels, pins,
 *          aliases); docs/architecture.md follows one checkpoint end to end.
 *
 * Units:   sizes and offsets in bytes unless the name says elements; times in milliseconds, and a
 *          timeout of 0 means the session's default (60 s).
 * Options: an option struct begins with its size, `.size = sizeof options`, so that programs and
 *          libraries of different releases know each other's fields. A size of 0 is CAIRN_INVALID;
 *          zero is the default of every other option. Result structs have no size: their layout is
 *          frozen for a major version of the library.
 * Memory:  a call copies the strings and arrays in its option structs. Tensor and raw sources are
 *          read only during cairn_save_stage (or _copy) and must stay valid until it returns.
 *          `*ret` is written on success only; the caller frees each handle with its _free function,
 *          which takes NULL.
 * NULL:    NULL options mean all defaults; a NULL handle, `ret` or required array is CAIRN_INVALID.
 * Errors:  the return value decides; err may be NULL. Besides the codes named at a call, each may
 *          return CAIRN_INVALID (a bad argument, a closed session, a forked child),
 *          CAIRN_NO_MEMORY, CAIRN_TIMEOUT, CAIRN_PROTOCOL and, after a bug of the library,
 *          CAIRN_INTERNAL; every later call in this process then returns CAIRN_BROKEN.
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
const char *cairn_version(void); /* version of the linked library; static storage */

/* ---- session: one rank and its uploader ---- */

struct cairn_session;

/* What happens to staged saves when this process ends without cairn_close. */
enum cairn_on_disconnect {
    CAIRN_DISCONNECT_FINISH = 0, /* the uploader finishes them */
    CAIRN_DISCONNECT_ABORT = 1   /* they fail for all ranks, unless already committed */
};
struct cairn_open_options {
    size_t size;
    const char *run; /* "project/run"; NULL, with read_only: calls that need a run name it in their
                        options (restores, cairn_find) or return CAIRN_INVALID */
    const char *job; /* NULL: CAIRN_JOB, else torchelastic's run id and restart count, else
                        Slurm's job id and restart count; with world_size 1 a random one */
    uint32_t rank, world_size;             /* world_size 0 = 1 */
    uint32_t local_rank, local_world_size; /* local_world_size 0 = 1 */
    uint64_t bytes;                        /* most bytes one save of this rank stages; 0: files only
                            (cairn_session_reserve) */
    uint64_t node_bytes; /* the same for all ranks of the node; 0 = local_world_size * bytes */
    /* Which version to resume from. NULL, "latest", a step number or a version id: that version;
     * versions after it are superseded. "none": start from nothing and supersede all versions.
     * "keep" or "ahead": start from nothing and supersede nothing. With "keep", a save at a lower
     * step than the latest version's is ordered by its step and `latest` does not move; in all
     * other modes the newest save becomes latest, whatever its step. */
    const char *resume;
    /* NULL: CAIRN_SOCKET, else /run/cairn/uploader.sock. The process that listens there must run as
     * root, as this user, or as a user in CAIRN_UPLOADER_USERS (docs/config.md). */
    const char *socket;
    uint32_t timeout_ms;     /* default deadline of every call; 0 = 60,000 */
    uint32_t wait_staged_ms; /* how long cairn_open waits until an older attempt's saves release
                                their memory; 0 = 30,000 */
    int read_only;           /* 1: opens no attempt and takes no memory for saves; only restores,
                                lists and cairn/find.h work */
    uint32_t
        copy_threads;  /* threads of cairn_save_stage, at most 64; 0: CAIRN_COPY_THREADS, else as
                          many as speed up the copy: measured in this process's saves, at most the
                          rank's share of the cores, one per 32 MiB of a shard */
    int interruptible; /* 1: a waiting call ends with CAIRN_INTERRUPTED once its thread has handled
                          a signal. cairn_save_begin and cairn_save_stage then give up the save, as
                          for any error; a wait, a restore or a list may be repeated; cairn_close
                          stops waiting */
    enum cairn_on_disconnect on_disconnect; /* uploaders of older releases always finish */
};

/* The version that the attempt resumes from. */
struct cairn_resume {
    uint64_t attempt;
    int found; /* 0: nothing to resume from; start at step 0 */
    uint64_t step;
    char version[48]; /* "ckpt_..." */
};

/* Connects to the uploader, opens or joins the attempt, maps the slabs. The caller frees *ret with
 * cairn_close; ret_resume may be NULL. CAIRN_UPLOADER_GONE: the socket does not exist, or the
 * uploader died before or during the call and did not return within ten seconds; with read_only the
 * call waits for the uploader until timeout_ms. CAIRN_JOB_REUSED, CAIRN_STALE_ATTEMPT: another
 * incarnation holds the run. CAIRN_NO_MEMORY: the node's budget cannot hold one save of every rank;
 * the message has the numbers. */
enum cairn_code cairn_open(const struct cairn_open_options *options, struct cairn_session **ret,
                           struct cairn_resume *ret_resume, struct cairn_error *err);
/* Changes the session's `bytes` and `node_bytes` (as in the options), for sizes that become known
 * late (an optimizer creates its state at its first step) or grow. Call it between two saves: it
 * waits until no save of this session needs its memory, releases that memory and requests the new
 * size as cairn_open does; a concurrent cairn_save_begin waits for it. timeout_ms 0: the session's
 * default plus wait_staged_ms. CAIRN_NO_MEMORY, CAIRN_UPLOADER_GONE: the session has no memory; the
 * call may be repeated, also with less. CAIRN_TIMEOUT (a save still needs its memory), CAIRN_BUSY
 * (another reserve is under way), CAIRN_UNSUPPORTED (an older uploader): the session keeps its
 * memory. */
enum cairn_code cairn_session_reserve(struct cairn_session *session, uint64_t bytes,
                                      uint64_t node_bytes, uint32_t timeout_ms,
                                      struct cairn_error *err);
/* As cairn_session_reserve, but returns at once: a library thread requests the memory and
 * pre-faults it, within ten minutes, while training goes on (an optimizer's first step).
 * cairn_save_begin waits for memory that is not there yet as it waits for memory of earlier saves
 * (`wait_us`), so that the first save stalls no longer than the next one. A later failure is
 * returned by cairn_session_problem, as CAIRN_UNAVAILABLE, and by the stage of a save that got no
 * memory. The call itself fails with CAIRN_INVALID, CAIRN_BUSY or CAIRN_UNSUPPORTED, as above. */
enum cairn_code cairn_session_reserve_begin(struct cairn_session *session, uint64_t bytes,
                                            uint64_t node_bytes, struct cairn_error *err);
/* Disconnects and frees the session, whatever it returns; takes NULL. Staged saves go on in the
 * uploader; saves that were never staged fail for all ranks. Waits up to ten seconds for the
 * uploader if failures are unreported, or if the uploader is away and staged bytes are not durable.
 * Returns CAIRN_OK, the first failure that no call has returned yet, or CAIRN_UPLOADER_GONE when
 * staged saves are lost with an uploader that did not return. Save and restore handles stay valid
 * until freed; their calls that need the session return CAIRN_INVALID. */
enum cairn_code cairn_close(struct cairn_session *session, struct cairn_error *err);
/* Continues in this process as another rank of another world, for an elastic job that lost or
 * gained ranks. The old attempt ends as by cairn_close (staged saves go on, unstaged ones fail,
 * handles stay valid until freed); the session then opens a new attempt with memory for its new
 * size. All ranks of a node must renew or close at about the same time: the new attempt waits, up
 * to wait_staged_ms, for memory that sessions of the old attempt hold there. options as for
 * cairn_open: `job` must be new, and the same on all ranks of the new world; ranks and world sizes
 * are the new ones; run and socket must be the session's own or NULL; bytes, timeouts and
 * copy_threads of 0 keep their values. The failure of a save of the old attempt is returned by the
 * next cairn_session_problem. After an error of cairn_open's kind every call on the session returns
 * that error, and the session may be renewed again or closed; CAIRN_INVALID for the options leaves
 * the session unchanged. No other thread may be in cairn_session_renew or cairn_close meanwhile;
 * other calls end with CAIRN_INVALID. */
enum cairn_code cairn_session_renew(struct cairn_session *session,
                                    const struct cairn_open_options *options,
                                    struct cairn_resume *ret_resume, struct cairn_error *err);
/* Returns CAIRN_OK, or the first save failure that no call has returned yet. Its message names run,
 * step and rank, and the ordinal n when the step was saved more than once in this process. Does not
 * wait. CAIRN_UNAVAILABLE: no save has failed, but one is delayed, because the server keeps failing
 * it or the store is unreachable; the uploader keeps retrying. Each problem is returned once. */
enum cairn_code cairn_session_problem(struct cairn_session *session, struct cairn_error *err);
/* Returns CAIRN_OK, or CAIRN_UNAVAILABLE once per series of begins in which the second begin found
 * an earlier save still under way: saves take longer than the interval between them, so a later
 * begin will wait for memory. The message names the bottleneck (the store or its link, the slab,
 * the server or other ranks, the uploader) and the measured bytes, seconds and MB/s. Also returned
 * once per series of saves that may be stale: of the 1 MiB blocks that changed in each of three
 * earlier saves, half or more are unchanged in this one. Does not wait. */
enum cairn_code cairn_session_warning(struct cairn_session *session, struct cairn_error *err);

struct cairn_warmup_options {
    size_t size;
    int memory;          /* CAIRN_MEMORY_CUDA: also loads the CUDA plug-in and page-locks the
                            memory of saves (by the first save, if the process has not used a
                            device yet) */
    uint32_t timeout_ms; /* 0: the session's */
};
/* Tests the path of a save before the first one: the uploader writes a small probe to the store,
 * the server checks that it sees the probe, and the probe is deleted. Ranks do not wait for each
 * other. Returns CAIRN_OK, or the error that would fail the first save (keys, bucket, endpoint,
 * proxy, a folder that is read-only or not the server's); the message names node and rank. The
 * server keeps each rank's result (GET /v1/runs/PROJECT/RUN/probes). options may be NULL. */
enum cairn_code cairn_warmup(struct cairn_session *session,
                             const struct cairn_warmup_options *options, struct cairn_error *err);

/* Computes cairn_split_options.weights: ret_weights[i], from 1 to 8, follows the upload speed of
 * the node of ranks[i] in the previous attempt, so that slow nodes save less. Every rank gets the
 * same weights for the attempt's whole life; all are 1 if speeds are unknown or alike. */
enum cairn_code cairn_session_weights(struct cairn_session *session, const uint32_t *ranks,
                                      size_t count, uint32_t *ret_weights, struct cairn_error *err);

/* ---- tensors ---- */

enum cairn_kind {
    CAIRN_SHARDED = 1,    /* the ranks' pieces cover the tensor exactly once */
    CAIRN_REPLICATED = 2, /* each rank that lists it holds the whole tensor with equal content */
    CAIRN_ALIAS = 3,      /* another name for the tensor `alias_of`; stores no bytes */
    CAIRN_LOCAL = 4       /* private to this rank */
};
enum cairn_form {
    CAIRN_WHOLE = 0, /* the piece is the whole tensor */
    CAIRN_FLAT = 1,  /* elements [start[0], start[0] + count[0]) of the flattened tensor */
    CAIRN_BOX = 2    /* start[d], count[d] per dimension */
};
enum cairn_memory { CAIRN_MEMORY_HOST = 0, CAIRN_MEMORY_CUDA = 1 };
struct cairn_tensor_piece {
    size_t size;
    const char *name;
    const char *dtype; /* safetensors' names: "BF16", "F32", "I64", "F8_E4M3", ...; for other types
                          those of docs/format.md: "C128", "QI8", "I4", ... */
    uint32_t dimension_count; /* 0: a scalar */
    const uint64_t *shape;    /* of the whole tensor */
    enum cairn_kind kind;
    const char *alias_of; /* CAIRN_ALIAS only */
    enum cairn_form form;
    const uint64_t *start, *count; /* in elements; 1 value each for FLAT, dimension_count for BOX */
    const void *source;            /* the piece's first element; read during cairn_save_stage */
    uint64_t source_bytes;         /* must equal the piece's bytes, gaps excluded */
    const int64_t *source_stride;  /* distance in elements between neighbours, per dimension of the
                                      piece, 1 value for FLAT; NULL: row-major and contiguous */
    /* Instead of source: writes bytes [offset, offset + bytes) of the piece to `to` during
     * cairn_save_stage and returns 0; any other result fails the save with CAIRN_SOURCE_GONE. Each
     * byte is requested once, in ranges of up to 16 MiB, from all copy threads at once; with
     * copy_threads 1 on the caller's thread, in ascending order. Must not call the session. */
    int (*fill)(void *owner, uint64_t offset, void *to, uint64_t bytes);
    void *fill_owner;
    /* CAIRN_MEMORY_CUDA: source is CUDA device memory. It is copied after the work that is queued
     * on `stream` (a cudaStream_t of that device; NULL: its default stream) when cairn_save_stage
     * is called. Needs libcairn_cuda.so beside libcairn, and the process's CUDA runtime. */
    enum cairn_memory memory;
    void *stream;
    const char *in_file;  /* instead of source: the file of cairn_save_file with the piece */
    uint64_t file_offset; /* the piece's first byte in that file */
    int by_caller;        /* 1: the caller writes the piece itself (cairn_save_slot_at) */
    /* Number of FLAT ranges or boxes of one SHARDED or LOCAL tensor in this piece; 0 is 1. start
     * and count hold the regions one after the other, and so does source. A region may be empty.
     * Not allowed with source_stride, source_dtype or a tensor that a split lists. */
    uint32_t region_count;
    /* Element type of source where it differs from dtype: F64, F32, BF16 and F16 convert into each
     * other (an F32 source stored as BF16 takes half the bytes), rounded to nearest, ties to even,
     * while copying into the slab, without other memory. source_bytes and source_stride describe
     * the source. Device memory is converted before it crosses the link, F32, BF16 and F16 only.
     * CAIRN_UNSUPPORTED: F64 in device memory, or a libcairn_cuda.so built without nvcc. */
    const char *source_dtype;
};

/* ---- split: ranks that hold the same tensors save a share each ---- */

/* The members of a replica group hold the same parts of the same tensors: the ranks of a
 * data-parallel group, of an expert-data-parallel group, or one group per tensor- and
 * pipeline-parallel coordinate. Each lists the tensors and computes its share alone, without a
 * message. A save that begins with the split stores only this rank's share of each listed
 * tensor. */
struct cairn_split;

enum cairn_split_by {
    CAIRN_SPLIT_FIRST = 0,  /* member 0 saves everything */
    CAIRN_SPLIT_LAYER = 1,  /* whole layers (names up to their first all-digit component), balanced
                               by bytes */
    CAIRN_SPLIT_TENSOR = 2, /* whole tensors, balanced by bytes */
    CAIRN_SPLIT_SLICE = 3   /* ranges of elements: shares of equal weight differ by at most 4 KiB */
};
/* DeepSpeed's settings; tensor_slice wins if both are set, neither means CAIRN_SPLIT_FIRST. */
struct cairn_parallel_write {
    size_t size;
    int pipeline_stage, tensor_slice;
};
enum cairn_code cairn_split_by_of(const struct cairn_parallel_write *config,
                                  enum cairn_split_by *ret, struct cairn_error *err);

struct cairn_split_options {
    size_t size;
    const char *group;        /* name, the same in each member and unique per group */
    uint32_t member, members; /* this rank's index in the group, from 0; at most 65,536 members */
    enum cairn_split_by by;
    const uint32_t *weights; /* one per member; a share's bytes are proportional; NULL = equal */
};
/* CAIRN_INVALID. The caller frees *ret with cairn_split_free, after staging the saves that use it.
 * One thread at a time. */
enum cairn_code cairn_split_new(const struct cairn_split_options *options, struct cairn_split **ret,
                                struct cairn_error *err);
void cairn_split_free(struct cairn_split *split);
/* Lists a tensor: name, dtype, shape, and the part that every member holds (form, start, count).
 * The order does not matter; other fields are ignored, except the kind CAIRN_ALIAS: a tied tensor
 * is saved once, under its other name, and belongs to no share. CAIRN_INVALID: also after shares
 * were queried or a save began with the split. */
enum cairn_code cairn_split_add(struct cairn_split *split, const struct cairn_tensor_piece *piece,
                                struct cairn_error *err);
/* Bytes of a member's share. CAIRN_INVALID: a tensor was listed twice, or all weights are 0. */
enum cairn_code cairn_split_bytes(struct cairn_split *split, uint32_t member, uint64_t *ret,
                                  struct cairn_error *err);
/* One tensor of a share: elements [start, start + count) of the flattened listed part. */
struct cairn_split_share {
    const char *name; /* owned by the split, valid until it is freed */
    uint64_t start, count;
};
/* index counts from 0 in the order of names; CAIRN_NOT_FOUND past the last. */
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
/* CAIRN_COPIED: the sources may be changed. CAIRN_PARTNERED is independent of the others: another
 * node holds a verified copy of this rank's whole save, which survives the loss of one node; where
 * nodes keep no copies (partner_copies of the run's policy or of the server) it is reached with the
 * commit. CAIRN_DECIDED, for a save with `follow`: the server knows that rank 0 has sealed its
 * part. */
enum cairn_milestone {
    CAIRN_STAGED = 1,
    CAIRN_DURABLE = 2,
    CAIRN_COMMITTED = 3,
    CAIRN_PARTNERED = 4,
    CAIRN_COPIED = 5,
    CAIRN_DECIDED = 6
};

struct cairn_save_options {
    size_t size;
    enum cairn_on_exists on_exists;
    int skip;                /* 1: skip this save while an earlier one is still uploading */
    const char *format;      /* tag that a reader may require; NULL = none */
    const char *labels_json; /* JSON object of strings; rank 0's count */
    const char *meta_json;   /* JSON object, at most 64 KiB canonical; rank 0's counts. The library
                                adds "origin" (host, user, git commit, job ids) unless the object
                                has that key, even as null */
    uint32_t timeout_ms;     /* for begin: includes the wait for this rank's memory */
    /* Replica groups of which this rank saves a share; must stay valid until the save is staged. If
     * ranks' lists differ, the save ends for all with CAIRN_BEGIN_DIFFERS, which says where. */
    struct cairn_split *const *splits;
    size_t split_count;
    /* Called after each change of the save's status, by the thread inside cairn_save_stage, _copy,
     * _seal or cairn_save_wait of this save, at the latest before such a call returns CAIRN_OK, and
     * only there. It may call cairn_save_status and cairn_save_cancel; its time is the call's. */
    void (*progress)(void *owner, const struct cairn_save_status *status);
    void *progress_owner;
    /* 1, for tests: the fence re-reads the sources of cairn_save_stage_begin and compares them with
     * the copy before the seal. A changed source fails the save with CAIRN_SOURCE_CHANGED and its
     * name. `fill` functions are called twice. */
    int verify_sources;
    /* 1: rank 0's seal decides when the checkpoint is complete. Every other rank begins with
     * `follow`, learns of that seal by cairn_save_wait, _poll or a descriptor (CAIRN_DECIDED), then
     * stages what it has by then, possibly nothing; until then it may add files, items and tensors.
     * If rank 0 fails, cancels or exits, the wait returns that failure. CAIRN_INVALID: set on rank
     * 0; CAIRN_UNSUPPORTED: the uploader is of an older release. */
    int follow;
};
/* Begins a save. Every rank calls it for every step it saves; no rank waits for another. It waits
 * for a free slab of this rank, because an earlier save holds its slab until durable. *ret lives
 * until cairn_save_free, also if the save fails later; a begin that fails returns no handle and
 * fails the step for all ranks. CAIRN_SKIPPED, CAIRN_STEP_EXISTS and CAIRN_STALE_ATTEMPT come from
 * this or a later call, because the server decides for all ranks at once. While the uploader is
 * away the save begins in a free slab and is announced to the next uploader; without a free slab
 * the call returns CAIRN_UPLOADER_GONE within a second. One that is frozen (SIGSTOP) counts as away
 * after two seconds without an answer; a begin without a free slab waits for it. */
enum cairn_code cairn_save_begin(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options, struct cairn_save **ret,
                                 struct cairn_error *err);
/* Describes a piece; cairn_save_stage reads its source. For a tensor that a split lists, pass the
 * whole listed part, SHARDED or REPLICATED; only this rank's share is read and saved, and
 * cairn_save_stage refuses a save that lacks a listed tensor. After CAIRN_INVALID, CAIRN_TOO_LARGE
 * or CAIRN_UNSUPPORTED (device memory without its plug-in or runtime, or in a type that it cannot
 * convert) this piece is not part of the save, and the others stay. If the save is then never
 * staged, it fails when a later save needs its memory. */
enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err);
/* Adds source as a shard named <name> in this rank's folder ("rank-00003/<name>"), read when
 * staged. */
enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err);
/* Adds a file as a shard under exactly this name, for tools that keep a directory tree. The
 * uploader reads it through fd (a regular file, open for reading; duplicated during the call) in
 * bounded memory, so it may be larger than the session's `bytes`. The file must not change until
 * durable; a detected change fails the save with CAIRN_SOURCE_CHANGED or CAIRN_SOURCE_GONE. Other
 * nodes keep no copy of a save with a file (CAIRN_PARTNERED). */
enum cairn_code cairn_save_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                struct cairn_error *err);
/* Replaces the labels and meta of cairn_save_begin until the seal, for facts known only after the
 * ranks have written, such as a loss. NULL keeps the present value. Rank 0's count; other ranks'
 * are only checked. CAIRN_INVALID: nothing changed. CAIRN_UNSUPPORTED: an uploader of an older
 * release. */
enum cairn_code cairn_save_set_meta(struct cairn_save *save, const char *labels_json,
                                    const char *meta_json, struct cairn_error *err);
/* Copies every piece and raw shard into the slab, and seals the save. Strided pieces are copied in
 * place, without a temporary. Where the process may use several cores per rank of the node, several
 * threads copy large shards (`copy_threads`) and end with the call. After it returns the sources
 * may be changed. CAIRN_OK: the bytes are copied. If the uploader is away, the session seals the
 * save with the next one, and the handle may be freed meanwhile: `away` of cairn_save_status says
 * so, and cairn_save_wait tells the outcome. Any error is final: the save fails for all ranks.
 * CAIRN_IO with CUDA's name for the error: a device failed; saves of host memory still work. */
enum cairn_code cairn_save_stage(struct cairn_save *save, struct cairn_error *err);
/* The two halves of cairn_save_stage, for facts known only after the ranks have written. After
 * cairn_save_copy the sources may be changed, and the uploader sends what is copied. Tensors and
 * raw shards in memory that are described later, and cairn_save_set_meta, are added by
 * cairn_save_seal; everything must fit into the session's `bytes`. A save that is copied but not
 * sealed holds its memory until its handle or the process ends. Errors as of cairn_save_stage,
 * which after a copy does the rest. CAIRN_INVALID (wrong order of calls) changes nothing;
 * CAIRN_UNSUPPORTED when describing a piece after the copy: the uploader is of an older release. */
enum cairn_code cairn_save_copy(struct cairn_save *save, struct cairn_error *err);
enum cairn_code cairn_save_seal(struct cairn_save *save, struct cairn_error *err);
/* The slab memory of a piece with by_caller, for copies that the caller makes itself (from pinned
 * memory, by a kernel, from a file). */
struct cairn_save_slot {
    const char *name; /* name of its tensor; valid until the save is sealed */
    void *to;         /* writable until cairn_save_copy or cairn_save_stage; NULL: no bytes */
    uint64_t bytes;   /* for a tensor that a split lists: this rank's share */
};
/* index counts from 0 in the order of description; CAIRN_NOT_FOUND past the last. The first call
 * lays out every piece: nothing can be described between it and the copy. */
enum cairn_code cairn_save_slot_at(struct cairn_save *save, uint32_t index,
                                   struct cairn_save_slot *ret, struct cairn_error *err);
/* Declares all bytes of the slot written. Until each slot is declared, cairn_save_copy and
 * cairn_save_stage return CAIRN_INVALID and may be repeated. */
enum cairn_code cairn_save_written(struct cairn_save *save, uint32_t index,
                                   struct cairn_error *err);
/* Waits until the save reaches the milestone; a reached milestone stays reached. CAIRN_TIMEOUT: not
 * yet; repeat the call. The message says what is missing: shards in the store, a copy on another
 * node, other ranks, the store, the server, or a connected uploader that does not answer. Once
 * CAIRN_PARTNERED was returned for every rank, the save commits even if one node is lost.
 * CAIRN_UPLOADER_GONE, within a second: the uploader is away; the next one takes the save over, so
 * the call may be repeated. Any other error is final. */
enum cairn_code cairn_save_wait(struct cairn_save *save, enum cairn_milestone milestone,
                                uint32_t timeout_ms, struct cairn_error *err);
/* Is the save decided? Does not wait; any thread may call it. Returns 1 if decided: *ret (may be
 * NULL) is CAIRN_OK (committed) or the failure. Returns 0 if not: *ret is CAIRN_TIMEOUT,
 * CAIRN_UPLOADER_GONE while the uploader is away, or CAIRN_CANCELLED for a cancelled save that may
 * still turn out committed. A NULL save returns 1 with CAIRN_INVALID. State of the save after each
 * code:
 *
 *     call                           code             state of the save
 *     cairn_save_begin, _again       any error        no handle; the step failed for all ranks,
 *                                                     except after CAIRN_INVALID of arguments
 *     cairn_save_tensor and its kin  any error        as before the call
 *     cairn_save_stage, _seal        OK               goes on: its bytes are copied, and sealed, or
 *                                                     `away` until they are
 *     cairn_save_stage, _copy,       INVALID          as before the call (wrong order of calls)
 *       _seal, _stage_begin          any other error  over
 *     cairn_save_fence               TIMEOUT,         goes on; its sources are still being read
 *                                    INTERRUPTED
 *                                    INVALID          as before the call
 *                                    any other error  over
 *     cairn_save_wait, _poll         TIMEOUT, INTERRUPTED,  goes on: call again
 *                                    UPLOADER_GONE
 *                                    any other error  over
 *     cairn_save_fail, _cancel       OK               over, as failed; but see _cancel
 *                                    ALREADY_COMMITTED      over, as committed
 *                                    UPLOADER_GONE    over here; other ranks learn of it later
 *     cairn_session_problem          UNAVAILABLE      goes on, delayed
 *                                    any other error  the save that the message names is over
 *
 * Calls that are about no save under way. "Again": nothing happened, and the call may be repeated;
 * so it may after every code that cairn_code_info calls retryable.
 *
 *     call                           code             what is done
 *     cairn_open                     any error        nothing: no session
 *     cairn_session_renew            INVALID          nothing
 *                                    any other error  the old attempt ended; renew again, or close
 *     cairn_session_reserve          TIMEOUT, BUSY,   nothing: the session keeps its memory
 *                                    UNSUPPORTED
 *                                    any other error  the session has no memory: again, maybe less
 *     cairn_close                    any error        closed: the error is a save's
 *     cairn_warmup, cairn_list,      any error        nothing
 *       cairn_find, cairn_runs
 *     cairn_annotate, cairn_alias_set, TIMEOUT,       unknown; again does no harm
 *       cairn_remove                 UPLOADER_GONE
 *                                    any other error  nothing
 *     cairn_restore_open             any error        nothing: no restore
 *     cairn_restore_read, _items,    any error        destinations are undefined; the restore
 *       cairn_restore_pieces                          stays, and the call may be repeated after
 *                                                     TIMEOUT, INTERRUPTED, UPLOADER_GONE
 *     cairn_read_wait                TIMEOUT,         the read goes on while cairn_read_poll
 *                                    INTERRUPTED      returns 0
 *                                    any other error  done: destinations are undefined
 *     cairn_save_fence_stream        any error        the stream may not wait; call
 *                                                     cairn_save_fence
 *     cairn_stream_write, _close     any error        as before the call */
int cairn_save_over(const struct cairn_save *save, enum cairn_code *ret);
/* Fails the save for all ranks. reason is sent to the server; may be NULL. CAIRN_OK also if the
 * save had failed before. CAIRN_ALREADY_COMMITTED: the commit came first. CAIRN_UPLOADER_GONE: the
 * session reports the failure when an uploader is back. */
enum cairn_code cairn_save_fail(struct cairn_save *save, const char *reason,
                                struct cairn_error *err);
/* As cairn_save_fail, from any thread, also while another thread is in a call on the handle (which
 * must not be freed meanwhile), and without waiting: cairn_save_stage ends within its next 16 MiB
 * and cairn_save_wait at once, with CAIRN_CANCELLED; a running fill function is waited for. The
 * session's thread tells the other ranks. CAIRN_OK also if the save had failed before.
 * CAIRN_ALREADY_COMMITTED: the commit is known here. If the server commits meanwhile, the commit
 * wins and cairn_save_wait returns it. */
enum cairn_code cairn_save_cancel(struct cairn_save *save, const char *reason,
                                  struct cairn_error *err);
struct cairn_save_status {
    uint64_t step;
    char version[48];             /* "" until an uploader answers the begin */
    enum cairn_milestone reached; /* 0: none yet; only cairn_save_wait reports PARTNERED and
                                     COPIED */
    int away; /* 1: copied, but no uploader has it: the next one takes it over. cairn_save_wait and
                 _poll return CAIRN_UPLOADER_GONE meanwhile. 0 once one has it, or it is over */
    /* Progress in bytes of the objects, headers included; each counter grows up to total_bytes,
     * which is 0 until cairn_save_stage computes it. */
    uint64_t total_bytes;
    uint64_t staged_bytes;  /* copied into the slab; files count once all is staged */
    uint64_t sent_bytes;    /* the store has acknowledged their part */
    uint64_t durable_bytes; /* the store has verified the object: 0, then all at once */
    uint64_t stall_us;      /* time for which the caller was stopped: in begin (or _again), in calls
                               that describe, in cairn_save_stage, _copy, _seal, _stage_begin and
                               in fences; not the copy beside the training */
    uint64_t wait_us;       /* ... of which begin waited for memory of earlier saves */
};
/* The present state; does not wait; any thread, also during a copy. All zero if save is NULL. */
void cairn_save_status(const struct cairn_save *save, struct cairn_save_status *ret);
/* Frees the handle. A staged save goes on; one that was not staged fails for all ranks. */
void cairn_save_free(struct cairn_save *save);

/* ---- last chance: a signal announces the end of the process ---- */

struct cairn_last_chance_options {
    size_t size;
    const int *signals;  /* at most 8 */
    size_t signal_count; /* 0: SIGTERM and SIGUSR1 */
    uint32_t grace_ms;   /* time between the signal and the kill; 0 = 30,000 */
};
/* From here on these signals set a flag instead of ending the process; installed handlers are still
 * called. One watch per process. CAIRN_INVALID: a watch exists, or a signal cannot be handled. */
enum cairn_code cairn_last_chance_watch(const struct cairn_last_chance_options *options,
                                        struct cairn_error *err);
/* Returns 0, or the first watched signal that arrived. Call it between two steps; after a signal,
 * save and exit. *ret_left_ms (may be NULL) is what is left of grace_ms since the signal; not
 * written with 0. Always 0 in a forked child. Saves that rank 0 begins after the signal bear the
 * label cairn.preempted with its name. */
int cairn_last_chance(uint32_t *ret_left_ms);
/* Restores the previous handlers. */
void cairn_last_chance_unwatch(void);

/* ---- restore ---- */

struct cairn_restore;
/* A rename rule: tensors whose stored name begins with `stored` (with `whole`: equals it) are known
 * by `known` plus the rest. {"model.", ""} makes "w" of "model.w"; {"", "model."} the reverse. */
struct cairn_rename {
    size_t size;
    const char *stored, *known;
    int whole;
};
struct cairn_restore_options {
    size_t size;
    const char *ref;    /* NULL: the version that cairn_open resumed from (of another run: none),
                           else "latest"; a step, a version id, "best" or an alias ("prod") */
    const char *format; /* required tag; a version with another is CAIRN_UNSUPPORTED */
    uint32_t timeout_ms;
    /* The first rule that matches a stored name gives the tensor's name in every call on this
     * handle; without a match the name stays. CAIRN_INVALID: two tensors with one name. */
    const struct cairn_rename *renames;
    size_t rename_count;
    const char *run; /* "project/run": restores a version of another run; NULL: the session's */
    /* 1: only names, types, shapes and sizes (cairn_restore_tensor_at and its kin,
     * cairn/inspect.h, cairn_restore_match). Takes no lease, so the version may be removed
     * meanwhile, also by this session; reads return CAIRN_INVALID. */
    int look;
};
struct cairn_restore_info {
    uint64_t step, attempt, total_bytes;
    uint32_t world_size, shard_count, tensor_count;
    char version[48];
    char format[64];
};
/* Opens one committed version; every read on the handle is of this version alone. ret_info may be
 * NULL; the caller frees *ret with cairn_restore_free. If the uploader is away, the call waits for
 * it until the deadline. CAIRN_NOT_FOUND, CAIRN_NOT_COMMITTED: no such version. CAIRN_CORRUPT: its
 * manifest or layout is damaged. CAIRN_FORBIDDEN: the uploader's token may not read that run.
 * CAIRN_UNSUPPORTED: another run or a look, and the uploader is of an older release. */
enum cairn_code cairn_restore_open(struct cairn_session *session,
                                   const struct cairn_restore_options *options,
                                   struct cairn_restore **ret, struct cairn_restore_info *ret_info,
                                   struct cairn_error *err);
void cairn_restore_free(struct cairn_restore *restore);

/* Labels and meta as saved (cairn_save_begin, cairn_save_set_meta): canonical JSON objects, "{}" if
 * none were given, without later changes. Owned by the restore, valid until it is freed. */
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
/* index counts from 0 in the order of names; CAIRN_NOT_FOUND past the last. Sends no message. */
enum cairn_code cairn_restore_shard_at(struct cairn_restore *restore, uint32_t index,
                                       struct cairn_shard_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_at(struct cairn_restore *restore, uint32_t index,
                                        struct cairn_tensor_info *ret, struct cairn_error *err);
enum cairn_code cairn_restore_tensor_find(struct cairn_restore *restore, const char *name,
                                          struct cairn_tensor_info *ret, struct cairn_error *err);

/* Compares the version's tensor names with those a job wants, without reading a tensor. */
enum cairn_mismatch {
    CAIRN_TENSOR_MISSING = 1, /* wanted, but not in the version */
    CAIRN_TENSOR_SURPLUS = 2  /* in the version, but not wanted */
};
struct cairn_match_options {
    size_t size;
    const char *const *names; /* wanted names; duplicates count once */
    size_t name_count;
    int allow_missing, allow_surplus; /* 1: reported, but no error */
    /* Called during the call for each mismatch: missing tensors in the order of `names`, then
     * surplus ones in the order of their names. May be NULL. */
    void (*report)(void *owner, enum cairn_mismatch what, const char *name);
    void *owner;
};
/* CAIRN_NOT_FOUND: disallowed missing or surplus tensors; the message counts them, names the
 * first. */
enum cairn_code cairn_restore_match(struct cairn_restore *restore,
                                    const struct cairn_match_options *options,
                                    struct cairn_error *err);

/* One read of a call; all run in parallel, and blocks that they share are fetched once. */
struct cairn_read {
    size_t size;
    const char *shard;             /* either a shard, or a range of one ... */
    uint64_t offset, bytes;        /* in the shard; bytes UINT64_MAX = to its end */
    const char *tensor;            /* ... or a tensor by name; aliases are followed */
    uint32_t local_rank_of;        /* LOCAL tensors: the rank that owns it */
    enum cairn_form form;          /* CAIRN_WHOLE, CAIRN_FLAT, CAIRN_BOX */
    const uint64_t *start, *count; /* in elements, as in struct cairn_tensor_piece */
    void *into;                    /* row-major, contiguous; written only during the call */
    uint64_t into_bytes;           /* must equal the bytes of the read */
    enum cairn_memory memory;      /* CAIRN_MEMORY_CUDA: into is CUDA device memory, written */
    void *stream;                  /* after the work queued on this stream of its device */
    /* For tensors: */
    const char *into_dtype;     /* F64, F32, BF16, F16 convert into each other, rounded to nearest,
                                   ties to even (F64 by way of F32; not on a device); NULL: the
                                   stored type */
    const int64_t *into_stride; /* distance in elements between neighbours of the region, per
                                   dimension, 1 value for FLAT; gaps are not written, and into_bytes
                                   counts elements only. NULL: row-major and contiguous */
    int optional;               /* 1: if the version lacks the tensor, into stays unchanged */
    /* Number of FLAT ranges or boxes of the tensor in this read; 0 is 1. start and count hold the
     * regions one after the other, and so does into. Not allowed with into_stride. */
    uint32_t region_count;
};
/* CAIRN_OK: every destination is filled and every block matched its checksum. After any error the
 * destinations are undefined. CAIRN_CORRUPT names the first bad place. CAIRN_NOT_FOUND: no such
 * shard or tensor. CAIRN_RANGE: bytes or elements outside it. CAIRN_UNSUPPORTED: a cut inside a
 * byte of sub-byte elements, types without a conversion, F64 to or from device memory, a conversion
 * with a libcairn_cuda.so built without nvcc, or device memory without its plug-in or runtime.
 * CAIRN_NO_MEMORY: the device has not 64 KiB to spare for a conversion. CAIRN_IO: a device failed;
 * the message has CUDA's name for the error. CAIRN_TOO_LARGE: the reads fall into too many pieces
 * for one call. Reads of one session take turns. */
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
/* All versions of the run, those saved by the newest attempt first. The caller frees *ret_list with
 * cairn_list_free, also if *ret_count is 0. A page that fails is an error of the call, never a
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
