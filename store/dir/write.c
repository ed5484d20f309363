/* SPDX-License-Identifier: Apache-2.0 */
/* Put, and multipart upload into one temporary file beside the final name. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/crc.h"
#include "common/hooks.h"
#include "common/memory.h"
#include "common/text.h"
#include "store/dir/inside.h"

/* A folder may be pruned between making it and making a file in it. */
#define CREATE_TRIES_MAX 16

/* Makes the job's temporary file in the key's folder; replaces one with the same token. */
static enum cairn_code create_temporary(struct cairn_store_dir_worker *worker,
                                        struct cairn_store_dir_job *job,
                                        const struct cairn_store_dir_place *place,
                                        const char *temporary, uint64_t expected_bytes,
                                        struct cairn_error *err) {
    if (cairn_store_dir_is_temporary(place->name))
        return cairn_fail(err, CAIRN_INVALID, "names like this are kept for unfinished objects");
    for (int i = 1;; i++) {
        CAIRN_TRY(cairn_store_dir_folder_make(worker, place->folder, job->together, &job->folder_fd,
                                              err));
        if (job->together && !cairn_store_dir_covers(worker, job->folder_fd)) {
            job->together = false; /* sync file and folders one by one, as for large puts */
            close(job->folder_fd);
            job->folder_fd = -1;
            continue;
        }
        struct cairn_error why = {0};
        unlinkat(job->folder_fd, temporary, 0);
        enum cairn_code code = cairn_file_create(
            job->folder_fd, temporary, job->together ? 0 : expected_bytes, &job->file, &why);
        if (code == CAIRN_OK) {
            /* Before the first byte. A file system without modes keeps its own. */
            (void)!fchmod(job->file.fd, cairn_store_dir_of(worker)->file_mode);
            return code;
        }
        close(job->folder_fd);
        job->folder_fd = -1;
        if (why.os_errno == ENOENT && i < CREATE_TRIES_MAX) continue;
        return cairn_pass(err, code, &why);
    }
}

static enum cairn_code write_step(struct cairn_store_dir_job *job, bool *ret_more,
                                  struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    uint64_t left = request->body.size - job->moved_bytes;
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    const uint8_t *from = size ? (const uint8_t *)request->body.data + job->moved_bytes : NULL;
    uint64_t base = request->op == CAIRN_STORE_UPLOAD_PART ? request->offset : 0;
    CAIRN_TRY(cairn_file_write_sparse_at(&job->file, from, size, base + job->moved_bytes, err));
    if (request->has_crc32c) job->crc32c = cairn_crc32c(job->crc32c, from, size);
    job->moved_bytes += size;
    *ret_more = job->moved_bytes < request->body.size;
    if (*ret_more || !request->has_crc32c || job->crc32c == request->crc32c) return CAIRN_OK;
    return cairn_fail(err, CAIRN_SOURCE_CHANGED, /* inside.h#4 */
                      "the bytes in memory have checksum %08" PRIx32
                      ", they were staged as %08" PRIx32,
                      job->crc32c, request->crc32c);
}

/* Skips attributes that the file system refuses: the profile says so. */
static void set_attributes(int fd, const char *token, bool has_crc32c, uint32_t crc32c) {
    if (token) fsetxattr(fd, CAIRN_STORE_DIR_XATTR_UPLOAD, token, strlen(token), 0);
    if (!has_crc32c) return;
    char text[9];
    snprintf(text, sizeof text, "%08" PRIx32, crc32c);
    fsetxattr(fd, CAIRN_STORE_DIR_XATTR_CRC32C, text, 8, 0);
}

/* fsync, not fdatasync: the attributes must be durable before the name. */
static enum cairn_code sync_file(const struct cairn_file *file, struct cairn_error *err) {
    return fsync(file->fd) == 0 ? CAIRN_OK : cairn_fail_errno(err, "sync");
}

