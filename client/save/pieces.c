/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and records a save's pieces, raw shards, files and items, or takes them over from an
 * earlier save; reads no source byte. */

#include <cairn/items.h>
#include <cairn/pieces.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/table/dtype.h"
#include "client/save/arrange.h"
#include "client/save/save.h"
#include "client/save/split.h"
#include "client/save/stager.h"
#include "client/session/memory.h"
#include "client/session/options.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/convert.h"

#define PIECES_MAX (UINT32_C(1) << 21) /* the most rows of a rank table */

/* If the handle is then left unstaged, a later save takes its generation (client/save/begin.c). */
static enum cairn_code refused(struct cairn_save *save, enum cairn_code code,
                               struct cairn_error *err) {
    CAIRN_HOLD(&save->session->lock);
    save->misused = true;
    return cairn_client_save_about(save, code, err);
}

enum cairn_code cairn_client_save_extensible(struct cairn_save *save, bool early_only,
                                             struct cairn_error *err) {
    if (!save->kept) return CAIRN_OK;
    if (!save->kept->copied)
        return cairn_fail(err, CAIRN_INVALID,
                          "its places are given out; what is added comes after the copy");
    if (early_only) return cairn_fail(err, CAIRN_INVALID, "the others are copied already");
    return cairn_client_speaks(save->session, CAIRN_CLIENT_VERSION_OF_MORE,
                               "what is added after the copy", err);
}

/* ---- tensors ---- */

/* Source bytes of the elements that take `bytes` when stored. */
static uint64_t source_bytes(const struct cairn_client_piece *piece, uint64_t bytes) {
    if (piece->source_dtype == piece->dtype) return bytes;
    return bytes / (cairn_dtype_bits(piece->dtype) / 8) *
           (cairn_dtype_bits(piece->source_dtype) / 8);
}

static enum cairn_code read_source_dtype(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, struct cairn_error *err) {
    ret->source_dtype = ret->dtype;
    if (!from->source_dtype) return CAIRN_OK;
    if (!cairn_dtype_parse(cairn_view_of(from->source_dtype), &ret->source_dtype) ||
        !cairn_convertible(ret->source_dtype, ret->dtype))
        return cairn_fail(err, CAIRN_INVALID, "elements of %.32s are not stored as %s",
                          from->source_dtype, from->dtype);
    if (ret->source_dtype == ret->dtype) return CAIRN_OK;
    if (from->fill || from->in_file || from->by_caller)
        return cairn_fail(err, CAIRN_INVALID,
                          "what fill or the caller writes and what a file has is stored as it is");
    if (ret->bytes > UINT64_MAX / 8)
        return cairn_fail(err, CAIRN_TOO_LARGE, "the source is larger than any memory");
    return CAIRN_OK;
}

static enum cairn_code check_source(const struct cairn_tensor_piece *from,
                                    const struct cairn_client_piece *piece,
                                    struct cairn_error *err) {
    int places = (from->source != NULL) + (from->fill != NULL) + (from->in_file != NULL) +
                 (from->by_caller != 0);
    bool sized = !from->in_file && !from->by_caller;
    if (places > 1)
        return cairn_fail(err, CAIRN_INVALID,
                          "one of source, fill, in_file and by_caller gives the bytes");
    uint64_t bytes = source_bytes(piece, piece->bytes);
    if (from->source_bytes != bytes && (sized || from->source_bytes))
        return cairn_fail(err, CAIRN_INVALID,
                          "the source has %" PRIu64 " bytes, the piece has %" PRIu64,
                          from->source_bytes, bytes);
    if (piece->bytes && !places) return cairn_fail(err, CAIRN_INVALID, "there is no source");
    if (from->source_stride && places && !from->source)
        return cairn_fail(err, CAIRN_INVALID, "strides are of a source in memory");
    if (piece->kind == CAIRN_TENSOR_REPLICATED && piece->bytes != piece->tensor_bytes)
        return cairn_fail(err, CAIRN_INVALID,
                          "a replicated tensor is given as a whole; one of which this rank has a "
                          "part is sharded");
    return CAIRN_OK;
}

