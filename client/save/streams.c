/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: items that are written piece by piece. A stream keeps its bytes in this process until
 * the copy, or, beyond the session's `bytes`, in a memfd of its own. A closed memfd is sealed and
 * sent to the uploader, which maps it; it stays open here until the save is durable, and goes to
 * each later uploader, too. */
#include <cairn/items.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/documents/manifest.h"
#include "client/save/stager.h"
#include "client/session/process.h"
#include "common/crc.h"
#include "common/text.h"

#define STREAM_BYTES_MIN (64 * CAIRN_KIB)
#define STREAMS_MAX (UINT32_C(1) << 20)
#define BLOCKS_MAX (UINT32_C(1) << 24) /* their checksums fill a frame's blob */

struct cairn_stream {
    struct cairn_save *save;
    char *name; /* owned */
    enum cairn_kind kind;
    uint8_t *data; /* owned; the save's after close; NULL once there is a memfd */
    size_t size, capacity;
    int fd;              /* the memfd; -1: none */
    uint64_t file_bytes; /* written to it */
    uint32_t *blocks;    /* CRC32C of each MiB in it; owned */
    size_t block_count, block_capacity;
    bool closed;
};

enum cairn_code cairn_save_stream(struct cairn_save *save, const char *name, enum cairn_kind kind,
                                  struct cairn_stream **ret, struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!name || !ret || (kind && kind != CAIRN_LOCAL && kind != CAIRN_REPLICATED))
        return cairn_fail(err, CAIRN_INVALID, "a stream needs a name, and is local or replicated");
    struct cairn_stream *stream = calloc(1, sizeof *stream);
    if (stream) stream->name = strdup(name);
    if (!stream || !stream->name) {
        free(stream);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a stream");
    }
    stream->save = save;
    stream->kind = kind;
    stream->fd = -1;
    *ret = stream;
    return CAIRN_OK;
}

/* ---- the memfd ---- */

static void close_memory(int fd) {
    if (fd < 0) return;
    cairn_client_process_unwatch(fd);
    close(fd);
}

/* Checksums the bytes that were just written behind file_bytes. */
static void sum(struct cairn_stream *stream, const uint8_t *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        uint64_t at = stream->file_bytes + done;
        uint64_t room = CAIRN_BLOCK_BYTES - at % CAIRN_BLOCK_BYTES;
        size_t size = (size_t)cairn_min_u64(bytes - done, room);
        uint32_t *block = &stream->blocks[at / CAIRN_BLOCK_BYTES];
        *block = cairn_crc32c(at % CAIRN_BLOCK_BYTES ? *block : 0, data + done, size);
        done += size;
    }
    stream->file_bytes += bytes;
}

static enum cairn_code write_memory(struct cairn_stream *stream, const uint8_t *data, size_t bytes,
                                    struct cairn_error *err) {
    uint64_t end = stream->file_bytes + bytes;
    while (stream->block_count < cairn_block_count(end)) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(stream->blocks, stream->block_count, stream->block_capacity,
                                   BLOCKS_MAX, "MiB of a stream", err));
        stream->block_count++;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t size =
            pwrite(stream->fd, data + done, bytes - done, (off_t)(stream->file_bytes + done));
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0)
            return cairn_fail_errno(err, "memory for stream %s", cairn_short(stream->name).text);
        done += (size_t)size;
    }
    sum(stream, data, bytes);
    return CAIRN_OK;
}

/* Moves what was written so far into a memfd, which holds all that follows. */
static enum cairn_code spill(struct cairn_stream *stream, struct cairn_error *err) {
    stream->fd = memfd_create("cairn-stream", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (stream->fd < 0)
        return cairn_fail_errno(err, "memory for stream %s", cairn_short(stream->name).text);
    cairn_client_process_watch(stream->fd);
    enum cairn_code code = write_memory(stream, stream->data, stream->size, err);
    if (code) {
        close_memory(stream->fd);
        stream->fd = -1;
        stream->file_bytes = 0;
        return code;
    }
    stream->save->stream_bytes -= stream->size;
    free(CAIRN_TAKE(stream->data));
    stream->size = stream->capacity = 0;
    return CAIRN_OK;
}

/* ---- writing ---- */

static bool fits_session(const struct cairn_stream *stream, size_t bytes) {
    uint64_t limit = stream->save->session->bytes, used = stream->save->stream_bytes;
    return used <= limit && bytes <= limit - used;
}

static enum cairn_code make_room(struct cairn_stream *stream, size_t bytes,
                                 struct cairn_error *err) {
    if (bytes <= stream->capacity - stream->size) return CAIRN_OK;
    size_t capacity = (size_t)cairn_max_u64(stream->capacity, STREAM_BYTES_MIN);
    while (capacity < stream->size + bytes) capacity *= 2;
    uint8_t *data = realloc(stream->data, capacity);
    if (!data) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a stream");
    stream->data = data;
    stream->capacity = capacity;
    return CAIRN_OK;
}

static enum cairn_code check_open(const struct cairn_stream *stream, struct cairn_error *err) {
    if (stream->closed)
        return cairn_fail(err, CAIRN_INVALID, "stream %s is closed",
                          cairn_short(stream->name).text);
    return cairn_client_save_describable(stream->save, err);
}

enum cairn_code cairn_stream_write(struct cairn_stream *stream, const void *data, size_t bytes,
                                   struct cairn_error *err) {
    if (!stream || (!data && bytes))
        return cairn_fail(err, CAIRN_INVALID, "no stream, or nothing to write");
    CAIRN_CLIENT_DESCRIBE_CALL(stream->save, err);
    CAIRN_TRY(check_open(stream, err));
    if (stream->fd < 0 && !fits_session(stream, bytes)) CAIRN_TRY(spill(stream, err));
    if (stream->fd >= 0) return write_memory(stream, data, bytes, err);
    CAIRN_TRY(make_room(stream, bytes, err));
    if (bytes) memcpy(stream->data + stream->size, data, bytes);
    stream->size += bytes;
    stream->save->stream_bytes += bytes;
    return CAIRN_OK;
}

/* ---- closing ---- */

/* Each closed stream keeps a descriptor until its save is durable: a quarter of the process's at
 * most, beyond which streams are given to the uploader alone. */
static bool can_keep(struct cairn_session *session) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return true;
    CAIRN_HOLD(&session->lock);
    bool known = session->locked.state != CAIRN_CLIENT_UP ||
                 session->locked.version >= CAIRN_CLIENT_VERSION_OF_STREAMS;
    return known && session->saves->stream_count < limit.rlim_cur / 4;
}

