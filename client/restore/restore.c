/* SPDX-License-Identifier: Apache-2.0 */
/* Open a version and answer what it holds. The manifest decides; the uploader's own words about
 * the version are only compared with it. */
#include "client/restore/restore.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/table/dtype.h"
#include "api/table/layout.h"
#include "client/session/options.h"
#include "common/text.h"

static void restore_release(struct cairn_restore *restore) {
    cairn_client_names_release(&restore->names);
    cairn_layout_release(&restore->layout);
    cairn_manifest_release(&restore->manifest);
    if (restore->memory) munmap(restore->memory, restore->memory_bytes);
    free(restore);
}
static void restore_release_at(struct cairn_restore **restore) {
    if (*restore) restore_release(*restore);
}

/* Sealed against shrinking, or a later truncation would end the trainer with SIGBUS. */
static enum cairn_code map_documents(struct cairn_restore *restore, int fd, uint64_t bytes,
                                     struct cairn_error *err) {
    struct stat found;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &found) != 0 || seals < 0 || !(seals & F_SEAL_SHRINK) || !bytes ||
        bytes > CAIRN_MANIFEST_BYTES_MAX + CAIRN_LAYOUT_BYTES_MAX ||
        (uint64_t)found.st_size < bytes)
        return cairn_fail(err, CAIRN_PROTOCOL, "restored with memory that cannot be trusted");
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return cairn_fail_errno(err, "map the manifest");
    restore->memory = memory;
    restore->memory_bytes = (size_t)bytes;
    return CAIRN_OK;
}

static enum cairn_code open_documents(struct cairn_restore *restore, struct cairn_frame *answer,
                                      struct cairn_error *err) {
    struct cairn_msg_restored told = {0};
    uint64_t bytes = 0;
    if (cairn_msg_restored_read(answer->message, "", &told, err) != CAIRN_OK ||
        answer->fd_count != 1 ||
        cairn_add_overflows(told.manifest_bytes, told.layout_bytes, &bytes))
        return cairn_fail(err, CAIRN_PROTOCOL, "restored without its documents");
    CAIRN_TRY(map_documents(restore, answer->fds[0], bytes, err));
    struct cairn_view text = {restore->memory, (size_t)told.manifest_bytes};
    struct cairn_view layout = {(uint8_t *)restore->memory + told.manifest_bytes,
                                (size_t)told.layout_bytes};
    CAIRN_TRY(cairn_manifest_decode(text, &restore->manifest, err));
    restore->has_layout = told.layout_bytes > 0;
    return restore->has_layout ? cairn_layout_open(layout, &restore->layout, err) : CAIRN_OK;
}

static enum cairn_code ask_restore(struct cairn_restore *restore, const char *ref,
                                   const char *format, uint64_t deadline_ms,
                                   struct cairn_frame *ret, struct cairn_error *err) {
    struct cairn_session *session = restore->session;
    cairn_lock_take(&session->lock);
    uint32_t epoch = 0;
    enum cairn_code code = cairn_client_reach(session, true, deadline_ms, &epoch, err);
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(restore, .ref = ref, .format = format,
                             .timeout_ms = cairn_client_left_ms(deadline_ms)),
        .epoch = epoch, .deadline_ms = deadline_ms};
    CAIRN_TRY(cairn_client_call(session, &request, ret, err));
    struct cairn_msg_restored told = {0};
    if (cairn_msg_restored_read(ret->message, "", &told, err) != CAIRN_OK)
        return cairn_fail(err, CAIRN_PROTOCOL, "restored without its number");
    restore->id = told.restore;
    restore->epoch = epoch;
    return CAIRN_OK;
}

enum cairn_code cairn_client_restore_known(struct cairn_restore *restore, uint64_t deadline_ms,
                                           uint32_t *ret_epoch, struct cairn_error *err) {
    struct cairn_session *session = restore->session;
    CAIRN_AUTO(frame) answer = {0};
    uint32_t epoch = 0;
    cairn_lock_take(&session->lock);
    enum cairn_code code = cairn_client_reach(session, true, deadline_ms, &epoch, err);
    cairn_lock_give(&session->lock);
    CAIRN_TRY(code);
    if (restore->epoch != epoch)
        CAIRN_TRY(ask_restore(restore, restore->manifest.id.text, NULL, deadline_ms, &answer, err));
    *ret_epoch = restore->epoch;
    return CAIRN_OK;
}