/* Strides of contiguous memory are dropped. */
static enum cairn_code read_strides(const struct cairn_tensor_piece *from,
                                    struct cairn_client_piece *ret, struct cairn_error *err) {
    struct cairn_strided strided;
    bool flat = from->form == CAIRN_FLAT;
    const uint64_t *count = from->form == CAIRN_WHOLE ? ret->shape : ret->fragment.count;
    unsigned bits = cairn_dtype_bits(ret->source_dtype);
    if (!from->source_stride || !ret->bytes) return CAIRN_OK;
    if (bits % 8 || !cairn_strided_make(bits / 8, flat ? 1 : ret->dimension_count, count,
                                        from->source_stride, &strided))
        return cairn_fail(err, CAIRN_INVALID,
                          "strides need elements of whole bytes, and places that memory can have");
    if (cairn_strided_is_contiguous(&strided)) return CAIRN_OK;
    ret->strided = malloc(sizeof *ret->strided);
    if (!ret->strided) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the strides");
    *ret->strided = strided;
    return CAIRN_OK;
}

static enum cairn_code describe(const struct cairn_tensor_piece *from,
                                struct cairn_client_piece *ret, struct cairn_error *err) {
    uint64_t elements = 0;
    if (from->kind < CAIRN_SHARDED || from->kind > CAIRN_LOCAL)
        return cairn_fail(err, CAIRN_INVALID, "kind %d is none of enum cairn_kind",
                          (int)from->kind);
    ret->kind = (enum cairn_tensor_kind)from->kind;
    CAIRN_TRY(cairn_client_piece_shape(from, ret, &elements, err));
    if (from->kind == CAIRN_ALIAS) {
        if (from->source || from->fill || from->in_file || from->by_caller || from->source_bytes)
            return cairn_fail(err, CAIRN_INVALID, "an alias has no bytes of its own");
        return cairn_client_piece_name(from->alias_of, err);
    }
    if (from->alias_of) return cairn_fail(err, CAIRN_INVALID, "alias_of is for aliases only");
    CAIRN_TRY(cairn_client_piece_form(from, elements, ret, err));
    CAIRN_TRY(read_source_dtype(from, ret, err));
    CAIRN_TRY(check_source(from, ret, err));
    return read_strides(from, ret, err);
}

static enum cairn_code read_memory(struct cairn_session *session,
                                   const struct cairn_tensor_piece *from,
                                   struct cairn_client_piece *ret, struct cairn_error *err) {
    if (from->memory == CAIRN_MEMORY_HOST) return CAIRN_OK;
    if (from->memory != CAIRN_MEMORY_CUDA || (ret->bytes && !from->source))
        return cairn_fail(err, CAIRN_INVALID, "memory %d has no source that is read from it",
                          (int)from->memory);
    ret->on_device = true;
    ret->stream = from->stream;
    CAIRN_TRY(cairn_client_device_need(session, ret->bytes ? from->source : NULL, err));
    if (!ret->bytes || ret->source_dtype == ret->dtype) return CAIRN_OK;
    CAIRN_PROMISE(session->device.handle,
                  return cairn_fail(err, CAIRN_BROKEN, "no device is open"));
    return session->device.plugin->convertible(session->device.handle, from->source,
                                               ret->source_dtype, ret->dtype, err);
}

/* False: no memory; copies made so far belong to the save. */
static bool keep_text(struct cairn_client_texts *texts, const char **text) {
    if (!*text) return true;
    *text = cairn_client_texts_keep(texts, *text);
    return *text != NULL;
}

static bool keep_texts(struct cairn_save *save, struct cairn_client_piece *piece) {
    return keep_text(&save->texts, (const char **)&piece->name) &&
           keep_text(&save->texts, (const char **)&piece->alias_of) &&
           keep_text(&save->texts, (const char **)&piece->in_file);
}

/* The place of the next piece. */
static enum cairn_code make_room(struct cairn_save *save, size_t count,
                                 struct cairn_client_piece **ret, struct cairn_error *err) {
    if (!save->pieces) save->pieces = cairn_client_array_take(count, &save->piece_capacity);
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(save->pieces, save->piece_count, count, save->piece_capacity,
                                   PIECES_MAX, "pieces", err));
    *ret = &save->pieces[save->piece_count];
    return CAIRN_OK;
}

