/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a version and lists its contents. The manifest is authoritative; what the uploader says
 * about the version is only compared with it. */
#include "client/restore/restore.h"

#include <cairn/inspect.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/table/dtype.h"
#include "api/table/layout.h"
#include "client/session/memory.h"
#include "client/session/options.h"
#include "common/text.h"
#include "plan/reads.h"

#define VERSION_OF_CHOICES 8 /* socket version that introduced restores of other runs, and looks */

/* ---- names: all are computed at the open, so that collisions fail the open ---- */

static void release_names(struct cairn_client_names *names) {
    for (size_t i = 0; i < names->rule_count; i++) {
        free(names->rules[i].stored);
        free(names->rules[i].known);
    }
    for (size_t i = 0; i < names->count; i++) free(names->all[i].known);
    free(names->rules);
    free(names->all);
    *names = (struct cairn_client_names){0};
}

static bool rule_fits(const struct cairn_client_rule *rule, struct cairn_view stored) {
    size_t size = strlen(rule->stored);
    bool sized = rule->whole ? stored.size == size : stored.size >= size;
    return sized && memcmp(stored.data, rule->stored, size) == 0;
}

static bool known_name(const struct cairn_client_names *names, struct cairn_view stored,
                       char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]) {
    struct cairn_view before = {0}, rest = stored;
    for (size_t i = 0; i < names->rule_count; i++) {
        const struct cairn_client_rule *rule = &names->rules[i];
        if (!rule_fits(rule, stored)) continue;
        size_t cut = strlen(rule->stored);
        before = cairn_view_of(rule->known);
        rest = (struct cairn_view){(const char *)stored.data + cut, stored.size - cut};
        break;
    }
    size_t size = before.size + rest.size;
    if (!size || size > CAIRN_TENSOR_NAME_BYTES_MAX) return false;
    if (before.size) memcpy(ret, before.data, before.size);
    if (rest.size) memcpy(ret + before.size, rest.data, rest.size);
    ret[size] = '\0';
    return true;
}

static enum cairn_code copy_rules(const struct cairn_rename *renames, size_t count,
                                  struct cairn_client_names *ret, struct cairn_error *err) {
    ret->rules = calloc(count, sizeof *ret->rules);
    if (!ret->rules) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the renames");
    for (size_t i = 0; i < count; i++) {
        struct cairn_client_rule *rule = &ret->rules[ret->rule_count++];
        struct cairn_rename own;
        CAIRN_TRY(cairn_client_options((const uint8_t *)renames + i * renames->size, &own,
                                       sizeof own, "rename", err));
        if (!own.stored || !own.known || !cairn_utf8_valid(cairn_view_of(own.known)))
            return cairn_fail(err, CAIRN_INVALID, "rename %zu: stored or known is missing", i);
        rule->stored = strdup(own.stored);
        rule->known = strdup(own.known);
        rule->whole = own.whole != 0;
        if (!rule->stored || !rule->known)
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the renames");
    }
    return CAIRN_OK;
}

static int by_known(const void *a, const void *b) {
    const struct cairn_client_name *x = a, *y = b;
    return strcmp(x->known, y->known);
}

