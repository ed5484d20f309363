/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's thread posts answers that promise durability, so the socket's never waits. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/text.h"
#include "uploader/journal/format.h"
#include "uploader/trainers/inside.h"

#define FILES_HELD 128 /* of all trainers: files beyond are reopened when read */
/* Of all trainers: a quarter of the mappings that Linux allows a process by default. */
#define STREAMS_MAX 16384

static enum cairn_code find_open(struct cairn_up *up, uint64_t conn, uint32_t number,
                                 struct cairn_up_save **ret, struct cairn_error *err) {
    struct cairn_up_save *save = cairn_up_save_of_locked(up, conn, number);
    if (!save) return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no open save %u", number);
    bool over = save->state.phase == CAIRN_UP_PHASE_OVER;
    bool committed = over && save->end == CAIRN_UP_COMMITTED;
    if (!committed && (over || cairn_up_save_state_is_failing(&save->state)))
        return cairn_pass(err, save->why.code, &save->why);
    if (!cairn_up_save_state_is_staging(&save->state))
        return cairn_fail(err, CAIRN_CONFLICT, "save %u is sealed", number);
    *ret = save;
    return CAIRN_OK;
}

static enum cairn_code read_wanted(const json_t *item, struct cairn_msg_stage_shard *ret,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_msg_stage_shard_read(item, "/shards", ret, err));
    if (strcmp(ret->kind, "raw") != 0 && strcmp(ret->kind, "tensors") != 0)
        return cairn_fail(err, CAIRN_INVALID, "shard kind \"%s\"", ret->kind);
    return cairn_shard_name_check(cairn_view_of(ret->name), err);
}

static enum cairn_code add_shard(struct cairn_up *up, struct cairn_up_save *save,
                                 const struct cairn_msg_stage_shard *wanted,
                                 const uint8_t *slab_data, int take_fd, char *take_path,
                                 struct cairn_error *err) {
    enum cairn_code code = cairn_shard_names_add(&save->names, cairn_view_of(wanted->name), err);
    if (code != CAIRN_OK) {
        if (take_fd >= 0) close(take_fd);
        free(take_path);
        return code;
    }
    struct cairn_up_shard_options options = {
        .name = wanted->name,
        .tensors = !strcmp(wanted->kind, "tensors"),
        .slab_offset = wanted->offset,
        .size_bytes = wanted->bytes,
        .data = slab_data ? slab_data + wanted->offset : NULL,
        .take_fd = take_fd,
        .take_path = take_path,
    };
    return cairn_up_save_shard_new_locked(up, save, &options, NULL, err);
}

static enum cairn_code add_staged(struct cairn_up *up, struct cairn_up_save *save,
                                  const struct cairn_up_slab *slab, const json_t *shards,
                                  struct cairn_error *err) {
    const struct cairn_up_shard *last =
        save->stage_count ? save->shards[save->stage_first + save->stage_count - 1] : NULL;
    uint64_t from = last ? last->slab_offset + last->size_bytes : 0;
    for (size_t i = 0; i < json_array_size(shards); i++) {
        struct cairn_msg_stage_shard wanted = {0};
        CAIRN_TRY(read_wanted(json_array_get(shards, i), &wanted, err));
        if (wanted.offset % 4096 || wanted.offset < from)
            return cairn_fail(err, CAIRN_INVALID,
                              "shard %s at offset %" PRIu64
                              ": offsets are multiples of 4096, in order, without overlap",
                              wanted.name, wanted.offset);
        if (wanted.bytes > slab->memory.size_bytes ||
            wanted.offset > slab->memory.size_bytes - wanted.bytes)
            return cairn_fail(err, CAIRN_INVALID,
                              "shard %s: %" PRIu64 " bytes at %" PRIu64
                              " do not fit into the slab's %" PRIu64,
                              wanted.name, wanted.bytes, wanted.offset, slab->memory.size_bytes);
        from = wanted.offset + wanted.bytes;
        CAIRN_TRY(add_shard(up, save, &wanted, slab->memory.data, -1, NULL, err));
    }
    return CAIRN_OK;
}