static enum cairn_code append_piece(struct cairn_save *save, const struct cairn_client_piece *piece,
                                    struct cairn_error *err) {
    struct cairn_client_piece *made = NULL;
    CAIRN_TRY(make_room(save, 1, &made, err));
    *made = *piece;
    if (piece->strided) made->strided = malloc(sizeof *made->strided);
    if (!keep_texts(save, made) || (piece->strided && !made->strided)) {
        if (piece->strided) free(made->strided);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece");
    }
    if (piece->strided) *made->strided = *piece->strided;
    made->late = save->kept && save->kept->copied;
    save->piece_count++;
    return CAIRN_OK;
}

/* Appends the piece, or this rank's share of it where a replica group lists it. */
static enum cairn_code add_pieces(struct cairn_save *save, const struct cairn_client_piece *made,
                                  struct cairn_error *err) {
    struct cairn_client_piece parts[CAIRN_PLAN_SPLIT_FRAGMENTS_MAX];
    bool listed = false;
    unsigned count = 0;
    CAIRN_TRY(cairn_client_shares_cut(&save->shares, made, &listed, parts, &count, err));
    if (!listed) return append_piece(save, made, err);
    for (unsigned i = 0; i < count; i++) CAIRN_TRY(append_piece(save, &parts[i], err));
    return CAIRN_OK;
}

/* One region of a described piece; its source begins at byte `from`. Texts are the caller's. */
static enum cairn_code read_region(const struct cairn_save *save,
                                   const struct cairn_tensor_piece *region, uint64_t from,
                                   struct cairn_client_piece *ret, struct cairn_error *err) {
    memset(ret, 0, sizeof *ret);
    ret->name = (char *)(uintptr_t)region->name;
    ret->alias_of = (char *)(uintptr_t)region->alias_of;
    ret->in_file = (char *)(uintptr_t)region->in_file;
    ret->source = region->source;
    ret->by_caller = region->by_caller != 0;
    ret->fill = region->fill;
    ret->fill_owner = region->fill_owner;
    ret->source_from = region->fill ? from : 0;
    ret->file_offset = region->file_offset;
    CAIRN_TRY(describe(region, ret, err));
    return read_memory(save->session, region, ret, err);
}

/* Without splits the piece is read into its place: a model has 100,000 of them. */
static enum cairn_code append_region(struct cairn_save *save,
                                     const struct cairn_tensor_piece *region, uint64_t from,
                                     struct cairn_error *err) {
    struct cairn_client_piece *made = NULL;
    CAIRN_TRY(make_room(save, 1, &made, err));
    enum cairn_code code = read_region(save, region, from, made, err);
    if (!code && !keep_texts(save, made))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece");
    if (code) {
        free(made->strided);
        return code;
    }
    made->late = save->kept && save->kept->copied;
    save->piece_count++;
    return CAIRN_OK;
}

static enum cairn_code add_region(struct cairn_save *save, const struct cairn_tensor_piece *region,
                                  uint64_t from, struct cairn_error *err) {
    struct cairn_client_piece made;
    if (!save->shares.count) return append_region(save, region, from, err);
    enum cairn_code code = read_region(save, region, from, &made, err);
    if (!code) code = add_pieces(save, &made, err);
    free(made.strided);
    return code;
}

static enum cairn_code check_regions(const struct cairn_save *save,
                                     const struct cairn_tensor_piece *piece,
                                     struct cairn_error *err) {
    bool formed = piece->form == CAIRN_FLAT || piece->form == CAIRN_BOX;
    if (!formed || !piece->start || !piece->count || piece->source_stride || piece->source_dtype ||
        (piece->kind != CAIRN_SHARDED && piece->kind != CAIRN_LOCAL))
        return cairn_fail(err, CAIRN_INVALID,
                          "several regions are flat ranges or boxes with start and count, of a "
                          "sharded or local tensor, from contiguous memory of its own type");
    if (cairn_client_shares_list(&save->shares, piece->name))
        return cairn_fail(err, CAIRN_INVALID, "a tensor that a split has listed is one region");
    return CAIRN_OK;
}

