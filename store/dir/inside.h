/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: what the files of the folder store share. Others use store/store.h.
 *
 * Why:     a folder has no multipart upload, no conditional put and no metadata of its own; here
 *          they are made of a temporary file, link() and extended attributes.
 * Promise: 1   no access leaves the root: keys hold no "..", and no symbolic link below the root
 *              is followed (openat2; where the kernel has none, component by component).
 *          2   a name appears only after its bytes were synced, and CAIRN_OK comes after the folder
 *              and every new parent folder were (R7). A failed sync ends the request for good.
 *          3   a HEAD that carries a token syncs file and folder before it answers, so that what
 *              recovery takes for proof is durable and not only visible. What the same worker has
 *              just published is, and is not synced again.
 *              Small puts that are submitted together are written first, then made durable by one
 *              sync of the file system (syncfs), then named, then their folders are synced; all
 *              of them fail where that sync does. Below the mount point of another file system,
 *              which that sync leaves out, each is synced by itself.
 *          4   with a checksum given, the bytes in memory are summed as they are written;
 *              differing ones are CAIRN_SOURCE_CHANGED.
 *          5   one step moves at most CAIRN_STORE_DIR_STEP_BYTES; requests take turns.
 *          6   a mount that is away (cairn_store_is_away) is CAIRN_UNAVAILABLE. Bytes that were not
 *              synced may be lost with it, so an upload whose sync found it away is gone.
 * Limits:  a component of a key has at most 255 bytes; names like .<uuid>.tmp are our temporaries
 *          and no keys. A key below another key cannot exist in a folder.
 * Threads: struct cairn_store_dir is immutable after open but for what root_fd refers to, which
 *          cairn_store_follow replaces whole; worker and jobs have one owner thread, only _wake may
 *          come from another.
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

struct cairn_store_dir {
    struct cairn_store base; /* first */
    const struct cairn_clock *clock;
    int root_fd;
    bool read_only;
    unsigned file_mode, folder_mode; /* of what is made, whatever the umask is */
    bool beneath;                    /* openat2 works here */
    bool together;                   /* syncfs makes all durable here, and says what it could not */
    atomic_uint roots;               /* how often the path was followed to another folder */
    struct cairn_lock lock;          /* store_dir */
    struct {
        /* Files that a worker made durable under their names, by inode: HEAD syncs them no more,
         * whichever worker is asked. */
        struct cairn_store_dir_published {
            uint64_t device, inode, size_bytes;
            int64_t modified_s, modified_ns;
            unsigned roots; /* of which root; see above */
        } * published;      /* CAIRN_STORE_DIR_PUBLISHED_MAX; NULL: none were yet */
        bool failing;       /* the last write of bytes failed */
        uint64_t failing_since_ms, failed_ms;
        char failed[200];
    } locked;
};
struct cairn_store_dir_job {
    TAILQ_ENTRY(cairn_store_dir_job) place;
    struct cairn_store_request *request;
    bool begun;
    bool counted;  /* among small_puts */
    bool together; /* its sync is that of all that are in `written` */
    struct cairn_file file;
    int folder_fd;                                   /* of the key; -1: not open */
    char temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES]; /* removed with the job unless "" */
    uint64_t moved_bytes;
    uint32_t crc32c;  /* of what was moved */
    void *scratch;    /* what is read back: one step's bytes */
    size_t hole_part; /* UPLOAD_COMPLETE: the part that is read back, up to hole_end */
    uint64_t hole_end;
    size_t deletion; /* DELETE_MANY: the one that is next */
};
struct cairn_store_dir_worker {
    struct cairn_store_worker base; /* first */
    int wake_fd;
    atomic_bool woken;
    /* Submitted, not yet begun: linked by worker_private, so that submit cannot fail. */
    struct cairn_store_request *incoming, *incoming_last;
    TAILQ_HEAD(, cairn_store_dir_job) jobs;    /* taking turns */
    TAILQ_HEAD(, cairn_store_dir_job) written; /* small puts that wait for the sync of them all */
    size_t small_puts;                         /* that have not ended */
    int sync_fd;       /* for syncfs, which tells each open file of errors once; -1: not open */
    dev_t sync_device; /* the file system that it syncs */
    /* Hashes of folders whose entry in their parent this worker has synced, and of those that the
     * next syncfs makes durable. */
    uint64_t synced[CAIRN_STORE_DIR_SYNCED_MAX], made[CAIRN_STORE_DIR_SYNCED_MAX];
    unsigned synced_next, made_next;
    unsigned roots; /* the one that these lists are of */
};
static inline const struct cairn_store_dir *
cairn_store_dir_of(const struct cairn_store_dir_worker *worker) {
    return (const struct cairn_store_dir *)worker->base.store;
}

/* ---- dir.c ---- */

/* Can the sync of a put that is not begun yet be that of all? Opens what is told of each write from
 * now on that fails. */
bool cairn_store_dir_can_wait(struct cairn_store_dir_worker *worker);
/* Does that sync cover this folder? One below the root may be the mount point of another file
 * system. */
bool cairn_store_dir_covers(const struct cairn_store_dir_worker *worker, int folder_fd);

/* ---- read.c ---- */

struct cairn_store_dir_place {
    char folder[CAIRN_KEY_BYTES_MAX + 1]; /* "" is the root; no slash at the end */
    char name[256];
};
/* Takes a key apart; refuses what is no key. */
enum cairn_code cairn_store_dir_place_of(const char *key, struct cairn_store_dir_place *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_store_dir_is_temporary(const char *name);
void cairn_store_dir_temporary(const char *uuid, char ret_name[CAIRN_STORE_DIR_TEMPORARY_BYTES]);
/* The existing folder of a key. */
enum cairn_code cairn_store_dir_folder(const struct cairn_store_dir *dir, const char *folder,
                                       int *ret_fd, struct cairn_error *err) CAIRN_MUST_USE;
/* The same, made and synced where it is missing; together: the sync is the caller's. */
enum cairn_code cairn_store_dir_folder_make(struct cairn_store_dir_worker *worker,
                                            const char *folder, bool together, int *ret_fd,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* A syncfs has made durable what was made with `together`; or has failed, and nothing is known. */
void cairn_store_dir_folders_synced(struct cairn_store_dir_worker *worker, bool well);
/* Removes the folder and its parents as long as they are empty. */
void cairn_store_dir_prune(const struct cairn_store_dir *dir, const char *folder);
/* A regular file in an open folder. */
enum cairn_code cairn_store_dir_open_file(int folder_fd, const char *name, bool write,
                                          struct cairn_file *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the operations: one step each; *ret_more asks for another turn ---- */
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