/* No answer waits for this record: later intents follow it in the journal. */
static enum cairn_code post_stage(struct cairn_up *up, const struct cairn_up_save *save,
                                  const struct cairn_up_slab *slab, json_t *shards, bool more,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message =
        CAIRN_PACK(record_stage, .slab = slab->index, .owner = save->state.owner,
                   .bytes = slab->memory.size_bytes, .device = slab->memory.device,
                   .inode = slab->memory.inode, .shards = shards, .more = more);
    struct cairn_up_record record = {.entry = save->entry, .message = message};
    return cairn_up_journal_post(up->journal, &record, 1, NULL, NULL, err);
}

static void drop_from(struct cairn_up *up, struct cairn_up_save *save, size_t first) {
    while (save->state.shard_count > first) {
        save->total_bytes -= save->shards[save->state.shard_count - 1]->size_bytes;
        save->stream_count -= save->shards[save->state.shard_count - 1]->is_stream;
        cairn_up_shard_free(up->queue, save->shards[--save->state.shard_count]);
    }
    cairn_shard_names_release(&save->names);
    for (size_t i = 0; i < first; i++) /* names accepted before */
        (void)!cairn_shard_names_add(&save->names, cairn_view_of(save->shards[i]->name), NULL);
}

/* Adds late, small data to a staged save, such as a framework's own metadata. */
static enum cairn_code stage_more(struct cairn_up *up, struct cairn_up_save *save,
                                  struct cairn_up_slab *slab, json_t *shards,
                                  struct cairn_error *err) {
    size_t first = save->state.shard_count;
    if (save->state.staging != CAIRN_UP_STAGING_DESCRIBED || save->slab != slab ||
        save->stage_first + save->stage_count != first)
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "save %u: more shards where none are staged, or behind a file",
                          save->number);
    enum cairn_code code = add_staged(up, save, slab, shards, err);
    if (code == CAIRN_OK) code = post_stage(up, save, slab, shards, true, err);
    if (code != CAIRN_OK) {
        drop_from(up, save, first);
        return code;
    }
    save->stage_count = save->state.shard_count - save->stage_first;
    for (size_t i = first; i < save->state.shard_count; i++)
        cairn_up_queue_add_unstaged(up->queue, save->shards[i]);
    return CAIRN_OK;
}

/* The uploader died between `stage` and the seal, and the trainer repeats everything. The store may
 * have some of it, so it must be the same shards in the same memory, plus perhaps more; the journal
 * has them, and checksums are compared as they come (Q15). */