static enum cairn_code add_piece(struct cairn_stream *stream, const char *shard,
                                 struct cairn_error *err) {
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = stream->name,
                                             .dtype = "ITEM",
                                             .dimension_count = 1,
                                             .shape = &stream->file_bytes,
                                             .kind = stream->kind ? stream->kind : CAIRN_LOCAL,
                                             .in_file = shard};
    return cairn_save_tensor(stream->save, &piece, err);
}

/* Moves the memfd into the save; a save that ended meanwhile needs none. */
static enum cairn_code keep(struct cairn_stream *stream, const char *shard,
                            struct cairn_error *err) {
    struct cairn_save *save = stream->save;
    size_t crc_bytes = 4 * (size_t)cairn_block_count(stream->file_bytes);
    struct cairn_client_memory made = {
        .shard = strdup(shard), .bytes = stream->file_bytes, .crcs = malloc(crc_bytes)};
    enum cairn_code code = made.shard && made.crcs
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a stream");
    for (size_t i = 0; !code && i < crc_bytes / 4; i++)
        cairn_store_u32le(made.crcs + 4 * i, stream->blocks[i]);
    cairn_lock_take(&save->session->lock);
    if (!code && !cairn_client_save_over(save))
        code = CAIRN_ARRAY_ROOM(save->streams, save->stream_count, save->stream_capacity,
                                STREAMS_MAX, "streams of a save", err);
    bool kept = !code && !cairn_client_save_over(save);
    if (kept) {
        made.fd = stream->fd;
        stream->fd = -1;
        save->streams[save->stream_count++] = made;
        save->session->saves->stream_count++;
    }
    cairn_lock_give(&save->session->lock);
    if (kept) return CAIRN_OK;
    free(made.shard);
    free(made.crcs);
    return code;
}

/* At once, so that the store has it the sooner; without an uploader with the copy, or the offer. */
static enum cairn_code send_now(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    uint32_t epoch = session->locked.epoch;
    bool there = session->locked.state == CAIRN_CLIENT_UP && save->id;
    cairn_lock_give(&session->lock);
    if (!there) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code =
        cairn_client_streams_send(save, epoch, false, cairn_client_deadline(session, 0), &why);
    if (code == CAIRN_UPLOADER_GONE || (code && why.os_errno)) return CAIRN_OK;
    if (code && err) *err = why;
    return code;
}

/* Seals the memfd: from here on nobody can change it. */
static enum cairn_code close_spilled(struct cairn_stream *stream, struct cairn_error *err) {
    struct cairn_save *save = stream->save;
    char shard[64];
    CAIRN_TRY(cairn_client_save_extensible(save, true, err));
    if (ftruncate(stream->fd, (off_t)stream->file_bytes) || /* drops the rest of a failed write */
        fcntl(stream->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
        return cairn_fail_errno(err, "seal stream %s", cairn_short(stream->name).text);
    snprintf(shard, sizeof shard, "rank-%05" PRIu32 "/stream-%zu", save->session->rank,
             save->raw_count);
    if (!can_keep(save->session)) {
        CAIRN_TRY(cairn_save_file(save, shard, stream->fd, stream->file_bytes, err));
        CAIRN_TRY(add_piece(stream, shard, err));
        stream->closed = true;
        return CAIRN_OK;
    }
    CAIRN_TRY(add_piece(stream, shard, err));
    enum cairn_code code = cairn_client_save_add_file(save, shard, stream->file_bytes, err);
    if (!code) code = keep(stream, shard, err);
    if (!code) code = send_now(save, err);
    if (code) {
        (void)cairn_within(err, code, "stream %s", cairn_short(stream->name).text);
        return cairn_client_save_fail(save, code, err);
    }
    stream->closed = true;
    return CAIRN_OK;
}

enum cairn_code cairn_stream_close(struct cairn_stream *stream, struct cairn_error *err) {
    if (!stream) return cairn_fail(err, CAIRN_INVALID, "no stream");
    struct cairn_save *save = stream->save;
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(check_open(stream, err));
    if (stream->fd >= 0) return close_spilled(stream, err);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(save->owned, save->owned_count, save->owned_capacity, STREAMS_MAX,
                               "streams of a save", err));
    const struct cairn_item item = {.size = sizeof item,
                                    .name = stream->name,
                                    .kind = stream->kind,
                                    .source = stream->data,
                                    .bytes = stream->size};
    CAIRN_TRY(cairn_save_item(save, &item, err));
    save->owned[save->owned_count++] = CAIRN_TAKE(stream->data);
    stream->closed = true;
    return CAIRN_OK;
}

void cairn_stream_free(struct cairn_stream *stream) {
    if (!stream) return;
    if (!stream->closed) stream->save->stream_bytes -= stream->size;
    close_memory(stream->fd);
    free(stream->name);
    free(stream->data);
    free(stream->blocks);
    free(stream);
}