/* Adds all regions, which together fill the source; an error keeps none. */
static enum cairn_code add_regions(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                   struct cairn_error *err) {
    uint32_t step = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    uint64_t bytes = 0, source_bytes = piece->source_bytes;
    bool sized = !piece->in_file && !piece->by_caller;
    CAIRN_TRY(check_regions(save, piece, err));
    for (uint32_t i = 0; i < piece->region_count; i++) {
        struct cairn_client_piece read = {0};
        struct cairn_tensor_piece region = *piece;
        uint64_t elements = 0;
        region.start += (size_t)i * step;
        region.count += (size_t)i * step;
        CAIRN_TRY(cairn_client_piece_shape(&region, &read, &elements, err));
        CAIRN_TRY(cairn_client_piece_form(&region, elements, &read, err));
        if (cairn_add_overflows(bytes, read.bytes, &bytes))
            return cairn_fail(err, CAIRN_INVALID, "the regions have too many bytes");
        uint64_t from = bytes - read.bytes;
        if (source_bytes < bytes && (sized || source_bytes)) break;
        region.source_bytes = source_bytes ? read.bytes : 0;
        if (region.source) region.source = (const uint8_t *)region.source + from;
        region.file_offset += region.in_file ? from : 0;
        CAIRN_TRY(add_region(save, &region, from, err));
    }
    if (bytes == source_bytes || (!sized && !source_bytes)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "the source has %" PRIu64 " bytes, the regions have %s%" PRIu64, source_bytes,
                      bytes > source_bytes ? "at least " : "", bytes);
}

static enum cairn_code add_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err) {
    size_t before = save->piece_count;
    CAIRN_TRY(cairn_client_save_extensible(save, piece->by_caller || piece->in_file, err));
    enum cairn_code code =
        piece->region_count <= 1 ? add_region(save, piece, 0, err) : add_regions(save, piece, err);
    for (size_t i = before; i < save->piece_count && !code; i++) {
        struct cairn_client_piece *made = &save->pieces[i];
        made->source_index = save->source_count;
        if (made->source)
            made->source_offset = (uint64_t)((uintptr_t)made->source - (uintptr_t)piece->source);
    }
    if (!code) save->source_count++;
    while (code && save->piece_count > before) free(save->pieces[--save->piece_count].strided);
    return code;
}

/* Reads one element of an array sized by its first: where it stands, or as a copy in `own` if the
 * program was compiled with another struct. */
static enum cairn_code read_one(const struct cairn_tensor_piece *pieces, size_t index,
                                struct cairn_tensor_piece *own,
                                const struct cairn_tensor_piece **ret, struct cairn_error *err) {
    const uint8_t *at = (const uint8_t *)pieces + index * pieces->size;
    if (memcmp(at, &pieces->size, sizeof pieces->size) != 0)
        return cairn_fail(err, CAIRN_INVALID,
                          "piece %zu: its `size` is not that of the first piece", index);
    *ret = pieces->size == sizeof *own ? &pieces[index] : own;
    if (*ret == own) CAIRN_TRY(cairn_client_options(at, own, sizeof *own, "piece", err));
    return cairn_client_piece_name((*ret)->name, err);
}

static enum cairn_code add_all(struct cairn_save *save, const struct cairn_tensor_piece *pieces,
                               size_t count, size_t *ret_bad, struct cairn_error *err) {
    size_t before = save->piece_count, done = 0;
    uint32_t sources_before = save->source_count;
    struct cairn_tensor_piece own;
    const struct cairn_tensor_piece *one = NULL;
    enum cairn_code code = CAIRN_OK;
    if (count && !pieces) return cairn_fail(err, CAIRN_INVALID, "no piece");
    cairn_client_shares_call(&save->shares);
    struct cairn_client_piece *first = NULL;
    if (count > 1) /* in one step, because growing moves the array */
        CAIRN_TRY(make_room(save, count, &first, err));
    for (; done < count; done++) {
        code = read_one(pieces, done, &own, &one, err);
        if (code) break;
        code = add_tensor(save, one, err);
        if (!code) continue;
        code = cairn_within(err, code, "tensor %s", one->name);
        break;
    }
    if (!code) return CAIRN_OK;
    *ret_bad = done;
    while (save->piece_count > before) free(save->pieces[--save->piece_count].strided);
    cairn_client_shares_undo(&save->shares);
    save->source_count = sources_before;
    return refused(save, code, err);
}

enum cairn_code cairn_save_tensor(struct cairn_save *save, const struct cairn_tensor_piece *piece,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    size_t bad = 0;
    if (!piece) return refused(save, cairn_fail(err, CAIRN_INVALID, "no piece"), err);
    return add_all(save, piece, 1, &bad, err);
}