static enum cairn_code stage_again(struct cairn_up *up, struct cairn_up_save *save,
                                   struct cairn_up_slab *slab, const json_t *shards,
                                   struct cairn_error *err) {
    bool same =
        cairn_up_save_is_staged_in(save, slab) && json_array_size(shards) >= save->stage_count;
    for (size_t i = 0; same && i < save->stage_count; i++) {
        const struct cairn_up_shard *shard = save->shards[save->stage_first + i];
        struct cairn_msg_stage_shard wanted = {0};
        CAIRN_TRY(read_wanted(json_array_get(shards, i), &wanted, err));
        same = !strcmp(wanted.name, shard->name) && wanted.offset == shard->slab_offset &&
               wanted.bytes == shard->size_bytes &&
               shard->tensors == !strcmp(wanted.kind, "tensors");
    }
    if (!same)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "the shards or their memory are not those that were staged before the "
                          "uploader was restarted");
    save->state.staging = CAIRN_UP_STAGING_DESCRIBED;
    save->described_us = cairn_mono_us();
    bool taken = cairn_up_save_slab_take_locked(save, slab);
    CAIRN_ASSERT(taken); /* checked by the caller */
    for (size_t i = 0; i < save->stage_count; i++) {
        struct cairn_up_shard *shard = save->shards[save->stage_first + i];
        cairn_up_shard_restage(up->queue, shard, slab->memory.data + shard->slab_offset);
    }
    /* Adds shards missing in the journal: the uploader died before they were sent to it. */
    CAIRN_AUTO_JSON json_t *rest = json_array();
    for (size_t i = save->stage_count; i < json_array_size(shards); i++)
        if (json_array_append(rest, json_array_get(shards, i)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the shards");
    return json_array_size(rest) ? stage_more(up, save, slab, rest, err) : CAIRN_OK;
}

enum cairn_code cairn_up_save_stage(struct cairn_up *up, uint64_t conn, const json_t *message,
                                    struct cairn_error *err) {
    struct cairn_msg_stage told = {0};
    CAIRN_TRY(cairn_msg_stage_read(message, "", &told, err));
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(find_open(up, conn, told.save, &save, err));
    struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, conn, told.slab);
    if (!slab) return cairn_fail(err, CAIRN_INVALID, "this session has no slab %u", told.slab);
    if (told.owner != save->state.owner)
        return cairn_fail(err, CAIRN_PROTOCOL, "save %u is owner %" PRIu64 ", not %" PRIu64,
                          told.save, save->state.owner, told.owner);
    if (save->slab && save->slab != slab)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED, "save %u was staged in slab %u", told.save,
                          save->slab->index);
    if (slab->state.owner && slab->state.owner != told.owner)
        return cairn_fail(err, CAIRN_BUSY, "slab %u belongs to owner %" PRIu64, told.slab,
                          slab->state.owner);
    if (told.more) return stage_more(up, save, slab, told.shards, err);
    if (save->state.staging == CAIRN_UP_STAGING_AGAIN)
        return stage_again(up, save, slab, told.shards, err);
    if (save->state.staging != CAIRN_UP_STAGING_NONE)
        return cairn_fail(err, CAIRN_PROTOCOL, "save %u was staged already", told.save);
    size_t first = save->state.shard_count;
    enum cairn_code code = add_staged(up, save, slab, told.shards, err);
    if (code == CAIRN_OK) code = post_stage(up, save, slab, told.shards, false, err);
    if (code != CAIRN_OK) {
        drop_from(up, save, first);
        return code;
    }
    save->state.staging = CAIRN_UP_STAGING_DESCRIBED;
    save->described_us = cairn_mono_us();
    save->stage_first = first;
    save->stage_count = save->state.shard_count - first;
    bool taken = cairn_up_save_slab_take_locked(save, slab);
    CAIRN_ASSERT(taken);
    for (size_t i = first; i < save->state.shard_count; i++)
        cairn_up_queue_add_unstaged(up->queue, save->shards[i]);
    return CAIRN_OK;
}

/* U02: requires a regular file, open for reading, of the promised size. */
static enum cairn_code check_file(int fd, const struct cairn_msg_stage_shard *wanted,
                                  struct cairn_error *err) {
    struct stat status;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &status)) return cairn_fail_errno(err, "file %s", wanted->name);
    if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY || !S_ISREG(status.st_mode))
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "file %s: the descriptor is no regular file open for reading",
                          wanted->name);
    if ((uint64_t)status.st_size != wanted->bytes)
        return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                          "file %s has %" PRIu64 " bytes, promised: %" PRIu64, wanted->name,
                          (uint64_t)status.st_size, wanted->bytes);
    return CAIRN_OK;
}

/* U10: a quarter of all descriptors is reserved; a session holds at most as many as it leaves. */
static enum cairn_code check_descriptors(const struct cairn_up *up, uint64_t conn,
                                         struct cairn_error *err) {
    struct rlimit limit;
    uint64_t own = 0, all = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return CAIRN_OK;
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        all += save->held_count;
        if (save->conn == conn) own += save->held_count;
    }
    uint64_t room = limit.rlim_cur - limit.rlim_cur / 4, left = room > all ? room - all : 0;
    if (own < left) return CAIRN_OK;
    return cairn_fail(err, CAIRN_BUSY,
                      "too many files are open: %" PRIu64 " for this trainer, where %" PRIu64
                      " are left to all (limit %" PRIu64 ", ulimit -n)",
                      own, left, (uint64_t)limit.rlim_cur);
}