static void fill_info(const struct cairn_restore *restore, struct cairn_restore_info *ret) {
    const struct cairn_manifest *manifest = &restore->manifest;
    *ret = (struct cairn_restore_info){.step = manifest->origin.step,
                                       .attempt = manifest->origin.attempt,
                                       .total_bytes = manifest->total_bytes,
                                       .world_size = manifest->world_size,
                                       .shard_count = (uint32_t)manifest->shard_count,
                                       .tensor_count =
                                           restore->has_layout ? restore->layout.name_count : 0};
    (void)cairn_text_copy(ret->version, sizeof ret->version, manifest->id.text);
    (void)cairn_text_copy(ret->format, sizeof ret->format,
                          manifest->format_tag ? manifest->format_tag : "");
}

static enum cairn_code check_format(const struct cairn_restore *restore, const char *wanted,
                                    struct cairn_error *err) {
    const char *tag = restore->manifest.format_tag ? restore->manifest.format_tag : "";
    if (!wanted || strcmp(wanted, tag) == 0) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "step %" PRIu64 " has the format tag \"%s\", wanted is \"%s\"",
                      restore->manifest.origin.step, tag, wanted);
}

/* When the link ends before the answer, the call is repeated over the next link. */
static bool is_awaited(struct cairn_session *session) {
    CAIRN_HOLD(&session->lock);
    return !session->locked.stop && !session->locked.leaving;
}

static enum cairn_code open_restore(struct cairn_restore *restore, const char *ref,
                                    const struct cairn_restore_options *options,
                                    struct cairn_error *err) {
    CAIRN_AUTO(frame) answer = {0};
    uint64_t deadline_ms = cairn_client_deadline(restore->session, options->timeout_ms);
    enum cairn_code code;
    do code = ask_restore(restore, ref, options->format, deadline_ms, &answer, err);
    while (code == CAIRN_UPLOADER_GONE && cairn_mono_ms() < deadline_ms &&
           is_awaited(restore->session));
    CAIRN_TRY(code);
    CAIRN_TRY(open_documents(restore, &answer, err));
    CAIRN_TRY(check_format(restore, options->format, err));
    if (!restore->has_layout) return CAIRN_OK;
    return cairn_client_names_make(&restore->layout, options->renames, options->rename_count,
                                   &restore->names, err);
}

enum cairn_code cairn_restore_open(struct cairn_session *session,
                                   const struct cairn_restore_options *options,
                                   struct cairn_restore **ret, struct cairn_restore_info *ret_info,
                                   struct cairn_error *err) {
    struct cairn_restore_options own;
    CAIRN_CLIENT_CALL(session, err);
    CAIRN_CLIENT_RET(ret, err);
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    options = &own;
    const char *ref = options->ref             ? options->ref
                      : session->resumed.found ? session->resumed.version
                                               : "latest";
    __attribute__((cleanup(restore_release_at))) struct cairn_restore *restore =
        calloc(1, sizeof *restore);
    if (!restore) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a restore");
    restore->session = session;
    enum cairn_code code = open_restore(restore, ref, options, err);
    if (code) return cairn_within(err, code, "%s@%s", session->run, ref);
    if (ret_info) fill_info(restore, ret_info);
    CAIRN_HOLD(&session->lock);
    LIST_INSERT_HEAD(&session->locked.restores, restore, place);
    *ret = CAIRN_TAKE(restore);
    return CAIRN_OK;
}

void cairn_client_restores_close(struct cairn_session *session) {
    struct cairn_restore *restore;
    LIST_FOREACH(restore, &session->locked.restores, place) restore->session = NULL;
}

void cairn_restore_free(struct cairn_restore *restore) {
    if (!restore) return;
    struct cairn_session *session = restore->session;
    struct cairn_client_pending pending;
    if (!session) {
        restore_release(restore);
        return;
    }
    if (session->pid != getpid()) return; /* the parent's; its memory goes with the child */
    cairn_lock_take(&session->lock);
    LIST_REMOVE(restore, place);
    cairn_lock_give(&session->lock);
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(release, .restore = restore->id), .epoch = restore->epoch,
        .deadline_ms = cairn_mono_ms()};
    if (cairn_client_post(session, &request, &pending, NULL) == CAIRN_OK)
        cairn_client_abandon(session, &pending);
    restore_release(restore);
}

/* ---- what it holds ---- */

static const char *object_text(const char *json) {
    return json && json[0] ? json : "{}";
}