enum cairn_code cairn_save_tensors(struct cairn_save *save, const struct cairn_tensor_piece *pieces,
                                   size_t count, size_t *ret_bad, struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    size_t bad = 0;
    if (count && !pieces) return refused(save, cairn_fail(err, CAIRN_INVALID, "no pieces"), err);
    enum cairn_code code = add_all(save, pieces, count, &bad, err);
    if (!code) return CAIRN_OK;
    if (ret_bad) *ret_bad = bad;
    return cairn_within(err, code, "piece %zu", bad);
}

/* ---- raw shards and files ---- */

static enum cairn_code add_raw(struct cairn_save *save, struct cairn_client_raw raw,
                               struct cairn_error *err) {
    enum cairn_code code = cairn_client_save_extensible(save, raw.file, err);
    if (!code) code = cairn_shard_name_check(cairn_view_of(raw.name), err);
    if (!code) code = cairn_shard_names_add(&save->raw_names, cairn_view_of(raw.name), err);
    if (!code)
        code = CAIRN_ARRAY_ROOM(save->raws, save->raw_count, save->raw_capacity, PIECES_MAX,
                                "raw shards and files", err);
    if (code) {
        code = refused(save, cairn_within(err, code, "shard %s", raw.name), err);
        free(raw.name);
        return code;
    }
    raw.source_index = save->source_count++;
    save->raws[save->raw_count++] = raw;
    return CAIRN_OK;
}

enum cairn_code cairn_save_raw(struct cairn_save *save, const char *name, const void *source,
                               uint64_t bytes, struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!name || (bytes && !source))
        return refused(
            save, cairn_fail(err, CAIRN_INVALID, "a raw shard needs a name and a source"), err);
    char *stored = NULL;
    if (asprintf(&stored, "rank-%05" PRIu32 "/%s", save->session->rank, name) < 0)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    const struct cairn_client_raw raw = {.name = stored, .source = source, .bytes = bytes};
    return add_raw(save, raw, err);
}

static enum cairn_code check_file(int fd, uint64_t bytes, struct cairn_error *err) {
    struct stat found;
    if (fstat(fd, &found) != 0) return cairn_fail_errno(err, "look at descriptor %d", fd);
    int flags = fcntl(fd, F_GETFL);
    if (!S_ISREG(found.st_mode) || flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH))
        return cairn_fail(err, CAIRN_INVALID, "descriptor %d is no regular file open for reading",
                          fd);
    if ((uint64_t)found.st_size != bytes)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "the file has %" PRIu64 " of %" PRIu64 " bytes", (uint64_t)found.st_size,
                          bytes);
    return CAIRN_OK;
}

/* Hands the descriptor over at once and keeps none: the uploader's own outlives ours, and a tree of
 * ten thousand files must not use as many descriptors in the trainer. */
static enum cairn_code send_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                 struct cairn_error *err) {
    struct cairn_session *session = save->session;
    uint64_t deadline_ms = cairn_client_deadline(session, 0);
    uint32_t epoch = 0;
    cairn_lock_take(&session->lock);
    enum cairn_code code = CAIRN_OK;
    if (!save->id) code = cairn_client_reach_next(session, deadline_ms, &epoch, err);
    epoch = session->locked.epoch;
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    if (save->file_epoch && save->file_epoch != epoch)
        return cairn_fail(err, CAIRN_SOURCE_GONE,
                          "the uploader was restarted and lost the files that it had been given");
    if (!save->id) /* begun while the uploader was away, or stopping */
        CAIRN_TRY(cairn_client_save_begin_again(save, epoch, false, deadline_ms, err));
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(file, .save = (uint32_t)save->id, .name = name, .bytes = bytes),
        .fds = &fd, .fd_count = 1, .epoch = epoch, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call(session, &request, NULL, err));
    save->file_epoch = epoch;
    return CAIRN_OK;
}

enum cairn_code cairn_client_save_add_file(struct cairn_save *save, const char *name,
                                           uint64_t bytes, struct cairn_error *err) {
    char *stored = strdup(name);
    if (!stored) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
    const struct cairn_client_raw raw = {.name = stored, .bytes = bytes, .file = true};
    return add_raw(save, raw, err);
}

