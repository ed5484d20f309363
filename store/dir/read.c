/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: get, head, and finding the parts that reached an unfinished upload. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/crc.h"
#include "common/memory.h"
#include "common/text.h"
#include "store/dir/inside.h"

/* Opens the object of the request's key for reading, once per job. */
static enum cairn_code open_object(struct cairn_store_dir_worker *worker,
                                   struct cairn_store_dir_job *job, struct cairn_error *err) {
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    if (cairn_store_dir_is_temporary(place.name)) {
        return cairn_fail(err, CAIRN_NOT_FOUND, "nothing is there, only an unfinished object");
    }
    CAIRN_TRY(
        cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, err));
    return cairn_store_dir_open_file(job->folder_fd, place.name, false, &job->file, err);
}

/* Objects are never written in place, so inode, size and time tell two contents of a key apart. */
static void etag_of(const struct stat *st, char *ret_etag, size_t capacity) {
    snprintf(ret_etag, capacity, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 "%09" PRIu64,
             (uint64_t)st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
             (uint64_t)st->st_mtim.tv_nsec);
}

/* ---- get ---- */

static enum cairn_code get_begin(struct cairn_store_dir_worker *worker,
                                 struct cairn_store_dir_job *job, struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    CAIRN_TRY(open_object(worker, job, err));
    struct stat st;
    if (fstat(job->file.fd, &st) != 0) return cairn_fail_errno(err, "stat");
    char etag[sizeof request->etag];
    etag_of(&st, etag, sizeof etag);
    if (request->etag[0] && strcmp(etag, request->etag) != 0) {
        return cairn_fail(err, CAIRN_PRECONDITION, "it is no longer the object that was asked for");
    }
    memcpy(request->etag, etag, sizeof etag);
    request->object_bytes = (uint64_t)st.st_size;
    if (request->up_to && request->offset <= request->object_bytes)
        request->length =
            cairn_min_u64(request->length, request->object_bytes - request->offset);
    uint64_t end;
    if (cairn_add_overflows(request->offset, request->length, &end) ||
        end > request->object_bytes) {
        return cairn_fail(err, CAIRN_RANGE, "%" PRIu64 " bytes at %" PRIu64 " of %" PRIu64,
                          request->length, request->offset, request->object_bytes);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_get(struct cairn_store_dir_worker *worker,
                                    struct cairn_store_dir_job *job, bool *ret_more,
                                    struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    if (!job->begun) CAIRN_TRY(get_begin(worker, job, err));
    uint64_t left = request->length - job->moved_bytes;
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    uint8_t *into = (uint8_t *)request->into + job->moved_bytes;
    CAIRN_TRY(cairn_file_read_at(&job->file, into, size, request->offset + job->moved_bytes, err));
    if (request->wants_crc32c) job->crc32c = cairn_crc32c(job->crc32c, into, size);
    job->moved_bytes += size;
    request->got_crc32c = job->crc32c;
    *ret_more = job->moved_bytes < request->length;
    return CAIRN_OK;
}

/* ---- head ---- */

static void read_attributes(int fd, struct cairn_store_request *request) {
    char value[sizeof request->object_token];
    ssize_t size = fgetxattr(fd, CAIRN_STORE_DIR_XATTR_UPLOAD, value, sizeof value - 1);
    if (size > 0) {
        value[size] = '\0';
        memcpy(request->object_token, value, (size_t)size + 1);
    }
    uint8_t crc[4];
    size = fgetxattr(fd, CAIRN_STORE_DIR_XATTR_CRC32C, value, sizeof value);
    struct cairn_view text = {value, size > 0 ? (size_t)size : 0};
    if (text.size != 8 || cairn_hex_decode(text, crc, sizeof crc, NULL) != CAIRN_OK) return;
    request->object_has_crc32c = true;
    request->object_crc32c =
        (uint32_t)crc[0] << 24 | (uint32_t)crc[1] << 16 | (uint32_t)crc[2] << 8 | crc[3];
}

enum cairn_code cairn_store_dir_head(struct cairn_store_dir_worker *worker,
                                     struct cairn_store_dir_job *job, bool *ret_more,
                                     struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    *ret_more = false;
    CAIRN_TRY(open_object(worker, job, err));
    struct stat st;
    if (fstat(job->file.fd, &st) != 0) return cairn_fail_errno(err, "stat");
    bool durable = cairn_store_dir_remembers(worker, &st);
    if (request->token && !durable && !cairn_store_dir_of(worker)->read_only) { /* inside.h#3 */
        if (fsync(job->file.fd) != 0) return cairn_fail_errno(err, "sync");
        CAIRN_TRY(cairn_dir_sync(job->folder_fd, err));
    }
    request->object_bytes = (uint64_t)st.st_size;
    etag_of(&st, request->etag, sizeof request->etag);
    read_attributes(job->file.fd, request);
    return CAIRN_OK;
}

/* ---- parts of an unfinished upload ---- */

/* A folder keeps no list of parts; the bytes themselves tell, and the caller compares checksums.
 * Bytes that never arrived read as zeros and do not match. */
static enum cairn_code parts_begin(struct cairn_store_dir_worker *worker,
                                   struct cairn_store_dir_job *job, struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(request->key, &place, err));
    if (!request->upload_id_in || !cairn_uuid_text_valid(cairn_view_of(request->upload_id_in))) {
        return cairn_fail(err, CAIRN_NOT_FOUND, "no such upload");
    }
    CAIRN_TRY(
        cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, err));
    char name[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    cairn_store_dir_temporary(request->upload_id_in, name);
    CAIRN_TRY(cairn_store_dir_open_file(job->folder_fd, name, false, &job->file, err));
    CAIRN_TRY(cairn_file_size(&job->file, &request->object_bytes, err));
    job->scratch = cairn_pages_map(CAIRN_STORE_DIR_STEP_BYTES);
    if (!job->scratch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to read parts");
    return CAIRN_OK;
}

/* Reads on within one part; true in *ret_whole when its end was reached. */
static enum cairn_code parts_read(struct cairn_store_dir_job *job, bool *ret_whole,
                                  struct cairn_error *err) {
    const struct cairn_store_request *request = job->request;
    uint64_t in_part = request->length - job->moved_bytes % request->length;
    uint64_t in_file = request->object_bytes - job->moved_bytes;
    uint64_t left = cairn_min_u64(in_part, in_file);
    size_t size = (size_t)cairn_min_u64(left, CAIRN_STORE_DIR_STEP_BYTES);
    CAIRN_TRY(cairn_file_read_at(&job->file, job->scratch, size, job->moved_bytes, err));
    job->crc32c = cairn_crc32c(job->crc32c, job->scratch, size);
    job->moved_bytes += size;
    *ret_whole = size == left;
    return CAIRN_OK;
}

enum cairn_code cairn_store_dir_upload_parts(struct cairn_store_dir_worker *worker,
                                             struct cairn_store_dir_job *job, bool *ret_more,
                                             struct cairn_error *err) {
    struct cairn_store_request *request = job->request;
    if (!job->begun) CAIRN_TRY(parts_begin(worker, job, err));
    if (request->length == 0 || request->object_bytes == 0) request->part_count = 0;
    *ret_more = request->part_count > 0;
    if (!*ret_more) return CAIRN_OK;
    size_t index = (size_t)(job->moved_bytes / request->length);
    bool whole = false;
    CAIRN_TRY(parts_read(job, &whole, err));
    if (!whole) return CAIRN_OK;
    struct cairn_store_part *part = &request->parts[index];
    *part = (struct cairn_store_part){.number = (uint32_t)index + 1,
                                      .size_bytes = job->moved_bytes - index * request->length,
                                      .has_crc32c = true,
                                      .crc32c = job->crc32c};
    snprintf(part->etag, sizeof part->etag, "%08" PRIx32, job->crc32c);
    job->crc32c = 0;
    *ret_more = job->moved_bytes < request->object_bytes && index + 1 < request->part_count;
    if (!*ret_more) request->part_count = index + 1;
    return CAIRN_OK;
}