static enum cairn_code add_name(const struct cairn_layout *layout, uint32_t index,
                                struct cairn_client_names *ret, struct cairn_error *err) {
    char known[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    struct cairn_view stored;
    uint32_t first, count;
    cairn_layout_name_at(layout, index, &stored, &first, &count);
    if (!known_name(ret, stored, known))
        return cairn_fail(err, CAIRN_INVALID,
                          "a rename makes of tensor \"%.*s\" a name that none can have",
                          (int)cairn_min_u64(stored.size, 200), (const char *)stored.data);
    ret->all[index] = (struct cairn_client_name){strdup(known), index};
    ret->count++;
    return ret->all[index].known ? CAIRN_OK
                                 : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names");
}

static enum cairn_code make_all_names(const struct cairn_layout *layout,
                                      const struct cairn_rename *renames, size_t count,
                                      struct cairn_client_names *ret, struct cairn_error *err) {
    CAIRN_TRY(copy_rules(renames, count, ret, err));
    ret->all = calloc((size_t)layout->name_count + 1, sizeof *ret->all);
    if (!ret->all) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names");
    for (uint32_t i = 0; i < layout->name_count; i++) CAIRN_TRY(add_name(layout, i, ret, err));
    qsort(ret->all, ret->count, sizeof *ret->all, by_known);
    for (size_t i = 1; i < ret->count; i++)
        if (strcmp(ret->all[i - 1].known, ret->all[i].known) == 0)
            return cairn_fail(err, CAIRN_INVALID, "the renames give two tensors the name %s",
                              cairn_short(ret->all[i].known).text);
    return CAIRN_OK;
}

static enum cairn_code make_names(const struct cairn_layout *layout,
                                  const struct cairn_rename *renames, size_t count,
                                  struct cairn_client_names *ret, struct cairn_error *err) {
    struct cairn_client_names made = {0};
    if (!count) return CAIRN_OK;
    if (!renames) return cairn_fail(err, CAIRN_INVALID, "the renames are missing");
    enum cairn_code code = make_all_names(layout, renames, count, &made, err);
    if (code)
        release_names(&made);
    else
        *ret = made;
    return code;
}

static int known_order(const void *wanted, const void *name) {
    const struct cairn_view *known = wanted;
    const char *at = ((const struct cairn_client_name *)name)->known;
    size_t size = strlen(at);
    int order = memcmp(known->data, at, size < known->size ? size : known->size);
    return order ? order : (known->size > size) - (known->size < size);
}

static const struct cairn_client_name *find_known(const struct cairn_client_names *names,
                                                  struct cairn_view known) {
    return bsearch(&known, names->all, names->count, sizeof *names->all, known_order);
}

static uint32_t index_of_place(const struct cairn_client_names *names, uint32_t place) {
    CAIRN_PROMISE(!names->rule_count || place < names->count, return 0);
    return names->rule_count ? names->all[place].index : place;
}

/* ---- opening ---- */

static void restore_release(struct cairn_restore *restore) {
    release_names(&restore->names);
    cairn_layout_release(&restore->layout);
    cairn_manifest_release(&restore->manifest);
    if (restore->memory) munmap(restore->memory, restore->memory_bytes);
    free(restore);
}
static void restore_release_at(struct cairn_restore **restore) {
    if (*restore) restore_release(*restore);
}

/* Requires the seal against shrinking: a truncation would kill the trainer with SIGBUS. */
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
    if (restore->of_other_run || restore->look)
        CAIRN_TRY(cairn_client_speaks(
            session, VERSION_OF_CHOICES,
            restore->look ? "a look at a version" : "a restore of another run", err));
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(
            restore, .ref = ref, .format = format, .timeout_ms = cairn_client_left_ms(deadline_ms),
            .run = restore->of_other_run ? restore->run : NULL, .look = restore->look),
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

enum cairn_code cairn_client_restore_about(const struct cairn_restore *restore,
                                           enum cairn_code code, struct cairn_error *err) {
    const struct cairn_error_subject subject = {.run = restore->run_number,
                                                .has_step = restore->manifest.id.text[0] != 0,
                                                .step = restore->manifest.origin.step,
                                                .has_rank = restore->session != NULL,
                                                .rank =
                                                    restore->session ? restore->session->rank : 0};
    if (code) cairn_error_note(err, &subject);
    return code;
}

enum cairn_code cairn_client_restore_readable(const struct cairn_restore *restore,
                                              struct cairn_error *err) {
    if (!restore->session)
        return cairn_fail(err, CAIRN_INVALID, "the session of this restore is closed");
    if (!restore->look) return CAIRN_OK;
    (void)cairn_fail(err, CAIRN_INVALID, "%s step %" PRIu64 ": it was opened with `look`",
                     restore->run, restore->manifest.origin.step);
    return cairn_client_restore_about(restore, CAIRN_INVALID, err);
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

/* False: the session is closing, so do not retry over the next link. */
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
    return make_names(&restore->layout, options->renames, options->rename_count, &restore->names,
                      err);
}

static enum cairn_code choose_run(struct cairn_restore *restore, const char *run,
                                  struct cairn_error *err) {
    const struct cairn_session *session = restore->session;
    struct cairn_run_name name;
    if (!run) CAIRN_TRY(cairn_client_need_run(session, err));
    if (run) CAIRN_TRY(cairn_run_name_parse(run, &name, err));
    restore->of_other_run = run && (!session->has_run || strcmp(run, session->run) != 0);
    (void)cairn_text_copy(restore->run, sizeof restore->run, run ? run : session->run);
    restore->run_number = cairn_error_run(restore->run);
    return CAIRN_OK;
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
    __attribute__((cleanup(restore_release_at))) struct cairn_restore *restore =
        calloc(1, sizeof *restore);
    if (!restore) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a restore");
    restore->session = session;
    restore->look = options->look != 0;
    CAIRN_TRY(choose_run(restore, options->run, err));
    bool resumed = session->resumed.found && !restore->of_other_run;
    const char *ref = options->ref ? options->ref : resumed ? session->resumed.version : "latest";
    enum cairn_code code = open_restore(restore, ref, options, err);
    if (code) {
        (void)cairn_within(err, code, "%s@%s", restore->run, ref);
        return cairn_client_restore_about(restore, code, err);
    }
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

/* The lock is held. */
static bool has_readable(const struct cairn_session *session) {
    const struct cairn_restore *at;
    LIST_FOREACH(at, &session->locked.restores, place)
        if (!at->look) return true;
    return false;
}

void cairn_restore_free(struct cairn_restore *restore) {
    if (!restore) return;
    struct cairn_session *session = restore->session;
    struct cairn_client_pending pending;
    if (!session) {
        restore_release(restore);
        return;
    }
    if (session->pid != getpid()) return; /* the parent's; its memory ends with the child */
    cairn_lock_take(&session->lock);
    LIST_REMOVE(restore, place);
    bool last = !has_readable(session);
    cairn_lock_give(&session->lock);
    if (restore->look) {
        restore_release(restore);
        return;
    }
    const struct cairn_client_request request = {
        CAIRN_CLIENT_REQUEST(release, .restore = restore->id), .epoch = restore->epoch,
        .deadline_ms = cairn_mono_ms()};
    if (cairn_client_post(session, &request, &pending, NULL) == CAIRN_OK)
        cairn_client_abandon(session, &pending);
    restore_release(restore);
    if (!last || cairn_client_enter(session, NULL)) return;
    cairn_client_window_give_back(session, 0);
    cairn_client_leave(session);
}

/* ---- shards and tensors ---- */

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

/* Known name of a stored name, or the stored name itself if a rule makes it invalid. */
static void copy_known(const struct cairn_restore *restore, struct cairn_view stored,
                       char ret[CAIRN_TENSOR_NAME_BYTES_MAX + 1]) {
    if (known_name(&restore->names, stored, ret)) return;
    size_t size = (size_t)cairn_min_u64(stored.size, CAIRN_TENSOR_NAME_BYTES_MAX);
    if (size) memcpy(ret, stored.data, size);
    ret[size] = '\0';
}

bool cairn_client_restore_find(const struct cairn_restore *restore, const char *known,
                               uint32_t *ret_index) {
    const struct cairn_client_names *names = &restore->names;
    if (!restore->has_layout) return false;
    if (!names->rule_count)
        return cairn_layout_find(&restore->layout, cairn_view_of(known), ret_index);
    const struct cairn_client_name *found = find_known(names, cairn_view_of(known));
    if (found) *ret_index = found->index;
    return found != NULL;
}

static enum cairn_code tensor_info(struct cairn_restore *restore, uint32_t index,
                                   struct cairn_tensor_info *ret, struct cairn_error *err) {
    struct cairn_view name;
    struct cairn_tensor tensor;
    uint32_t first = 0, count = 0;
    uint64_t elements = 0, bytes = 0;
    cairn_layout_name_at(&restore->layout, index, &name, &first, &count);
    (void)cairn_layout_tensor_at(&restore->layout, first, &tensor);
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
    return tensor_info(restore, index_of_place(&restore->names, index), ret, err);
}

enum cairn_code cairn_restore_tensor_find(struct cairn_restore *restore, const char *name,
                                          struct cairn_tensor_info *ret, struct cairn_error *err) {
    uint32_t index = 0;
    if (!restore || !name)
        return cairn_fail(err, CAIRN_INVALID, "the restore or the tensor's name is NULL");
    CAIRN_CLIENT_RET(ret, err);
    if (!cairn_client_restore_find(restore, name, &index))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %s", cairn_short(name).text);
    return tensor_info(restore, index, ret, err);
}

/* ---- contents from the layout: cursors count names, or (listing, fragment) ---- */

static struct cairn_text text_of(struct cairn_view view) {
    return (struct cairn_text){(const char *)view.data, view.size};
}

static enum cairn_code size_of(const struct cairn_tensor *tensor, uint64_t *ret_bytes,
                               struct cairn_error *err) {
    uint64_t elements = 0;
    if (cairn_tensor_size(tensor->dtype, tensor->dimension_count, tensor->shape, &elements,
                          ret_bytes))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "tensor %.*s has no size",
                      (int)cairn_min_u64(tensor->name.size, 300), (const char *)tensor->name.data);
}

/* ---- tensors ---- */

/* The known name of a stored name; owned by the restore. */
static struct cairn_text known_text(const struct cairn_restore *restore, struct cairn_view stored) {
    char known[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    const struct cairn_client_name *kept = NULL;
    if (restore->names.rule_count && known_name(&restore->names, stored, known))
        kept = find_known(&restore->names, cairn_view_of(known));
    return text_of(kept ? cairn_view_of(kept->known) : stored);
}

enum cairn_code cairn_restore_next(struct cairn_restore *restore, uint64_t *cursor,
                                   struct cairn_tensor_view *ret, struct cairn_error *err) {
    if (!restore || !cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no restore or cursor");
    if (!restore->has_layout || *cursor >= restore->layout.name_count) return CAIRN_NOT_FOUND;
    uint32_t index = index_of_place(&restore->names, (uint32_t)*cursor);
    uint32_t first = 0, count = 0;
    struct cairn_view name;
    struct cairn_tensor tensor;
    cairn_layout_name_at(&restore->layout, index, &name, &first, &count);
    (void)cairn_layout_tensor_at(&restore->layout, first, &tensor);
    struct cairn_tensor_view made = {.name = known_text(restore, name),
                                     .dtype = cairn_dtype_text(tensor.dtype),
                                     .dimension_count = tensor.dimension_count,
                                     .kind = (enum cairn_kind)tensor.kind,
                                     .holder_count = count};
    CAIRN_TRY(size_of(&tensor, &made.bytes, err));
    if (tensor.kind == CAIRN_TENSOR_ALIAS) made.alias_of = known_text(restore, tensor.alias_of);
    memcpy(made.shape, tensor.shape, sizeof made.shape);
    *ret = made;
    ++*cursor;
    return CAIRN_OK;
}

/* ---- holders and pieces ---- */

/* Finds the listings [*ret_first, + *ret_count) of the named tensor, aliases followed. */
static enum cairn_code find_listings(const struct cairn_restore *restore, const char *tensor,
                                     uint32_t *ret_first, uint32_t *ret_count,
                                     struct cairn_error *err) {
    struct cairn_view name;
    uint32_t index = 0;
    if (!restore || !tensor)
        return cairn_fail(err, CAIRN_INVALID, "the restore or the tensor's name is NULL");
    if (!cairn_client_restore_find(restore, tensor, &index))
        return cairn_fail(err, CAIRN_NOT_FOUND, "no tensor %s", cairn_short(tensor).text);
    cairn_layout_name_at(&restore->layout, index, &name, ret_first, ret_count);
    CAIRN_TRY(cairn_plan_resolve(&restore->layout, name, &index, err));
    cairn_layout_name_at(&restore->layout, index, &name, ret_first, ret_count);
    return CAIRN_OK;
}

enum cairn_code cairn_restore_holder_next(struct cairn_restore *restore, const char *tensor,
                                          uint64_t *cursor, struct cairn_holder *ret,
                                          struct cairn_error *err) {
    uint32_t first = 0, count = 0;
    struct cairn_tensor listed;
    if (!cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no cursor");
    CAIRN_TRY(find_listings(restore, tensor, &first, &count, err));
    if (*cursor >= count) return CAIRN_NOT_FOUND;
    const struct cairn_table *table =
        cairn_layout_tensor_at(&restore->layout, first + (uint32_t)*cursor, &listed);
    struct cairn_holder made = {.rank = table->rank,
                                .dtype = cairn_dtype_text(listed.dtype),
                                .dimension_count = listed.dimension_count,
                                .piece_count = listed.fragment_count};
    CAIRN_TRY(size_of(&listed, &made.bytes, err));
    memcpy(made.shape, listed.shape, sizeof made.shape);
    *ret = made;
    ++*cursor;
    return CAIRN_OK;
}

enum cairn_code cairn_restore_piece_next(struct cairn_restore *restore, const char *tensor,
                                         uint64_t *cursor, struct cairn_stored_piece *ret,
                                         struct cairn_error *err) {
    uint32_t first = 0, count = 0;
    if (!cursor || !ret) return cairn_fail(err, CAIRN_INVALID, "no cursor");
    CAIRN_TRY(find_listings(restore, tensor, &first, &count, err));
    uint32_t at = (uint32_t)(*cursor >> 32), fragment = (uint32_t)*cursor;
    for (; at < count; at++, fragment = 0) {
        struct cairn_tensor listed;
        struct cairn_table_shard shard;
        struct cairn_fragment found;
        const struct cairn_table *table =
            cairn_layout_tensor_at(&restore->layout, first + at, &listed);
        if (fragment >= listed.fragment_count) continue;
        cairn_table_fragment_at(table, listed.fragment_first + fragment, &found);
        cairn_table_shard_at(table, found.shard, &shard);
        *ret = (struct cairn_stored_piece){.rank = table->rank,
                                           .shard = text_of(shard.name),
                                           .offset = found.offset_bytes,
                                           .bytes = found.size_bytes,
                                           .form = found.form == CAIRN_FRAGMENT_FLAT ? CAIRN_FLAT
                                                                                     : CAIRN_BOX};
        memcpy(ret->start, found.start, sizeof ret->start);
        memcpy(ret->count, found.count, sizeof ret->count);
        *cursor = (uint64_t)at << 32 | (fragment + 1);
        return CAIRN_OK;
    }
    return CAIRN_NOT_FOUND;
}

/* ---- matching wanted names against the version's ---- */

struct found {
    const struct cairn_match_options *options;
    size_t missing, surplus;
    char first_missing[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
    char first_surplus[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};

static void note(struct found *found, enum cairn_mismatch what, const char *name) {
    bool missing = what == CAIRN_TENSOR_MISSING;
    size_t *count = missing ? &found->missing : &found->surplus;
    if (!(*count)++)
        (void)cairn_text_copy(missing ? found->first_missing : found->first_surplus,
                              sizeof found->first_missing, name);
    if (found->options->report) found->options->report(found->options->owner, what, name);
}

static enum cairn_code match(struct cairn_restore *restore, struct found *found,
                             struct cairn_error *err) {
    uint32_t count = restore->has_layout ? restore->layout.name_count : 0, index;
    CAIRN_AUTO_HEAP bool *wanted = calloc((size_t)count + 1, sizeof *wanted);
    if (!wanted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to match names");
    for (size_t i = 0; i < found->options->name_count; i++) {
        const char *name = found->options->names[i];
        if (!name) return cairn_fail(err, CAIRN_INVALID, "name %zu is missing", i);
        if (cairn_client_restore_find(restore, name, &index))
            wanted[index] = true;
        else
            note(found, CAIRN_TENSOR_MISSING, name);
    }
    for (uint32_t place = 0; place < count; place++) {
        struct cairn_tensor_info info;
        if (wanted[index_of_place(&restore->names, place)]) continue;
        CAIRN_TRY(cairn_restore_tensor_at(restore, place, &info, err));
        note(found, CAIRN_TENSOR_SURPLUS, info.name);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_restore_match(struct cairn_restore *restore,
                                    const struct cairn_match_options *options,
                                    struct cairn_error *err) {
    struct cairn_match_options own;
    CAIRN_TRY(CAIRN_CLIENT_OPTIONS(options, &own, err));
    if (!restore || (own.name_count && !own.names))
        return cairn_fail(err, CAIRN_INVALID, "nothing to match");
    struct found found = {.options = &own};
    CAIRN_TRY(match(restore, &found, err));
    bool missing = found.missing && !own.allow_missing;
    bool surplus = found.surplus && !own.allow_surplus;
    if (missing && surplus)
        return cairn_fail(
            err, CAIRN_NOT_FOUND, "%s missing, the first is %s; %zu surplus, the first is %s",
            cairn_counted(found.missing, "tensor").text, cairn_short(found.first_missing).text,
            found.surplus, cairn_short(found.first_surplus).text);
    if (missing || surplus)
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s %s, the first is %s",
                          cairn_counted(missing ? found.missing : found.surplus, "tensor").text,
                          missing ? "missing" : "surplus",
                          cairn_short(missing ? found.first_missing : found.first_surplus).text);
    return CAIRN_OK;
}