enum cairn_code cairn_save_file(struct cairn_save *save, const char *name, int fd, uint64_t bytes,
                                struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!name || bytes > (UINT64_C(1) << 62))
        return refused(save, cairn_fail(err, CAIRN_INVALID, "a file shard needs a name and a size"),
                       err);
    enum cairn_code code = check_file(fd, bytes, err);
    if (code) return refused(save, cairn_within(err, code, "shard %s", name), err);
    CAIRN_TRY(cairn_client_save_add_file(save, name, bytes, err));
    code = send_file(save, name, fd, bytes, err);
    if (!code) return CAIRN_OK;
    (void)cairn_within(err, code, "shard %s", name);
    return cairn_client_save_fail(save, code, err);
}

/* ---- items: tensors of type ITEM ---- */

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

/* ---- reuse of known pieces or of an earlier save ---- */

static enum cairn_code check_count(const struct cairn_pieces *known, const void *const *sources,
                                   size_t count, struct cairn_error *err) {
    if (sources ? count == known->source_count : !count) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%zu sources for pieces that were described with %" PRIu32, count,
                      known->source_count);
}

static enum cairn_code set_source(struct cairn_save *save, struct cairn_client_piece *piece,
                                  const void *const *sources, struct cairn_error *err) {
    piece->crc32c = 0;
    piece->written = false;
    if (!sources || !piece->source) return CAIRN_OK;
    const uint8_t *source = sources[piece->source_index];
    if (!source)
        return cairn_fail(err, CAIRN_INVALID, "source %" PRIu32 ", of tensor %s, is NULL",
                          piece->source_index, piece->name);
    piece->source = source + piece->source_offset;
    if (!piece->on_device) return CAIRN_OK;
    return cairn_client_device_need(save->session, piece->source, err);
}

/* For a later cairn_save_again without sources. */
static enum cairn_code keep_sources(struct cairn_save *save, const void *const *sources,
                                    size_t count, struct cairn_error *err) {
    if (!sources) return CAIRN_OK;
    save->sources = malloc((count + 1) * sizeof *save->sources);
    if (!save->sources) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the sources");
    memcpy((void *)(uintptr_t)save->sources, sources, count * sizeof *save->sources);
    return CAIRN_OK;
}

/* For an empty save: takes over the array. */
static enum cairn_code adopt(struct cairn_save *save, struct cairn_pieces *known,
                             const void *const *sources, struct cairn_error *err) {
    struct cairn_client_piece *pieces = cairn_client_known_take(known);
    if (!pieces) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the pieces");
    cairn_client_array_give(save->pieces, save->piece_capacity);
    save->pieces = pieces;
    save->piece_count = save->piece_capacity = known->count;
    save->known = known;
    cairn_client_known_hold(known);
    for (size_t i = 0; i < known->count; i++) {
        pieces[i].source = known->pieces[i].source;
        CAIRN_TRY(set_source(save, &pieces[i], sources, err));
    }
    return CAIRN_OK;
}

