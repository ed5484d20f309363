/* SPDX-License-Identifier: Apache-2.0 */
/* frame: a read never goes beyond the current frame, so descriptors that arrive with it can only
 * belong to that frame. */
#include "api/wire/frame.h"

#include <unistd.h>

#define FRAME_HEADER_BYTES 8
#define FRAME_READ_BYTES (64 * CAIRN_KIB)
#define FRAME_BYTES_MAX                                                                            \
    (FRAME_HEADER_BYTES + CAIRN_FRAME_JSON_BYTES_MAX + CAIRN_FRAME_BLOB_BYTES_MAX)
#define FRAME_NODES_MAX 100000
#define FRAME_REST_BYTES 4096 /* JSON besides the large member of a message */
#define FRAME_REST_NODES 64

static void fds_close(int *fds, size_t *count) {
    for (size_t i = 0; i < *count; i++) {
        if (fds[i] >= 0) close(fds[i]);
        fds[i] = -1;
    }
    *count = 0;
}

void cairn_frame_release(struct cairn_frame *frame) {
    json_decref(frame->message);
    cairn_buf_release(&frame->blob);
    fds_close(frame->fds, &frame->fd_count);
    *frame = (struct cairn_frame){0};
}

void cairn_frame_reader_release(struct cairn_frame_reader *reader) {
    cairn_buf_release(&reader->bytes);
    fds_close(reader->fds, &reader->fd_count);
    *reader = (struct cairn_frame_reader){0};
}

/* Refuses a complete header that announces too much. */
static enum cairn_code check_header(const struct cairn_frame_reader *reader,
                                    struct cairn_error *err) {
    if (reader->bytes.size < FRAME_HEADER_BYTES) return CAIRN_OK;
    uint32_t json = cairn_load_u32le(reader->bytes.data);
    uint32_t blob = cairn_load_u32le(reader->bytes.data + 4);
    if (json == 0 || json > CAIRN_FRAME_JSON_BYTES_MAX)
        return cairn_fail(err, CAIRN_PROTOCOL, "frame with %u bytes of JSON", json);
    if (blob > CAIRN_FRAME_BLOB_BYTES_MAX)
        return cairn_fail(err, CAIRN_PROTOCOL, "frame with a blob of %u bytes", blob);
    return CAIRN_OK;
}

/* Size of the current frame, whose header was checked, or of its header until that is complete. */
static size_t frame_size(const struct cairn_frame_reader *reader) {
    if (reader->bytes.size < FRAME_HEADER_BYTES) return FRAME_HEADER_BYTES;
    return FRAME_HEADER_BYTES + (size_t)cairn_load_u32le(reader->bytes.data) +
           cairn_load_u32le(reader->bytes.data + 4);
}

/* One read of at most `want` bytes. CAIRN_BUSY with *ret_size 0: no bytes now. */
static enum cairn_code read_some(struct cairn_frame_reader *reader, int fd, size_t want,
                                 size_t *ret_size, struct cairn_error *err) {
    int fds[CAIRN_NET_FDS_MAX];
    size_t fd_count = 0;
    bool first = reader->bytes.size == 0;
    *ret_size = 0;
    /* Allocates as bytes arrive: a peer that only announces 64 MiB gets none of it. */
    want = (size_t)cairn_min_u64(want, cairn_max_u64(FRAME_READ_BYTES, reader->bytes.size));
    CAIRN_TRY(cairn_buf_reserve(&reader->bytes, want, err));
    CAIRN_TRY(cairn_net_receive(fd, reader->bytes.data + reader->bytes.size, want, ret_size, fds,
                                &fd_count, err));
    reader->bytes.size += *ret_size;
    reader->bytes.data[reader->bytes.size] = '\0';
    if (fd_count == 0) return CAIRN_OK;
    if (!first || reader->fd_count || *ret_size == 0) {
        fds_close(fds, &fd_count);
        return cairn_fail(err, CAIRN_PROTOCOL, "descriptors in the middle of a frame");
    }
    memcpy(reader->fds, fds, fd_count * sizeof *fds);
    reader->fd_count = fd_count;
    return CAIRN_OK;
}

enum cairn_code cairn_frame_fill(struct cairn_frame_reader *reader, int fd, bool *ret_closed,
                                 struct cairn_error *err) {
    struct cairn_error problem = {0}; /* CAIRN_BUSY must leave *err alone */
    reader->bytes.limit = FRAME_BYTES_MAX;
    for (;;) {
        CAIRN_TRY(check_header(reader, err));
        size_t size = frame_size(reader), got = 0;
        if (reader->bytes.size == size && size > FRAME_HEADER_BYTES) break; /* a whole frame */
        if (reader->bytes_max && reader->bytes.size >= reader->bytes_max) break;
        if (reader->bytes_max) size = (size_t)cairn_min_u64(size, reader->bytes_max);
        enum cairn_code code = read_some(reader, fd, size - reader->bytes.size, &got, &problem);
        if (code == CAIRN_BUSY) break;
        if (code != CAIRN_OK) {
            if (err) *err = problem;
            return code;
        }
        if (got == 0) {
            if (reader->bytes.size)
                return cairn_fail(err, CAIRN_PROTOCOL, "the peer closed in the middle of a frame");
            *ret_closed = true;
            return CAIRN_OK;
        }
    }
    *ret_closed = false;
    return CAIRN_OK;
}