const char *cairn_restore_labels(const struct cairn_restore *restore) {
    return restore ? object_text(restore->manifest.labels_json) : "{}";
}

const char *cairn_restore_meta(const struct cairn_restore *restore) {
    return restore ? object_text(restore->manifest.meta_json) : "{}";
}

enum cairn_code cairn_restore_shard_at(struct cairn_restore *restore, uint32_t index,
                                       struct cairn_shard_info *ret, struct cairn_error *err) {
    if (!restore) return cairn_fail(err, CAIRN_INVALID, "no restore");
    CAIRN_CLIENT_RET(ret, err);
    if (index >= restore->manifest.shard_count)
        return cairn_fail(err, CAIRN_NOT_FOUND, "no shard %u", index);
    const struct cairn_manifest_shard *shard = &restore->manifest.shards[index];
    *ret = (struct cairn_shard_info){.rank = shard->rank, .bytes = shard->size_bytes};
    (void)cairn_text_copy(ret->name, sizeof ret->name, shard->name);
    return CAIRN_OK;
}

static void copy_view(char *to, size_t capacity, struct cairn_view from) {
    size_t size = from.size < capacity ? from.size : capacity - 1;
    if (size) memcpy(to, from.data, size);
    to[size] = 0;
}

/* Stored names become those by which they are known; one that no tensor has may fit a rule badly,
 * and keeps its own. */
static void copy_known(const struct cairn_restore *restore, struct cairn_view stored,
                       char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]) {
    if (!cairn_client_names_known(&restore->names, stored, ret))
        copy_view(ret, CAIRN_TENSOR_NAME_BYTES_MAX + 1, stored);
}

bool cairn_client_restore_find(const struct cairn_restore *restore, const char *known,
                               uint32_t *ret_index) {
    return restore->has_layout && cairn_client_names_find(&restore->names, &restore->layout,
                                                          cairn_view_of(known), ret_index);
}

/* index: in the layout. */
static enum cairn_code tensor_info(struct cairn_restore *restore, uint32_t index,
                                   struct cairn_tensor_info *ret, struct cairn_error *err) {
    struct cairn_view name;
    struct cairn_tensor tensor;
    uint32_t first = 0, count = 0, table = 0, row = 0;
    uint64_t elements = 0, bytes = 0;
    cairn_layout_name_at(&restore->layout, index, &name, &first, &count);
    cairn_layout_ref_at(&restore->layout, first, &table, &row);
    cairn_table_tensor_at(&restore->layout.tables[table], row, &tensor);
    if (!cairn_tensor_size(tensor.dtype, tensor.dimension_count, tensor.shape, &elements, &bytes))
        return cairn_fail(err, CAIRN_CORRUPT, "tensor %u has no size", index);
    *ret = (struct cairn_tensor_info){.dimension_count = tensor.dimension_count,
                                      .kind = (enum cairn_kind)tensor.kind,
                                      .bytes = bytes};
    copy_known(restore, name, ret->name);
    if (tensor.kind == CAIRN_TENSOR_ALIAS) copy_known(restore, tensor.alias_of, ret->alias_of);
    (void)cairn_text_copy(ret->dtype, sizeof ret->dtype, cairn_dtype_text(tensor.dtype));
    memcpy(ret->shape, tensor.shape, tensor.dimension_count * sizeof ret->shape[0]);
    return CAIRN_OK;
}

enum cairn_code cairn_restore_tensor_at(struct cairn_restore *restore, uint32_t index,
                                        struct cairn_tensor_info *ret, struct cairn_error *err) {
    if (!restore) return cairn_fail(err, CAIRN_INVALID, "no restore");
    CAIRN_CLIENT_RET(ret, err);
    if (!restore->has_layout || index >= restore->layout.name_count)
        return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %u", index);
    return tensor_info(restore, cairn_client_names_at(&restore->names, index), ret, err);
}

enum cairn_code cairn_restore_tensor_find(struct cairn_restore *restore, const char *name,
                                          struct cairn_tensor_info *ret, struct cairn_error *err) {
    uint32_t index = 0;
    if (!restore || !name) return cairn_fail(err, CAIRN_INVALID, "no restore, or no name");
    CAIRN_CLIENT_RET(ret, err);
    if (!cairn_client_restore_find(restore, name, &index))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %s", cairn_short(name).text);
    return tensor_info(restore, index, ret, err);
}
