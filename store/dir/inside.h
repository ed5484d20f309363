/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: shared by the files of the folder store; other code uses store/store.h.
 *
 * Why:     a folder has no multipart upload, conditional put or metadata; a temporary file, link()
 *          and extended attributes replace them.
 * Promise: 1   no access leaves the root: keys hold no "..", and no symbolic link below the root is
 *              followed (openat2; on older kernels component by component).
 *          2   a name appears only after its bytes are synced, and CAIRN_OK follows the sync of the
 *              folder and of every new parent (R7). A failed sync ends the request for good.
 *          3   a HEAD with a token syncs file and folder before it answers, so that recovery's
 *              proof is durable and not only visible. Files that this process has just published
 *              are not synced again. Small puts submitted together are written, made durable by one
 *              sync of the file system (syncfs), named, and then their folders are synced; all fail
 *              if that sync does. Below the mount point of another file system, which that sync
 *              omits, each is synced by itself.
 *          4   a given checksum is compared while writing; a mismatch is CAIRN_SOURCE_CHANGED.
 *          5   one step moves at most CAIRN_STORE_DIR_STEP_BYTES; requests take turns.
 *          6   a mount that is away (cairn_store_is_away) is CAIRN_UNAVAILABLE. It may lose
 *              unsynced bytes, so an upload whose sync fails that way is gone.
 *          7   a file system without a free block or inode takes the small puts that precede a
 *              deletion (makes_room): for each that finds no room a piece of the ballast is removed
 *              and the put begins anew. Then, and after such a put where there is ample room, the
 *              missing pieces are laid again as far as they fit. No other put uses them, and no
 *              listing shows them.
 * Limits:  a component of a key has at most 255 bytes; names like .<uuid>.tmp are our temporaries
 *          and no keys. A key below another key cannot exist in a folder.
 * Threads: struct cairn_store_dir is immutable after open except for root_fd's folder, which
 *          cairn_store_follow replaces; one thread owns worker and jobs; any may call _wake.
 * Next:    store/README.md; common/file.h.
 */
#pragma once

#include <stdatomic.h>

#include <sys/queue.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/lock.h"
#include "common/trace.h"
#include "store/store.h"

#define CAIRN_STORE_DIR_STEP_BYTES (4 * CAIRN_MIB)
#define CAIRN_STORE_DIR_TEMPORARY_BYTES (CAIRN_UUID_TEXT_BYTES + 5) /* "." uuid ".tmp" NUL */
#define CAIRN_STORE_DIR_SYNCED_MAX 64
#define CAIRN_STORE_DIR_PUBLISHED_MAX 8192
#define CAIRN_STORE_DIR_TOGETHER_MAX 512
#define CAIRN_STORE_DIR_TOGETHER_MIN 8 /* fewer are synced one by one */

/* The ballast: files .cairn/.ballast-N, made by the first put that precedes a deletion, so in no
 * folder that is not known as the store. They have names: an open file without one would be lost at
 * a restart, could not be removed by hand, and keeps its file system from being mounted read-only.
 * Pieces, since what is left of one belongs to whoever writes next; each has an inode, too. */
#define CAIRN_STORE_DIR_BALLAST_FOLDER ".cairn"
#define CAIRN_STORE_DIR_BALLAST_NAME ".ballast-"
#define CAIRN_STORE_DIR_BALLAST_PIECES 8
#define CAIRN_STORE_DIR_BALLAST_PIECE_BYTES (128 * CAIRN_KIB)