size_t cairn_frame_under_way(const struct cairn_frame_reader *reader) {
    bool known = reader->bytes.size >= FRAME_HEADER_BYTES && !check_header(reader, NULL);
    return known ? frame_size(reader) : 0;
}

static enum cairn_code bad_message(enum cairn_code code, struct cairn_error *err) {
    if (code != CAIRN_NO_MEMORY) code = CAIRN_PROTOCOL; /* no fault of the peer */
    return cairn_within(err, code, "frame");
}

static enum cairn_code message_parse(struct cairn_view text, struct cairn_frame *frame,
                                     struct cairn_error *err) {
    struct cairn_json_limits limits = {CAIRN_FRAME_JSON_BYTES_MAX, FRAME_NODES_MAX};
    enum cairn_code code = cairn_json_parse(text, limits, &frame->message, err);
    if (code) return bad_message(code, err);
    const struct cairn_json_field fields[] = {
        {.name = "t", .kind = CAIRN_JSON_TEXT, .required = true, .ret = &frame->name, .max = 64},
    };
    code = cairn_json_read(frame->message, "", fields, CAIRN_COUNT(fields), true, err);
    return code ? bad_message(code, err) : CAIRN_OK;
}

enum cairn_code cairn_frame_next(struct cairn_frame_reader *reader, struct cairn_frame *ret,
                                 bool *ret_ready, struct cairn_error *err) {
    CAIRN_TRY(check_header(reader, err));
    size_t size = frame_size(reader);
    if (reader->bytes.size < size || size == FRAME_HEADER_BYTES) {
        *ret_ready = false;
        return CAIRN_OK;
    }
    CAIRN_AUTO(frame) frame = {0};
    size_t json = cairn_load_u32le(reader->bytes.data);
    struct cairn_view text = {reader->bytes.data + FRAME_HEADER_BYTES, json};
    CAIRN_TRY(message_parse(text, &frame, err));
    size_t blob_at = FRAME_HEADER_BYTES + json;
    if (size > blob_at) {
        frame.blob.limit = CAIRN_FRAME_BLOB_BYTES_MAX;
        CAIRN_TRY(cairn_buf_append(&frame.blob, reader->bytes.data + blob_at, size - blob_at, err));
    }
    memcpy(frame.fds, reader->fds, reader->fd_count * sizeof *frame.fds);
    frame.fd_count = reader->fd_count;
    reader->fd_count = 0;
    if (size > FRAME_READ_BYTES)
        cairn_buf_release(&reader->bytes); /* rarely this large: do not keep it */
    else
        cairn_buf_clear(&reader->bytes);
    *ret = frame;
    frame = (struct cairn_frame){0};
    *ret_ready = true;
    return CAIRN_OK;
}

enum cairn_code cairn_frame_encode(const json_t *message, struct cairn_view blob,
                                   struct cairn_buf *ret, struct cairn_error *err) {
    if (blob.size > CAIRN_FRAME_BLOB_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "blob of %zu bytes in a frame", blob.size);
    CAIRN_PROMISE(json_is_string(json_object_get(message, "t")),
                  return cairn_fail(err, CAIRN_INTERNAL, "a message without a name"));
    if (ret->limit == 0) ret->limit = FRAME_BYTES_MAX;
    size_t start = ret->size;
    CAIRN_TRY(cairn_buf_append(ret, "\0\0\0\0\0\0\0", FRAME_HEADER_BYTES, err));
    enum cairn_code code = cairn_json_dump(message, ret, err);
    size_t json = ret->size - start - FRAME_HEADER_BYTES;
    if (code == CAIRN_OK && json > CAIRN_FRAME_JSON_BYTES_MAX)
        code = cairn_fail(err, CAIRN_TOO_LARGE, "frame with %zu bytes of JSON", json);
    if (code == CAIRN_OK) code = cairn_buf_append(ret, blob.data, blob.size, err);
    if (code != CAIRN_OK) {
        ret->size = start;
        return code;
    }
    cairn_store_u32le(ret->data + start, (uint32_t)json);
    cairn_store_u32le(ret->data + start + 4, (uint32_t)blob.size);
    return CAIRN_OK;
}

enum cairn_code cairn_frame_holds(const json_t *member, struct cairn_error *err) {
    const struct cairn_json_limits limits = {CAIRN_FRAME_JSON_BYTES_MAX - FRAME_REST_BYTES,
                                             FRAME_NODES_MAX - FRAME_REST_NODES};
    CAIRN_AUTO(buf) text = {.limit = limits.bytes};
    json_t *parsed = NULL;
    enum cairn_code code = cairn_json_dump(member, &text, err);
    if (code == CAIRN_OK)
        code = cairn_json_parse((struct cairn_view){text.data, text.size}, limits, &parsed, err);
    json_decref(parsed);
    return code ? cairn_within(err, code, "an answer of more than one frame") : CAIRN_OK;
}