/* The last step: the name exists from here on, and is durable on CAIRN_OK. */
static enum cairn_code publish_name(struct cairn_store_dir_job *job, const char *temporary,
                                    const char *name, struct cairn_error *err) {
    CAIRN_CRASHPOINT("store.dir.synced");
    if (job->request->create)
        CAIRN_TRY(cairn_file_link(job->folder_fd, temporary, name, err));
    else if (renameat(job->folder_fd, temporary, job->folder_fd, name) != 0)
        return cairn_fail_errno(err, "publish %s", name);
    job->named = true;
    CAIRN_TRY(cairn_dir_sync(job->folder_fd, err));
    CAIRN_CRASHPOINT("store.dir.published");
    return CAIRN_OK;
}

static struct cairn_store_dir_published identity_of(const struct stat *st, unsigned roots) {
    return (struct cairn_store_dir_published){
        st->st_dev,         st->st_ino,          (uint64_t)st->st_size,
        st->st_mtim.tv_sec, st->st_mtim.tv_nsec, roots};
}

/* The only part of the store that all its workers change. */
static struct cairn_store_dir *mutable_dir(const struct cairn_store_dir_worker *worker) {
    return (struct cairn_store_dir *)worker->base.store;
}

/* Without memory nothing is recorded, and HEAD syncs the file again. */
void cairn_store_dir_remember(struct cairn_store_dir_worker *worker, const struct stat *st) {
    struct cairn_store_dir *dir = mutable_dir(worker);
    CAIRN_HOLD(&dir->lock);
    if (!dir->locked.published)
        dir->locked.published =
            calloc(CAIRN_STORE_DIR_PUBLISHED_MAX, sizeof *dir->locked.published);
    if (dir->locked.published)
        dir->locked.published[st->st_ino % CAIRN_STORE_DIR_PUBLISHED_MAX] =
            identity_of(st, worker->roots);
}

bool cairn_store_dir_remembers(const struct cairn_store_dir_worker *worker, const struct stat *st) {
    struct cairn_store_dir *dir = mutable_dir(worker);
    const struct cairn_store_dir_published it = identity_of(st, worker->roots);
    CAIRN_HOLD(&dir->lock);
    if (!dir->locked.published) return false;
    const struct cairn_store_dir_published *at =
        &dir->locked.published[st->st_ino % CAIRN_STORE_DIR_PUBLISHED_MAX];
    return at->inode == it.inode && at->device == it.device && at->size_bytes == it.size_bytes &&
           at->modified_s == it.modified_s && at->modified_ns == it.modified_ns &&
           at->roots == it.roots;
}

static void remember_file(struct cairn_store_dir_worker *worker, const struct cairn_file *file) {
    struct stat st;
    if (fstat(file->fd, &st) == 0) cairn_store_dir_remember(worker, &st);
}

