/* SPDX-License-Identifier: Apache-2.0 */
/* An item is a tensor of bytes of a type of its own; a stream has its bytes in memory of its own
 * until they are copied. */
#include <cairn/items.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/save/save.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"

#define STREAM_BYTES_MIN (64 * CAIRN_KIB)
#define STREAMS_MAX (UINT32_C(1) << 20)

struct cairn_stream {
    struct cairn_save *save;
    char *name; /* owned */
    enum cairn_kind kind;
    uint8_t *data; /* owned; the save's once it is closed */
    size_t size, capacity;
    bool closed;
};

/* ---- items ---- */

enum cairn_code cairn_save_item(struct cairn_save *save, const struct cairn_item *item,
                                struct cairn_error *err) {
    struct cairn_item own;
    if (!item) return cairn_fail(err, CAIRN_INVALID, "no item");
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(item, &own, err));
    if (own.kind && own.kind != CAIRN_LOCAL && own.kind != CAIRN_REPLICATED)
        return cairn_fail(err, CAIRN_INVALID, "an item is local or replicated");
    const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                             .name = own.name,
                                             .dtype = "ITEM",
                                             .dimension_count = 1,
                                             .shape = &own.bytes,
                                             .kind = own.kind ? own.kind : CAIRN_LOCAL,
                                             .source = own.bytes ? own.source : NULL,
                                             .source_bytes = own.bytes};
    return cairn_save_tensor(save, &piece, err);
}

/* ---- streams ---- */

enum cairn_code cairn_save_stream(struct cairn_save *save, const char *name, enum cairn_kind kind,
                                  struct cairn_stream **ret, struct cairn_error *err) {
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
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
    *ret = stream;
    return CAIRN_OK;
}

static enum cairn_code make_room(struct cairn_stream *stream, size_t bytes,
                                 struct cairn_error *err) {
    uint64_t limit = stream->save->session->bytes, used = stream->save->stream_bytes;
    if (used > limit || bytes > limit - used)
        return cairn_fail(err, CAIRN_TOO_LARGE,
                          "stream %s: %" PRIu64 " bytes are in the save's streams and %zu come, "
                          "the session was opened for %" PRIu64,
                          cairn_short(stream->name).text, used, bytes, limit);
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
    CAIRN_CLIENT_SAVE_OWN_CALL(stream->save, err);
    CAIRN_TRY(check_open(stream, err));
    CAIRN_TRY(make_room(stream, bytes, err));
    if (bytes) memcpy(stream->data + stream->size, data, bytes);
    stream->size += bytes;
    stream->save->stream_bytes += bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_stream_close(struct cairn_stream *stream, struct cairn_error *err) {
    if (!stream) return cairn_fail(err, CAIRN_INVALID, "no stream");
    struct cairn_save *save = stream->save;
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(check_open(stream, err));
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
    free(stream->name);
    free(stream->data);
    free(stream);
}