static bool many_are_held(struct cairn_up *up) {
    uint64_t all = 0;
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) all += up->locked.saves[i]->held_count;
    return all >= FILES_HELD;
}

/* A path by which this process can reopen that very file; NULL: none (unreachable folder, other
 * mount namespace, or an unlinked file). */
static char *name_again(int fd) {
    char link[64], path[PATH_MAX];
    struct stat given, found;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    if (size <= 0 || path[0] != '/') return NULL;
    path[size] = '\0';
    CAIRN_AUTO_FD again = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (again < 0 || fstat(fd, &given) || fstat(again, &found)) return NULL;
    bool same = given.st_dev == found.st_dev && given.st_ino == found.st_ino;
    return same ? strdup(path) : NULL;
}

enum cairn_code cairn_up_save_file(struct cairn_up *up, uint64_t conn, const json_t *message,
                                   int take_fd, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = take_fd;
    struct cairn_msg_file told = {0};
    CAIRN_TRY(cairn_msg_file_read(message, "", &told, err));
    const struct cairn_msg_stage_shard wanted = {
        .name = told.name, .kind = "raw", .bytes = told.bytes};
    CAIRN_TRY(cairn_shard_name_check(cairn_view_of(wanted.name), err));
    CAIRN_TRY(check_file(fd, &wanted, err));
    CAIRN_AUTO_HEAP char *path = many_are_held(up) ? name_again(fd) : NULL;
    bool held = !path;
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = NULL;
    CAIRN_TRY(find_open(up, conn, told.save, &save, err));
    if (held) CAIRN_TRY(check_descriptors(up, conn, err));
    size_t first = save->state.shard_count;
    int given = fd;
    fd = -1; /* taken also on failure */
    CAIRN_TRY(add_shard(up, save, &wanted, NULL, given, CAIRN_TAKE(path), err));
    CAIRN_AUTO_JSON json_t *note = CAIRN_PACK(record_file, .name = told.name, .bytes = told.bytes);
    struct cairn_up_record record = {.entry = save->entry, .message = note};
    enum cairn_code code = cairn_up_journal_post(up->journal, &record, 1, NULL, NULL, err);
    if (code != CAIRN_OK) {
        drop_from(up, save, first);
        return code;
    }
    save->file_count++;
    save->held_count += held;
    if (!save->described_us) save->described_us = cairn_mono_us();
    cairn_up_queue_add_file(up->queue, save->shards[first]);
    return CAIRN_OK;
}

/* ---- streams: shards in memory of their own, sealed by the trainer, which keeps it ---- */

static enum cairn_code check_streams(const struct cairn_up *up, struct cairn_error *err) {
    uint64_t all = 0;
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (!up->locked.saves[i]->streams_released) all += up->locked.saves[i]->stream_count;
    if (all < STREAMS_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_BUSY,
                      "%" PRIu64 " streams beyond their sessions' memory are not durable yet, "
                      "the most for one node; open the sessions with more `bytes`",
                      all);
}

static struct cairn_up_shard *find_stream(const struct cairn_up_save *save, const char *name) {
    for (size_t i = 0; save->stream_count && i < save->state.shard_count; i++)
        if (save->shards[i]->is_stream && !strcmp(save->shards[i]->name, name))
            return save->shards[i];
    return NULL;
}