static enum cairn_code append_known(struct cairn_save *save, const struct cairn_pieces *known,
                                    const void *const *sources, struct cairn_error *err) {
    for (size_t i = 0; i < known->count; i++) {
        struct cairn_client_piece piece = known->pieces[i];
        CAIRN_TRY(set_source(save, &piece, sources, err));
        piece.source_index += save->source_count;
        CAIRN_TRY(append_piece(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code add_raws(struct cairn_save *save, const struct cairn_pieces *known,
                                const void *const *sources, struct cairn_error *err) {
    for (size_t i = 0; i < known->raw_count; i++) {
        struct cairn_client_raw raw = known->raws[i];
        uint32_t index = save->source_count;
        if (sources) raw.source = sources[raw.source_index];
        if (raw.bytes && !raw.source)
            return cairn_fail(err, CAIRN_INVALID, "shard %s: its source is NULL", raw.name);
        raw.name = strdup(raw.name);
        if (!raw.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a shard name");
        CAIRN_TRY(add_raw(save, raw, err));
        save->raws[save->raw_count - 1].source_index = index + known->raws[i].source_index;
        save->source_count = index;
    }
    return CAIRN_OK;
}

/* Takes the description back; the save's replica groups stay. */
static void drop_adopted(struct cairn_save *save) {
    struct cairn_client_shares shares = save->shares;
    save->shares = (struct cairn_client_shares){0};
    cairn_client_save_drop_pieces(save);
    save->shares = shares;
}

static enum cairn_code use_known(struct cairn_save *save, struct cairn_pieces *known,
                                 const void *const *sources, size_t source_count,
                                 struct cairn_error *err) {
    CAIRN_TRY(check_count(known, sources, source_count, err));
    cairn_client_shares_call(&save->shares);
    enum cairn_code code = cairn_client_shares_join(&save->shares, &known->shares, err);
    if (code) {
        cairn_client_shares_undo(&save->shares);
        return code;
    }
    bool first = !save->piece_count && !save->raw_count && !save->known && !save->kept;
    size_t before = save->piece_count;
    code = first ? adopt(save, known, sources, err) : append_known(save, known, sources, err);
    if (!code) code = add_raws(save, known, sources, err);
    if (!code && first) code = keep_sources(save, sources, source_count, err);
    if (!code) save->source_count += known->source_count;
    if (code && first) drop_adopted(save);
    while (code && !first && save->piece_count > before)
        free(save->pieces[--save->piece_count].strided);
    if (code) cairn_client_shares_undo(&save->shares);
    return code;
}

enum cairn_code cairn_save_pieces(struct cairn_save *save, struct cairn_pieces *known,
                                  const void *const *sources, size_t source_count,
                                  struct cairn_error *err) {
    CAIRN_CLIENT_DESCRIBE_CALL(save, err);
    CAIRN_TRY(cairn_client_save_describable(save, err));
    if (!known) return refused(save, cairn_fail(err, CAIRN_INVALID, "no known pieces"), err);
    enum cairn_code code = cairn_client_save_extensible(save, known->early_only, err);
    if (!code) code = use_known(save, known, sources, source_count, err);
    return code ? refused(save, code, err) : CAIRN_OK;
}

/* ---- making known pieces ---- */

static bool keep_numbers(struct cairn_client_texts *texts, const void **numbers, size_t count) {
    if (!*numbers || !count) return true;
    *numbers = cairn_client_texts_keep_bytes(texts, *numbers, count * sizeof(uint64_t));
    return *numbers != NULL;
}

/* Keeps the caller's description, for restores. */
static bool keep_described(struct cairn_client_texts *texts, struct cairn_tensor_piece *piece) {
    size_t regions = piece->region_count > 1 ? piece->region_count : 1;
    size_t places = (piece->form == CAIRN_FLAT ? 1 : piece->dimension_count) * regions;
    bool formed = piece->form == CAIRN_FLAT || piece->form == CAIRN_BOX;
    if (!formed) piece->start = piece->count = NULL;
    size_t strides = piece->form == CAIRN_FLAT ? 1 : piece->dimension_count;
    return keep_text(texts, &piece->name) && keep_text(texts, &piece->dtype) &&
           keep_text(texts, &piece->source_dtype) &&
           keep_numbers(texts, (const void **)&piece->shape, piece->dimension_count) &&
           keep_numbers(texts, (const void **)&piece->start, places) &&
           keep_numbers(texts, (const void **)&piece->count, places) &&
           keep_numbers(texts, (const void **)&piece->source_stride, strides);
}

static enum cairn_code keep_all(struct cairn_pieces *known, const struct cairn_tensor_piece *pieces,
                                size_t count, struct cairn_error *err) {
    const uint8_t *at = (const uint8_t *)pieces;
    CAIRN_AUTO_HEAP struct cairn_tensor_piece *own = calloc(count + 1, sizeof *own);
    bool whole = own != NULL;
    for (size_t i = 0; i < count && whole; i++, at += pieces->size) {
        CAIRN_TRY(cairn_client_options(at, &own[i], sizeof own[i], "piece", err));
        known->early_only = known->early_only || own[i].by_caller || own[i].in_file;
        whole = keep_described(&known->texts, &own[i]);
    }
    if (whole)
        known->described =
            cairn_client_texts_keep_bytes(&known->texts, own, (count + 1) * sizeof *own);
    if (known->described) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
}

static enum cairn_code make_known(struct cairn_save *of, const struct cairn_tensor_piece *pieces,
                                  size_t count, const struct cairn_pieces_options *options,
                                  size_t *ret_bad, struct cairn_pieces **ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *said = NULL; /* each begin's field `splits` */
    struct cairn_client_arrangement arrangement = {0};
    CAIRN_TRY(cairn_client_shares_open(&of->shares, options->splits, options->split_count, false,
                                       &said, err));
    CAIRN_TRY(add_all(of, pieces, count, ret_bad, err));
    *ret_bad = count;
    /* Lays everything out; the session's next save with these pieces reuses this. */
    CAIRN_TRY(cairn_client_shares_complete(&of->shares, err));
    CAIRN_TRY(cairn_client_arrange(of, of->session->rank, &arrangement, err));
    uint64_t bytes = arrangement.slab_bytes;
    cairn_client_arrangement_keep(of->session, &arrangement);
    struct cairn_pieces *made = cairn_client_known_of(of);
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
    made->bytes = bytes;
    enum cairn_code code = keep_all(made, pieces, count, err);
    if (code)
        cairn_pieces_free(made);
    else
        *ret = made;
    return code;
}

enum cairn_code cairn_pieces_new(struct cairn_session *session,
                                 const struct cairn_tensor_piece *pieces, size_t count,
                                 const struct cairn_pieces_options *options, size_t *ret_bad,
                                 struct cairn_pieces **ret, struct cairn_error *err) {
    struct cairn_pieces_options own;
    size_t bad = 0;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!count || !pieces) return cairn_fail(err, CAIRN_INVALID, "no pieces to describe");
    struct cairn_save *of = calloc(1, sizeof *of); /* a scratch save; never begun */
    if (!of) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for known pieces");
    of->session = session;
    of->generation = of->fd = -1;
    of->number = cairn_client_known_number();
    enum cairn_code code = make_known(of, pieces, count, &own, &bad, ret, err);
    cairn_client_save_drop_pieces(of);
    free(of);
    if (code && ret_bad) *ret_bad = bad;
    return code;
}

enum cairn_code cairn_pieces_bytes(const struct cairn_pieces *known, uint64_t item_bytes,
                                   uint64_t *ret, struct cairn_error *err) {
    CAIRN_CLIENT_RET(ret, err);
    if (!known) return cairn_fail(err, CAIRN_INVALID, "no known pieces");
    if (cairn_add_overflows(known->bytes, item_bytes, ret))
        return cairn_fail(err, CAIRN_TOO_LARGE, "%" PRIu64 " bytes of items", item_bytes);
    return CAIRN_OK;
}

/* ---- cairn_save_again ---- */

/* Holds what `previous` consisted of, once no thread needs it. */
static enum cairn_code take_last(struct cairn_save *previous, uint64_t deadline_ms,
                                 struct cairn_pieces **ret, struct cairn_error *err) {
    struct cairn_session *session = previous->session;
    CAIRN_HOLD(&session->lock);
    while (previous->behind.busy) {
        enum cairn_code code = cairn_client_pause(session, deadline_ms, err);
        if (code == CAIRN_TIMEOUT)
            return cairn_fail(err, code, "step %" PRIu64 " is not sealed yet", previous->step);
        CAIRN_TRY(code);
    }
    if (!previous->last)
        return cairn_fail(err, CAIRN_INVALID,
                          "%s step %" PRIu64 ": what it consisted of is not known: it was not "
                          "staged, or had files, streams, or known pieces and more",
                          session->run, previous->step);
    *ret = previous->last;
    cairn_client_known_hold(*ret);
    return CAIRN_OK;
}

enum cairn_code cairn_save_again(struct cairn_session *session, uint64_t step,
                                 const struct cairn_save_options *options,
                                 struct cairn_save *previous, const void *const *sources,
                                 size_t source_count, struct cairn_save **ret,
                                 struct cairn_error *err) {
    uint64_t started_us = cairn_mono_us();
    struct cairn_pieces *known = NULL;
    struct cairn_save_options own;
    struct cairn_save *save = NULL;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!previous || previous->session != session)
        return cairn_fail(err, CAIRN_INVALID, "no save of this session before it");
    CAIRN_CLIENT_SAVE_CALL(previous, err);
    CAIRN_TRY(take_last(previous, cairn_client_deadline(session, own.timeout_ms), &known, err));
    enum cairn_code code = check_count(known, sources, source_count, err);
    if (!sources && previous->last_sources) {
        sources = previous->last_sources;
        source_count = known->source_count;
    }
    if (!code) code = cairn_save_begin(session, step, options, &save, err);
    if (!code) code = use_known(save, known, sources, source_count, err);
    cairn_pieces_free(known);
    if (code && save) {
        code = cairn_client_save_fail(save, code, err);
        cairn_save_free(save);
    }
    if (code) return code;
    save->stall_us = cairn_mono_us() - started_us;
    *ret = save;
    return CAIRN_OK;
}