static enum cairn_code put_step(struct cairn_store_dir_worker *worker,
                                struct cairn_store_dir_job *job, bool *ret_more,
                                struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
    if (!job->begun) {
        char uuid[CAIRN_UUID_TEXT_BYTES], temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES];
        bool token = request->token && cairn_uuid_text_valid(cairn_view_of(request->token));
        job->together = request->create && !request->makes_room &&
                        request->body.size <= CAIRN_STORE_SMALL_BYTES &&
                        worker->small_puts >= CAIRN_STORE_DIR_TOGETHER_MIN &&
                        cairn_store_dir_can_wait(worker);
        if (!token) cairn_uuid_random(uuid);
        cairn_store_dir_temporary(token ? request->token : uuid, temporary);
        CAIRN_TRY(create_temporary(worker, job, &place, temporary, request->body.size, err));
        memcpy(job->temporary, temporary, sizeof temporary);
        struct stat st;
        if (request->create && fstatat(job->folder_fd, place.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return cairn_fail(err, CAIRN_PRECONDITION, "it is already there");
    }
    CAIRN_TRY(write_step(job, ret_more, err));
    if (*ret_more) return CAIRN_OK;
    set_attributes(job->file.fd, request->token, request->has_crc32c, request->crc32c);
    if (job->together) return CAIRN_OK; /* the common sync does the rest */
    CAIRN_TRY(sync_file(&job->file, err));
    CAIRN_TRY(publish_name(job, job->temporary, place.name, err));
    job->temporary[0] = '\0'; /* renamed: nothing to remove */
    remember_file(worker, &job->file);
    return CAIRN_OK;
}

/* ---- the ballast (inside.h#7) ---- */

#define BALLAST_STEP_BYTES (4 * CAIRN_KIB) /* a piece is shorter by whole steps */
#define BALLAST_ROOM_BYTES                                                                         \
    (4 * CAIRN_STORE_DIR_BALLAST_PIECES * CAIRN_STORE_DIR_BALLAST_PIECE_BYTES)

static const char *piece_name(unsigned number, char ret[32]) {
    snprintf(ret, 32, CAIRN_STORE_DIR_BALLAST_NAME "%u", number);
    return ret;
}

static int ballast_folder(const struct cairn_store_dir *dir) {
    int fd = -1;
    return cairn_store_dir_folder(dir, CAIRN_STORE_DIR_BALLAST_FOLDER, &fd, NULL) ? -1 : fd;
}

/* Removes a piece; false: none is left. */
static bool give_piece(const struct cairn_store_dir *dir) {
    char name[32];
    CAIRN_AUTO_FD fd = ballast_folder(dir);
    if (fd < 0) return false;
    unsigned number = 0;
    while (number < CAIRN_STORE_DIR_BALLAST_PIECES && unlinkat(fd, piece_name(number, name), 0))
        number++;
    if (number == CAIRN_STORE_DIR_BALLAST_PIECES) return false;
    (void)!fsync(fd); /* journals give freed blocks to others after a commit alone */
    return true;
}

/* Writes a piece where fallocate reserves nothing (NFS 3, ZFS). A file system that compresses must
 * not shrink it. */
static bool fill_piece(int fd) {
    uint8_t bytes[4096];
    for (uint64_t at = 0; at < CAIRN_STORE_DIR_BALLAST_PIECE_BYTES; at += sizeof bytes) {
        cairn_random(bytes, sizeof bytes);
        if (pwrite(fd, bytes, sizeof bytes, (off_t)at) != (ssize_t)sizeof bytes) return false;
    }
    return fdatasync(fd) == 0;
}

/* True if the piece has all its bytes. Otherwise it keeps what it got. */
static bool lay_piece(const struct cairn_store_dir *dir, int folder_fd, const char *name) {
    struct stat st;
    CAIRN_AUTO_FD fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    if ((uint64_t)st.st_blocks * 512 >= CAIRN_STORE_DIR_BALLAST_PIECE_BYTES) return true;
    (void)!fchmod(fd, dir->file_mode);
    /* Without a length: whoever copies the store copies nothing. */
    uint64_t bytes = CAIRN_STORE_DIR_BALLAST_PIECE_BYTES;
    while (bytes && fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0) {
        if (errno != ENOSPC && errno != EDQUOT) return fill_piece(fd);
        bytes -= BALLAST_STEP_BYTES;
    }
    if (bytes && (fstat(fd, &st) != 0 || !st.st_blocks)) return fill_piece(fd);
    return bytes == CAIRN_STORE_DIR_BALLAST_PIECE_BYTES;
}

/* used: what the put left of its pieces is taken back before another writer takes it. Otherwise the
 * last room is left to others: the catalog may lie in this file system, too. */
static void lay_ballast(const struct cairn_store_dir *dir, bool used) {
    char name[32];
    struct statvfs room;
    CAIRN_AUTO_FD fd = ballast_folder(dir);
    if (fd < 0) return;
    if (!used && (fstatvfs(fd, &room) != 0 || room.f_bavail < BALLAST_ROOM_BYTES / room.f_frsize))
        return;
    for (unsigned number = 0; number < CAIRN_STORE_DIR_BALLAST_PIECES; number++)
        if (!lay_piece(dir, fd, piece_name(number, name))) break;
}

/* Undoes a put that found no room. */
static void undo_put(struct cairn_store_dir_job *job) {
    cairn_file_release(&job->file);
    if (job->folder_fd >= 0 && job->temporary[0]) unlinkat(job->folder_fd, job->temporary, 0);
    if (job->folder_fd >= 0) close(job->folder_fd);
    job->folder_fd = -1;
    job->temporary[0] = '\0';
    job->moved_bytes = 0;
    job->crc32c = 0;
}

enum cairn_code cairn_store_dir_put(struct cairn_store_dir_worker *worker,
                                    struct cairn_store_dir_job *job, bool *ret_more,
                                    struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    if (!job->request->makes_room) return put_step(worker, job, ret_more, err);
    CAIRN_ASSERT(job->request->body.size <= CAIRN_STORE_SMALL_BYTES); /* one step */
    struct cairn_error why = {0};
    enum cairn_code code = put_step(worker, job, ret_more, &why);
    int given = 0;
    for (; given < CAIRN_STORE_DIR_BALLAST_PIECES && code == CAIRN_NO_SPACE; given++) {
        bool full = why.os_errno == ENOSPC || why.os_errno == EDQUOT;
        if (!full || job->named || !give_piece(dir)) break;
        undo_put(job);
        why = (struct cairn_error){0};
        code = put_step(worker, job, ret_more, &why);
    }
    if (code != CAIRN_OK) return cairn_pass(err, code, &why);
    lay_ballast(dir, given > 0);
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_upload_create(struct cairn_store_dir_worker *worker,
                                              struct cairn_store_dir_job *job, bool *ret_more,
                                              struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    struct cairn_store_dir_place place;
    char uuid[CAIRN_UUID_TEXT_BYTES], temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    *ret_more = false;
    CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
    cairn_uuid_random(uuid);
    if (request->token) {
        if (!cairn_uuid_text_valid(cairn_view_of(request->token)))
            return cairn_fail(err, CAIRN_INVALID, "the upload's token is no UUID");
        memcpy(uuid, request->token, sizeof uuid);
    }
    cairn_store_dir_temporary(uuid, temporary);
    CAIRN_TRY(create_temporary(worker, job, &place, temporary, request->length, err));
    /* Sets the length at once: only one thread at a time can extend a file. */
    if (ftruncate(job->file.fd, (off_t)request->length) != 0)
        return cairn_fail_errno(err, "give the object its length");
    CAIRN_CRASHPOINT("store.dir.created");
    memcpy(request->upload_id, uuid, sizeof uuid);
    return CAIRN_OK;
}

/* Opens the folder and the temporary file of an existing upload. */
static enum cairn_code open_upload(struct cairn_store_dir_worker *worker,
                                   struct cairn_store_dir_job *job,
                                   const struct cairn_store_dir_place *place,
                                   struct cairn_error *err) {
    char temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    const char *id = job->request->upload_id_in;
    if (!id || !cairn_uuid_text_valid(cairn_view_of(id)))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no such upload");
    cairn_store_dir_temporary(id, temporary);
    CAIRN_TRY(
        cairn_store_dir_folder(cairn_store_dir_of(worker), place->folder, &job->folder_fd, err));
    return cairn_store_dir_open_file(job->folder_fd, temporary, true, &job->file, err);
}

enum cairn_code cairn_store_dir_upload_part(struct cairn_store_dir_worker *worker,
                                            struct cairn_store_dir_job *job, bool *ret_more,
                                            struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    if (!job->begun) {
        struct cairn_store_dir_place place;
        CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
        CAIRN_TRY(open_upload(worker, job, &place, err));
    }
    CAIRN_TRY(write_step(job, ret_more, err));
    if (!*ret_more) CAIRN_CRASHPOINT("store.dir.part");
    if (!*ret_more) snprintf(request->etag, sizeof request->etag, "%08" PRIx32, request->crc32c);
    return CAIRN_OK;
}

static enum cairn_code check_parts(const struct cairn_store_dir_job *job, struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    uint64_t sum = 0, size = 0;
    uint32_t crc = 0;
    bool all_summed = request->has_crc32c;
    for (size_t i = 0; i < request->part_count; i++) {
        const struct cairn_store_part *part = &request->parts[i];
        if (part->number != i + 1 || cairn_add_overflows(sum, part->size_bytes, &sum))
            return cairn_fail(err, CAIRN_INVALID, "part %zu of %zu is numbered %" PRIu32, i + 1,
                              request->part_count, part->number);
        crc = cairn_crc32c_combine(crc, part->crc32c, part->size_bytes);
        all_summed &= part->has_crc32c;
    }
    CAIRN_TRY(cairn_file_size(&job->file, &size, err));
    if (sum != request->length || size != request->length)
        return cairn_fail(err, CAIRN_INVALID,
                          "the parts have %" PRIu64 " bytes, the file %" PRIu64
                          ", the object must have %" PRIu64,
                          sum, size, request->length);
    if (all_summed && crc != request->crc32c)
        return cairn_fail(err, CAIRN_INVALID,
                          "the parts make checksum %08" PRIx32 ", the object's is %08" PRIx32, crc,
                          request->crc32c);
    return CAIRN_OK;
}

/* Finds the part with the next hole, if the file system reports holes; false: none. */
static bool find_hole(struct cairn_store_dir_job *job) {
    const struct cairn_store_request *request = job->request;
    off_t hole = lseek(job->file.fd, (off_t)job->moved_bytes, SEEK_HOLE);
    if (hole < 0 || (uint64_t)hole >= request->length) return false;
    uint64_t begin = 0;
    for (job->hole_part = 0; job->hole_part < request->part_count; job->hole_part++) {
        job->hole_end = begin + request->parts[job->hole_part].size_bytes;
        if ((uint64_t)hole < job->hole_end) break;
        begin = job->hole_end;
    }
    job->moved_bytes = begin;
    job->crc32c = 0;
    return job->hole_part < request->part_count;
}

/* Missing parts are holes; so are written zeros on some file systems, so holes are read back. */
static enum cairn_code check_holes(struct cairn_store_dir_job *job, bool *ret_more,
                                   struct cairn_error *err) {
    *ret_more = job->moved_bytes < job->hole_end || find_hole(job);
    if (!*ret_more) return CAIRN_OK;
    if (!job->scratch) job->scratch = cairn_pages_map(CAIRN_STORE_DIR_STEP_BYTES);
    if (!job->scratch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read a part");
    const struct cairn_store_part *part = &job->request->parts[job->hole_part];
    uint64_t left = job->hole_end - job->moved_bytes;
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    CAIRN_TRY(cairn_file_read_at(&job->file, job->scratch, size, job->moved_bytes, err));
    job->crc32c = cairn_crc32c(job->crc32c, job->scratch, size);
    job->moved_bytes += size;
    if (size < left || !part->has_crc32c || job->crc32c == part->crc32c) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "part %" PRIu32 " has not arrived", part->number);
}

enum cairn_code cairn_store_dir_upload_complete(struct cairn_store_dir_worker *worker,
                                                struct cairn_store_dir_job *job, bool *ret_more,
                                                struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    struct cairn_store_dir_place place;
    char temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    *ret_more = false;
    CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
    if (!job->begun) {
        CAIRN_TRY(open_upload(worker, job, &place, err));
        CAIRN_TRY(check_parts(job, err));
    }
    CAIRN_TRY(check_holes(job, ret_more, err));
    if (*ret_more) return CAIRN_OK;
    cairn_store_dir_temporary(request->upload_id_in, temporary);
    set_attributes(job->file.fd, request->token ? request->token : request->upload_id_in,
                   request->has_crc32c, request->crc32c);
    enum cairn_code synced = sync_file(&job->file, err);
    /* After a failed sync its pages count as clean: a later read or sync would succeed. */
    if (synced != CAIRN_OK) unlinkat(job->folder_fd, temporary, 0);
    if (synced != CAIRN_OK && err && cairn_store_is_away(err->os_errno))
        err->code = synced =
            CAIRN_NOT_FOUND; /* inside.h#6: its name may still exist, and is not published */
    CAIRN_TRY(synced);
    CAIRN_TRY(publish_name(job, temporary, place.name, err));
    remember_file(worker, &job->file);
    return CAIRN_OK;
}

static enum cairn_code remove_name(struct cairn_store_dir_worker *worker,
                                   struct cairn_store_dir_job *job,
                                   const struct cairn_store_dir_place *place, const char *name,
                                   struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    enum cairn_code code = cairn_store_dir_folder(dir, place->folder, &job->folder_fd, err);
    if (code == CAIRN_NOT_FOUND) return CAIRN_OK;
    CAIRN_TRY(code);
    bool removed = unlinkat(job->folder_fd, name, 0) == 0;
    if (!removed && errno != ENOENT && errno != EISDIR)
        return cairn_fail_errno(err, "remove %s", name);
    if (removed) CAIRN_TRY(cairn_dir_sync(job->folder_fd, err));
    cairn_store_dir_prune(dir, place->folder);
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_upload_abort(struct cairn_store_dir_worker *worker,
                                             struct cairn_store_dir_job *job, bool *ret_more,
                                             struct cairn_error *err) {
    const char *id = job->request->upload_id_in;
    struct cairn_store_dir_place place;
    char temporary[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    *ret_more = false;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    if (!id || !cairn_uuid_text_valid(cairn_view_of(id))) return CAIRN_OK;
    cairn_store_dir_temporary(id, temporary);
    return remove_name(worker, job, &place, temporary, err);
}

enum cairn_code cairn_store_dir_delete(struct cairn_store_dir_worker *worker,
                                       struct cairn_store_dir_job *job, bool *ret_more,
                                       struct cairn_error *err) {
    struct cairn_store_dir_place place;
    *ret_more = false;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    return remove_name(worker, job, &place, place.name, err);
}

/* One key per step. */
enum cairn_code cairn_store_dir_delete_many(struct cairn_store_dir_worker *worker,
                                            struct cairn_store_dir_job *job, bool *ret_more,
                                            struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    if (job->deletion < request->deletion_count) {
        struct cairn_store_deletion *deletion = &request->deletions[job->deletion++];
        if (!deletion->deleted) {
            struct cairn_store_dir_place place;
            struct cairn_error why = {0};
            enum cairn_code code = cairn_store_dir_place_of(deletion->key, &place, &why);
            if (!code) code = remove_name(worker, job, &place, place.name, &why);
            if (job->folder_fd >= 0) close(job->folder_fd);
            job->folder_fd = -1;
            deletion->deleted = code == CAIRN_OK;
            deletion->refused = code != CAIRN_OK;
            deletion->code = code;
            (void)cairn_text_copy(deletion->reason, sizeof deletion->reason, why.message);
        }
    }
    *ret_more = job->deletion < request->deletion_count;
    for (size_t i = 0; i < request->deletion_count && !*ret_more; i++) {
        const struct cairn_store_deletion *deletion = &request->deletions[i];
        if (!deletion->deleted)
            return cairn_fail(err, deletion->code, "%s: %s", cairn_short(deletion->key).text,
                              deletion->reason);
    }
    return CAIRN_OK;
}