/* The journal has the checksums beside the shard, so that a restart makes none anew (Q15). */
static enum cairn_code post_stream(struct cairn_up *up, const struct cairn_up_save *save,
                                   const struct cairn_up_shard *shard,
                                   const struct cairn_slab *memory, struct cairn_view crcs,
                                   struct cairn_error *err) {
    struct cairn_up_notes notes = {0};
    enum cairn_code code =
        cairn_up_notes_add(&notes, save->entry,
                           CAIRN_PACK(record_file, .name = shard->name, .bytes = shard->size_bytes,
                                      .device = memory->device, .inode = memory->inode),
                           (struct cairn_view){0}, err);
    if (!code)
        code = cairn_up_notes_add(&notes, save->entry, CAIRN_PACK(record_blocks, .s = shard->index),
                                  crcs, err);
    if (!code)
        code = cairn_up_journal_post(up->journal, notes.records, notes.count, NULL, NULL, err);
    cairn_up_notes_release(&notes);
    return code;
}

static enum cairn_code take_stream(struct cairn_up *up, uint64_t conn,
                                   const struct cairn_msg_stream *told,
                                   struct cairn_slab *take_memory, struct cairn_view crcs,
                                   struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, conn, told->save);
    if (!save)
        return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no open save %u", told->save);
    if (save->state.phase == CAIRN_UP_PHASE_OVER || cairn_up_save_state_is_failing(&save->state) ||
        save->streams_released)
        return CAIRN_OK; /* the verdict is on the way, or `durable` was told */
    struct cairn_up_shard *known = find_stream(save, told->name);
    if (known) {
        /* A stream that this process or the journal knows is joined with its memory: the trainer
         * repeats all of them at a new connection. */
        if (known->size_bytes != take_memory->size_bytes)
            return cairn_fail(err, CAIRN_SOURCE_CHANGED,
                              "stream %s has %" PRIu64 " bytes, it had %" PRIu64, known->name,
                              take_memory->size_bytes, known->size_bytes);
        struct cairn_slab memory = *take_memory;
        *take_memory = (struct cairn_slab){0};
        CAIRN_TRY(cairn_up_shard_stream(up->queue, known, &memory, crcs, err));
        cairn_up_wakeup_raise(&up->partner_work);
        return CAIRN_OK;
    }
    CAIRN_TRY(find_open(up, conn, told->save, &save, err));
    CAIRN_TRY(check_streams(up, err));
    size_t first = save->state.shard_count;
    const struct cairn_slab memory = *take_memory;
    CAIRN_TRY(cairn_shard_names_add(&save->names, cairn_view_of(told->name), err));
    *take_memory = (struct cairn_slab){0};
    struct cairn_up_shard_options options = {.name = told->name,
                                             .size_bytes = told->bytes,
                                             .take_fd = -1,
                                             .is_stream = true,
                                             .take_stream = memory};
    CAIRN_TRY(cairn_up_save_shard_new_locked(up, save, &options, NULL, err));
    struct cairn_up_shard *shard = save->shards[first];
    enum cairn_code code =
        cairn_up_shard_ready(up->queue, shard, told->bytes, crcs.data, crcs.size / 4, err);
    if (!code) code = post_stream(up, save, shard, &memory, crcs, err);
    if (code) {
        drop_from(up, save, first);
        return code;
    }
    cairn_up_shard_journaled(up->queue, shard);
    if (!save->described_us) save->described_us = cairn_mono_us();
    cairn_up_queue_add_unstaged(up->queue, shard);
    return CAIRN_OK;
}

enum cairn_code cairn_up_save_stream(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs, int take_fd, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = take_fd;
    CAIRN_AUTO(slab) memory = {0};
    struct cairn_msg_stream told = {0};
    CAIRN_TRY(cairn_msg_stream_read(message, "", &told, err));
    CAIRN_TRY(cairn_shard_name_check(cairn_view_of(told.name), err));
    if (crcs.size % 4 || crcs.size / 4 != cairn_div_up(told.bytes, CAIRN_BLOCK_BYTES))
        return cairn_fail(err, CAIRN_PROTOCOL,
                          "stream %s: %zu bytes of checksums for %" PRIu64 " bytes", told.name,
                          crcs.size, told.bytes);
    int given = fd;
    fd = -1; /* taken also on failure */
    enum cairn_code code = cairn_slab_attach_sealed(given, told.bytes, &memory, err);
    if (code) return cairn_within(err, code, "stream %s", told.name);
    return take_stream(up, conn, &told, &memory, crcs, err);
}