struct cairn_store_dir {
    struct cairn_store base;
    const struct cairn_clock *clock;
    int root_fd;
    bool read_only;
    unsigned file_mode, folder_mode; /* of new files and folders, regardless of the umask */
    bool beneath;                    /* openat2 works here */
    bool together;                   /* syncfs makes all durable here and reports errors */
    atomic_uint roots;               /* how often the path was reopened as another folder */
    struct cairn_lock lock;          /* store_dir */
    struct {
        /* Inodes of files that a worker has published durably: HEAD skips their sync. */
        struct cairn_store_dir_published {
            uint64_t device, inode, size_bytes;
            int64_t modified_s, modified_ns;
            unsigned roots; /* value of `roots` at that time */
        } * published;      /* CAIRN_STORE_DIR_PUBLISHED_MAX; NULL: none yet */
        bool failing;       /* the last write of bytes failed */
        uint64_t failing_since_ms, failed_ms;
        char failed[200];
    } locked;
};
struct cairn_store_dir_job {
    TAILQ_ENTRY(cairn_store_dir_job) place;
    struct cairn_store_request *request;
    bool begun;
    bool counted;  /* in small_puts */
    bool together; /* synced together with all of `written` */
    struct cairn_file file;
    int folder_fd;                                   /* the key's folder; -1: not open */
    char temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES]; /* "" or removed with the job */
    bool named;                                      /* PUT: the final name exists */
    uint64_t moved_bytes;
    uint32_t crc32c;  /* of the bytes moved so far */
    void *scratch;    /* one step's bytes, read back */
    size_t hole_part; /* UPLOAD_COMPLETE: the part being read back, up to hole_end */
    uint64_t hole_end;
    size_t deletion; /* DELETE_MANY: the next one */
};
struct cairn_store_dir_worker {
    struct cairn_store_worker base;
    int wake_fd;
    atomic_bool woken;
    /* Submitted, not yet begun: linked by worker_private, so that submit cannot fail. */
    struct cairn_store_request *incoming, *incoming_last;
    TAILQ_HEAD(, cairn_store_dir_job) jobs;    /* taking turns */
    TAILQ_HEAD(, cairn_store_dir_job) written; /* small puts that wait for the common sync */
    size_t small_puts;                         /* not yet ended */
    int sync_fd;       /* for syncfs, which reports errors once per open file; -1: not open */
    dev_t sync_device; /* the file system of sync_fd */
    /* Hashes of folders whose entry this worker has synced; those that the next syncfs covers. */
    uint64_t synced[CAIRN_STORE_DIR_SYNCED_MAX], made[CAIRN_STORE_DIR_SYNCED_MAX];
    unsigned synced_next, made_next;
    unsigned roots; /* value of `roots` for these lists */
};
static inline const struct cairn_store_dir *
cairn_store_dir_of(const struct cairn_store_dir_worker *worker) {
    return (const struct cairn_store_dir *)worker->base.store;
}

/* ---- dir.c ---- */

/* True if a put not yet begun can use the common sync. Opens sync_fd, before the first write. */
bool cairn_store_dir_can_wait(struct cairn_store_dir_worker *worker);
/* True if the common sync covers this folder, which may be on another file system. */
bool cairn_store_dir_covers(const struct cairn_store_dir_worker *worker, int folder_fd);

/* ---- read.c ---- */

struct cairn_store_dir_place {
    char folder[CAIRN_KEY_BYTES_MAX + 1]; /* "" is the root; no slash at the end */
    char name[256];
};
/* Splits a key; refuses an invalid one. */
enum cairn_code cairn_store_dir_place_of(const char *key, struct cairn_store_dir_place *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_store_dir_is_temporary(const char *name);
void cairn_store_dir_temporary(const char *uuid, char ret_name[CAIRN_STORE_DIR_TEMPORARY_BYTES]);
/* Opens the existing folder of a key. */
enum cairn_code cairn_store_dir_folder(const struct cairn_store_dir *dir, const char *folder,
                                       int *ret_fd, struct cairn_error *err) CAIRN_MUST_USE;
/* Opens the folder; makes and syncs it where missing. together: the caller syncs. */
enum cairn_code cairn_store_dir_folder_make(struct cairn_store_dir_worker *worker,
                                            const char *folder, bool together, int *ret_fd,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Call after syncfs: folders made with `together` are durable, unless it failed. */
void cairn_store_dir_folders_synced(struct cairn_store_dir_worker *worker, bool well);
/* Removes the folder and its parents as long as they are empty. */
void cairn_store_dir_prune(const struct cairn_store_dir *dir, const char *folder);
/* Opens a regular file in an open folder. */
enum cairn_code cairn_store_dir_open_file(int folder_fd, const char *name, bool write,
                                          struct cairn_file *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the operations: one step each; *ret_more requests another step ---- */
typedef enum cairn_code cairn_store_dir_step(struct cairn_store_dir_worker *worker,
                                             struct cairn_store_dir_job *job, bool *ret_more,
                                             struct cairn_error *err);
/* write.c */
cairn_store_dir_step cairn_store_dir_put, cairn_store_dir_upload_create,
    cairn_store_dir_upload_part, cairn_store_dir_upload_complete, cairn_store_dir_upload_abort,
    cairn_store_dir_delete, cairn_store_dir_delete_many;
void cairn_store_dir_remember(struct cairn_store_dir_worker *worker, const struct stat *st);
bool cairn_store_dir_remembers(const struct cairn_store_dir_worker *worker, const struct stat *st);

/* read.c */
cairn_store_dir_step cairn_store_dir_get, cairn_store_dir_head, cairn_store_dir_upload_parts;
cairn_store_dir_step cairn_store_dir_list, cairn_store_dir_uploads;

#define CAIRN_STORE_DIR_XATTR_UPLOAD "user.cairn.upload"
#define CAIRN_STORE_DIR_XATTR_CRC32C "user.cairn.crc32c"