enum cairn_code cairn_up_save_staged(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs, struct cairn_error *err) {
    struct cairn_msg_staged told = {0};
    CAIRN_TRY(cairn_msg_staged_read(message, "", &told, err));
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, conn, told.save);
    if (!save || save->state.phase == CAIRN_UP_PHASE_OVER ||
        cairn_up_save_state_is_failing(&save->state))
        return CAIRN_OK; /* the verdict is on the way */
    if (save->state.staging != CAIRN_UP_STAGING_DESCRIBED || told.shard >= save->stage_count ||
        crcs.size % 4)
        return cairn_fail(err, CAIRN_PROTOCOL, "staged: save %u has no shard %u", told.save,
                          told.shard);
    return cairn_up_shard_ready(up->queue, save->shards[save->stage_first + told.shard], told.bytes,
                                crcs.data, crcs.size / 4, err);
}

static enum cairn_code note_seal(struct cairn_up *up, struct cairn_up_save *save,
                                 struct cairn_up_notes *notes, struct cairn_error *err) {
    struct cairn_up_table *table = save->table;
    if (table && !table->written)
        CAIRN_TRY(cairn_up_notes_add(notes, table->entry, cairn_up_table_record(table),
                                     cairn_buf_view(&table->bytes), err));
    /* Journals checksums of all staged blocks with the seal: a restart never remakes them (Q15). */
    for (size_t i = 0; i < save->state.shard_count; i++) {
        const struct cairn_up_shard *shard = save->shards[i];
        if (shard->is_file) continue;
        uint64_t ready = cairn_up_shard_ready_bytes(up->queue, shard);
        if (ready != shard->size_bytes)
            return cairn_fail(err, CAIRN_PROTOCOL,
                              "shard %s: %" PRIu64 " of %" PRIu64
                              " bytes are staged, it cannot be sealed",
                              shard->name, ready, shard->size_bytes);
    }
    for (size_t i = 0; i < save->state.shard_count; i++) {
        bool needed = false;
        CAIRN_AUTO(buf) blocks = {0};
        CAIRN_TRY(cairn_up_shard_seal(up->queue, save->shards[i], &blocks, &needed, err));
        if (needed)
            CAIRN_TRY(cairn_up_notes_add_buf(notes, save->entry, CAIRN_PACK(record_blocks, .s = i),
                                             &blocks, err));
    }
    json_t *message =
        CAIRN_PACK(record_seal, .replicated = save->replicated, .table = table ? table->hex : NULL,
                   .labels = save->labels, .meta = save->meta);
    return cairn_up_notes_add(notes, save->entry, message, (struct cairn_view){0}, err);
}

/* Takes the session's last table if the seal names it, otherwise the one sent. */
static enum cairn_code take_table(struct cairn_up *up, struct cairn_up_save *save,
                                  const char *named, struct cairn_view table,
                                  struct cairn_up_table **in_known, struct cairn_error *err) {
    struct cairn_up_table *known = *in_known;
    cairn_up_table_leave_locked(up, &save->table); /* of a refused seal */
    if (named && table.size)
        return cairn_fail(err, CAIRN_PROTOCOL, "a seal with a table and the name of one");
    if (named) {
        if (!known || !known->written || strcmp(known->hex, named) != 0)
            return cairn_fail(err, CAIRN_NOT_FOUND, "no seal of this session brought table %s",
                              named);
        save->table = cairn_up_table_use(known);
        return CAIRN_OK;
    }
    if (!table.size) return CAIRN_OK;
    uint64_t entry = cairn_up_journal_entry_new(up->journal);
    CAIRN_TRY(cairn_up_table_new_locked(up, table, entry, &save->table, err));
    if (save->table->rank != save->rank)
        return cairn_fail(err, CAIRN_TABLE_INVALID, "the table is of rank %u, the save of rank %u",
                          save->table->rank, save->rank);
    cairn_up_table_leave_locked(up, in_known);
    *in_known = cairn_up_table_use(save->table);
    return CAIRN_OK;
}

static enum cairn_code post_seal(struct cairn_up *up, struct cairn_up_save *save,
                                 struct cairn_error *err) {
    struct cairn_up_notes notes = {0};
    enum cairn_code code = note_seal(up, save, &notes, err);
    if (code == CAIRN_OK)
        code = cairn_up_save_post_locked(up, save, notes.records, notes.count, err);
    cairn_up_notes_release(&notes);
    return code;
}

/* True: the save was sealed before, and the repeated seal is answered. */
static bool seal_again(struct cairn_up *up, struct cairn_up_save *save,
                       struct cairn_up_reply reply) {
    enum cairn_up_phase phase = save->state.phase;
    bool committed = phase == CAIRN_UP_PHASE_OVER && save->end == CAIRN_UP_COMMITTED;
    if (!committed && phase != CAIRN_UP_PHASE_SEALED && phase != CAIRN_UP_PHASE_IN_DOUBT)
        return false;
    cairn_up_mail_answer(up->mail, reply.conn, reply.request, cairn_up_save_sealed(save));
    return true;
}

enum cairn_code cairn_up_save_seal(struct cairn_up *up, const json_t *message,
                                   struct cairn_view table, struct cairn_up_table **in_known,
                                   struct cairn_up_reply reply, struct cairn_error *err) {
    struct cairn_msg_seal told = {0};
    CAIRN_TRY(cairn_msg_seal_read(message, "", &told, err));
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, reply.conn, told.save);
    if (save && seal_again(up, save, reply)) return CAIRN_OK;
    CAIRN_TRY(find_open(up, reply.conn, told.save, &save, err));
    CAIRN_TRY(take_table(up, save, told.table, table, in_known, err));
    CAIRN_TRY(cairn_up_save_set_sealed(save, told.replicated, told.labels, told.meta, err));
    save->copy_threads = told.copy_threads;
    save->copy_rate = told.copy_rate;
    (void)cairn_text_copy(save->stale, sizeof(save->stale), told.stale ? told.stale : "");
    enum cairn_code code = post_seal(up, save, err);
    if (code == CAIRN_OK) {
        save->seal_reply = reply;
        if (save->stale[0]) {
            cairn_metrics_add(up->metrics, CAIRN_UP_METRIC(stale_saves_total), 1);
            cairn_log(WARN, "save.stale", "run=%s step=%" PRIu64 " rank=%u what=\"%s\"",
                      save->attempt->run_text, save->place.step, save->rank, save->stale);
        }
        cairn_up_save_event_locked(up, save, CAIRN_UP_EVENT_SEAL);
    } else if (code != CAIRN_PROTOCOL && err) {
        /* Blocks marked as journaled were lost: the save can no longer be sealed. */
        cairn_up_save_fail_for_locked(up, save, err);
    }
    return code;
}

enum cairn_code cairn_up_save_fail(struct cairn_up *up, uint32_t number,
                                   const struct cairn_error *why, struct cairn_up_reply reply,
                                   struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, reply.conn, number);
    if (!save) return cairn_fail(err, CAIRN_NOT_FOUND, "this session has no open save %u", number);
    enum cairn_up_phase phase = save->state.phase;
    if (phase == CAIRN_UP_PHASE_OVER && save->end == CAIRN_UP_COMMITTED)
        return cairn_fail(err, CAIRN_ALREADY_COMMITTED, "%s is committed; it can no longer fail",
                          save->place.id.text);
    /* Q40: after the seal only the server knows which came first. */
    bool waits = cairn_up_save_state_is_sealed(&save->state) && !save->fail_reply.conn;
    if (waits) save->fail_reply = reply;
    cairn_up_save_fail_for_locked(up, save, why);
    if (!waits) cairn_up_mail_answer(up->mail, reply.conn, reply.request, CAIRN_PACK(ok, 0));
    return CAIRN_OK;
}
