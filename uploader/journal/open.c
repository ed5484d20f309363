/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a journal: its lock, what its file holds, its rewrite; other journals of the folder. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/documents.h"
#include "api/messages.h"
#include "common/crc32c.h"
#include "common/file.h"
#include "common/id.h"
#include "common/log.h"
#include "uploader/journal/format.h"
#include "uploader/journal/inside.h"
#include "uploader/journal/journal.h"
#include "uploader/settings.h"

struct open_work {
    struct cairn_up_journal *journal;
    const struct cairn_up_journal_options *options;
    bool headed, earlier; /* earlier: its header names an older format */
};

/* ---- the first pass: who is alive ---- */

static enum cairn_code check_header(struct open_work *work, const json_t *message,
                                    struct cairn_error *err) {
    struct cairn_msg_record_journal told = {0};
    const char *name = json_string_value(json_object_get(message, "t"));
    CAIRN_TRY(cairn_msg_record_journal_read(message, "", &told, err));
    if (!name || strcmp(name, cairn_message_form(CAIRN_MESSAGE_record_journal)->text) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "it does not begin with its header");
    if (told.format < 1) return cairn_fail(err, CAIRN_CORRUPT, "it has format 0");
    if (told.format > CAIRN_UP_JOURNAL_FORMAT)
        return cairn_newer(err,
                           "one that knows its format %" PRIu64 " (this one: 1 to %d); start that, "
                           "or drain it with that first (docs/upgrade.md)",
                           told.format, CAIRN_UP_JOURNAL_FORMAT);
    if (strcmp(told.node, work->options->node) != 0)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "it belongs to node %s, this is %s; the setting node gives the name, "
                          "else the host name does",
                          told.node, work->options->node);
    work->headed = true;
    work->earlier = told.format < CAIRN_UP_JOURNAL_FORMAT;
    return CAIRN_OK;
}

static enum cairn_code index_one(void *owner, const struct cairn_up_record_found *found,
                                 struct cairn_error *err) {
    struct open_work *work = owner;
    if (work->headed)
        return cairn_up_journal_index_add(&work->journal->own.index, found->entry, found->closes,
                                          found->span, err);
    CAIRN_AUTO_JSON json_t *message = NULL;
    CAIRN_TRY(cairn_json_parse(found->json, (struct cairn_json_limits){0}, &message, err));
    return check_header(work, message, err);
}

/* An entry that the lost groups closed has lost nothing. */
static enum cairn_code damage_touched(struct cairn_up_journal_index *index,
                                      const struct cairn_up_damage *damage, size_t *ret_entries,
                                      struct cairn_error *err) {
    for (size_t i = 0; i < damage->head->count; i++) {
        struct cairn_up_touched touched;
        cairn_up_head_touched(damage->head, i, &touched);
        if (touched.sequence < damage->first) continue;
        if (touched.closed) {
            CAIRN_TRY(cairn_up_journal_index_add(index, touched.entry, true,
                                                 (struct cairn_up_journal_span){0}, err));
            continue;
        }
        CAIRN_TRY(cairn_up_journal_index_damage(index, touched.entry, err));
        ++*ret_entries;
    }
    return CAIRN_OK;
}

static enum cairn_code note_damage(void *owner, const struct cairn_up_damage *damage,
                                   struct cairn_error *err) {
    struct open_work *work = owner;
    struct cairn_up_journal *journal = work->journal;
    struct cairn_up_journal_index *index = &journal->own.index;
    size_t entries = 0;
    if (!work->headed && damage->head->id.node_crc != cairn_up_node_crc(journal->node))
        return cairn_fail(err, CAIRN_CONFLICT, "it does not belong to node %s", journal->node);
    work->headed = true;
    index->entry_last = cairn_max_u64(index->entry_last, damage->entry_last);
    CAIRN_TRY(damage_touched(index, damage, &entries, err));
    for (size_t i = 0; !damage->known && i < index->count; i++) index->entries[i].damaged = true;
    cairn_log(ERROR, "journal.damaged",
              "path=%s offset=%" PRIu64 " bytes=%" PRIu64 " groups=%" PRIu64
              " entries=%zu may_concern=%s",
              journal->path, damage->offset, damage->end - damage->offset,
              damage->last + 1 - damage->first, damage->known ? entries : index->count,
              damage->known ? "those" : "all");
    return CAIRN_OK;
}

/* ---- the second pass ---- */

static enum cairn_code replay_one(void *owner, const struct cairn_up_record_found *found,
                                  struct cairn_error *err) {
    struct open_work *work = owner;
    if (!work->options->replay ||
        !cairn_up_journal_index_find(&work->journal->own.index, found->entry))
        return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *message = NULL;
    CAIRN_TRY(cairn_json_parse(found->json, (struct cairn_json_limits){0}, &message, err));
    struct cairn_up_replayed record = {
        .entry = found->entry,
        .message = message,
        .name = json_string_value(json_object_get(message, "t")),
        .blob = found->blob,
    };
    if (!record.name) record.name = ""; /* whoever replays sets its entry aside */
    return work->options->replay(work->options->owner, &record, err);
}

/* ---- the file ---- */

struct mapped {
    struct cairn_view view;
};
static void cairn_mapped_release(struct mapped *mapped) {
    if (mapped->view.size) munmap((void *)(uintptr_t)mapped->view.data, mapped->view.size);
}

static enum cairn_code map_file(int fd, struct mapped *ret, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status)) return cairn_fail_errno(err, "looking at the journal");
    if (status.st_size <= 0) return CAIRN_OK;
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return cairn_fail_errno(err, "mapping the journal");
    ret->view = (struct cairn_view){data, (size_t)status.st_size};
    return CAIRN_OK;
}

/* The damaged bytes stay beside the journal, for whoever looks into it. */
static enum cairn_code write_anew(struct cairn_up_journal *journal, bool damaged,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) kept = {0};
    bool renamed = false;
    CAIRN_TRY(cairn_buf_printf(&kept, err, "%s.damaged", journal->path));
    if (damaged && unlink(kept.data) && errno != ENOENT)
        return cairn_fail_errno(err, "removing %s", kept.data);
    if (damaged && link(journal->path, kept.data))
        return cairn_fail_errno(err, "keeping the damaged journal as %s", kept.data);
    return cairn_up_journal_rewrite(journal, &renamed, err);
}

/* *ret_anew: it must be written anew before it is used. */
static enum cairn_code take_file(struct open_work *work, bool *ret_anew, bool *ret_damaged,
                                 struct cairn_error *err) {
    struct cairn_up_journal *journal = work->journal;
    struct cairn_up_file *own = &journal->own;
    __attribute__((cleanup(cairn_mapped_release))) struct mapped file = {0};
    struct cairn_up_scanned scanned = {0};
    const struct cairn_up_scan_sink sink = {index_one, note_damage, work};
    CAIRN_TRY(map_file(own->fd, &file, err));
    enum cairn_code code =
        cairn_up_journal_scan(file.view, cairn_up_node_crc(journal->node), &sink, &scanned, err);
    own->touches = scanned.touches;
    if (code != CAIRN_OK) return code;
    own->size = scanned.end;
    own->sequence = scanned.sequence;
    own->id = scanned.id;
    own->index.entry_last = cairn_max_u64(own->index.entry_last, scanned.entry_last);
    *ret_damaged = scanned.damaged;
    *ret_anew = work->headed && (scanned.before || scanned.damaged || work->earlier);
    if (own->size < file.view.size)
        cairn_log(WARN, "journal.torn_tail", "path=%s kept=%" PRIu64 " cut=%zu", journal->path,
                  own->size, (size_t)(file.view.size - own->size));
    if (own->size < file.view.size && !*ret_anew && ftruncate(own->fd, (off_t)own->size))
        return cairn_fail_errno(err, "cutting the journal's torn tail");
    return CAIRN_OK;
}

static enum cairn_code replay_file(struct open_work *work, struct cairn_error *err) {
    struct cairn_up_journal *journal = work->journal;
    __attribute__((cleanup(cairn_mapped_release))) struct mapped file = {0};
    struct cairn_up_scanned scanned = {0};
    const struct cairn_up_scan_sink sink = {replay_one, NULL, work};
    CAIRN_TRY(map_file(journal->own.fd, &file, err));
    enum cairn_code code =
        cairn_up_journal_scan(file.view, journal->own.id.node_crc, &sink, &scanned, err);
    cairn_up_touches_release(&scanned.touches);
    return code;
}

enum cairn_code cairn_up_journal_read(struct cairn_up_journal *journal,
                                      const struct cairn_up_journal_options *options,
                                      struct cairn_error *err) {
    struct open_work work = {.journal = journal, .options = options};
    bool anew = false, damaged = false;
    journal->own.fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal->own.fd < 0) return cairn_fail_errno(err, "opening the journal");
    CAIRN_TRY(take_file(&work, &anew, &damaged, err));
    if (anew) CAIRN_TRY(write_anew(journal, damaged, err));
    if (!work.headed) CAIRN_TRY(cairn_up_file_begin(&journal->own, journal->node, err));
    if (fdatasync(journal->own.fd)) return cairn_fail_errno(err, "syncing the journal");
    CAIRN_TRY(cairn_dir_sync(journal->dir_fd, err));
    return replay_file(&work, err);
}

/* ---- rewrite ---- */

void cairn_up_file_release(struct cairn_up_file *file) {
    if (file->fd >= 0) cairn_fd_close_at(&file->fd);
    cairn_up_touches_release(&file->touches);
    cairn_up_journal_index_release(&file->index);
}

uint32_t cairn_up_node_crc(const char *node) {
    return cairn_crc32c(0, node, strlen(node));
}

/* ---- groups ---- */

static enum cairn_code write_all(int fd, const void *data, size_t size, uint64_t offset,
                                 struct cairn_error *err) {
    const char *at = data;
    while (size) {
        ssize_t wrote = pwrite(fd, at, size, (off_t)offset);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return cairn_fail_errno(err, "writing the journal");
        at += wrote;
        offset += (uint64_t)wrote;
        size -= (size_t)wrote;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_up_file_begin(struct cairn_up_file *file, const char *node,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message =
        CAIRN_PACK(record_journal, .format = CAIRN_UP_JOURNAL_FORMAT, .node = node);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal's header");
    struct cairn_up_record record = {.message = message};
    CAIRN_AUTO(buf) header = {0};
    uint8_t head[CAIRN_UP_GROUP2_HEAD_BYTES];
    CAIRN_TRY(cairn_up_record_encode(&record, &header, err));
    while (!file->id.file) cairn_random(&file->id.file, sizeof(file->id.file));
    file->id.node_crc = cairn_up_node_crc(node);
    cairn_up_group2_head(1, file->id.file, cairn_buf_view(&header), head);
    CAIRN_TRY(write_all(file->fd, head, sizeof(head), 0, err));
    CAIRN_TRY(write_all(file->fd, header.data, header.size, sizeof(head), err));
    file->sequence = file->touches.covers_from = 1;
    file->size = sizeof(head) + header.size;
    return CAIRN_OK;
}

enum cairn_code cairn_up_file_put(const struct cairn_up_file *file, struct cairn_view records,
                                  uint64_t *ret_head_bytes, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_UP_GROUP_BYTES_MAX};
    const struct cairn_up_head head = {.id = file->id,
                                       .sequence = file->sequence + 1,
                                       .size = records.size,
                                       .entry_last = file->index.entry_last,
                                       .records_crc = cairn_crc32c(0, records.data, records.size)};
    CAIRN_TRY(cairn_up_head_encode(&head, &file->touches, &bytes, err));
    CAIRN_TRY(write_all(file->fd, bytes.data, bytes.size, file->size, err));
    *ret_head_bytes = bytes.size;
    return write_all(file->fd, records.data, records.size, file->size + bytes.size, err);
}

void cairn_up_file_took_head(struct cairn_up_file *file, uint64_t head_bytes) {
    file->size += head_bytes;
    file->sequence++;
}

enum cairn_code cairn_up_file_took_record(struct cairn_up_file *file, uint64_t entry, bool closes,
                                          uint64_t bytes, struct cairn_error *err) {
    struct cairn_up_journal_span span = {file->size, bytes};
    file->size += bytes;
    cairn_up_touches_add(&file->touches, file->sequence, entry, closes);
    return cairn_up_journal_index_add(&file->index, entry, closes, span, err);
}

void cairn_up_file_took_group(struct cairn_up_file *file) {
    cairn_up_touches_trim(&file->touches, file->sequence);
}

/* ---- rewriting ---- */

static enum cairn_code put_one(struct cairn_up_file *to, uint64_t entry, struct cairn_view record,
                               struct cairn_error *err) {
    uint64_t head_bytes = 0;
    CAIRN_TRY(cairn_up_file_put(to, record, &head_bytes, err));
    cairn_up_file_took_head(to, head_bytes);
    CAIRN_TRY(cairn_up_file_took_record(to, entry, false, record.size, err));
    cairn_up_file_took_group(to);
    return CAIRN_OK;
}

static enum cairn_code copy_entry(const struct cairn_up_journal *journal,
                                  const struct cairn_up_journal_entry *entry,
                                  struct cairn_up_file *to, struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_UP_RECORD_BYTES_MAX + CAIRN_MIB};
    for (size_t i = 0; i < entry->count; i++) {
        struct cairn_up_journal_span span = entry->spans[i];
        cairn_buf_clear(&bytes);
        CAIRN_TRY(cairn_buf_reserve(&bytes, (size_t)span.bytes, err));
        if (pread(journal->own.fd, bytes.data, (size_t)span.bytes, (off_t)span.offset) !=
            (ssize_t)span.bytes)
            return cairn_fail(err, CAIRN_IO, "reading the journal back at %" PRIu64, span.offset);
        CAIRN_TRY(
            put_one(to, entry->entry, (struct cairn_view){bytes.data, (size_t)span.bytes}, err));
    }
    if (!entry->damaged) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(record_damaged, 0);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal");
    struct cairn_up_record record = {.entry = entry->entry, .message = message};
    cairn_buf_clear(&bytes);
    CAIRN_TRY(cairn_up_record_encode(&record, &bytes, err));
    return put_one(to, entry->entry, cairn_buf_view(&bytes), err);
}

static enum cairn_code copy_live(struct cairn_up_journal *journal, struct cairn_up_file *to,
                                 struct cairn_error *err) {
    const struct cairn_up_journal_index *index = &journal->own.index;
    CAIRN_TRY(cairn_up_file_begin(to, journal->node, err));
    to->index.entry_last = index->entry_last;
    for (size_t i = 0; i < index->count; i++)
        CAIRN_TRY(copy_entry(journal, &index->entries[i], to, err));
    return fdatasync(to->fd) ? cairn_fail_errno(err, "syncing the new journal") : CAIRN_OK;
}

enum cairn_code cairn_up_journal_rewrite(struct cairn_up_journal *journal, bool *ret_renamed,
                                         struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s.new", journal->path));
    struct cairn_up_file fresh = {
        .fd = open(name.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600)};
    if (fresh.fd < 0) return cairn_fail_errno(err, "creating %s", name.data);
    enum cairn_code code = copy_live(journal, &fresh, err);
    if (code == CAIRN_OK && rename(name.data, journal->path))
        code = cairn_fail_errno(err, "renaming %s", name.data);
    *ret_renamed = code == CAIRN_OK;
    if (code == CAIRN_OK) code = cairn_dir_sync(journal->dir_fd, err);
    if (code != CAIRN_OK) {
        cairn_up_file_release(&fresh);
        unlink(name.data);
        return code;
    }
    cairn_up_file_release(&journal->own);
    journal->own = fresh;
    return CAIRN_OK;
}

/* ---- other journals of the folder ---- */

#define END ".journal"

static bool is_journal(const char *name) {
    size_t size = strlen(name);
    return size >= sizeof(END) && !strcmp(name + size - (sizeof(END) - 1), END);
}

static bool is_held(const char *path) {
    char lock[1100];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    CAIRN_AUTO_FD fd = open(lock, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
}

void cairn_up_journal_tell_others(const char *folder, const struct cairn_up_journal_own *own) {
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1000];
        struct stat status;
        int size = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (size < 0 || (size_t)size >= sizeof(path) || !is_journal(entry->d_name) ||
            !strcmp(path, own->path) || stat(path, &status) != 0 || !status.st_size ||
            is_held(path))
            continue;
        int name = (int)(strlen(entry->d_name) - strlen(END));
        cairn_log(WARN, "journal.other_node",
                  "path=%s node=%s host=%s other_node=%.*s hint=\"it may hold saves that only an "
                  "uploader of node %.*s finishes%s\"",
                  path, own->node, own->host, name, entry->d_name, name, entry->d_name,
                  own->named ? ""
                             : "; the setting node is not set, so that this node's name is the "
                               "host name and changes with it: set node to a name that stays");
    }
    closedir(directory);
}

/* ---- what a stopped uploader has not finished ---- */

/* Grants are rights: they do not belong on a terminal. */
static enum cairn_code show_record(void *owner, const struct cairn_up_replayed *record,
                                   struct cairn_error *err) {
    (void)owner;
    json_t *message = record->message; /* borrowed, and nobody reads it afterwards */
    CAIRN_AUTO(buf) text = {0};
    json_object_del(message, "grant");
    json_object_set_new(message, "entry", json_integer((json_int_t)record->entry));
    json_object_set_new(message, "blob_bytes", json_integer((json_int_t)record->blob.size));
    CAIRN_TRY(cairn_json_show(message, &text, err));
    puts(text.data);
    return CAIRN_OK;
}

enum cairn_code cairn_up_show_journal(const struct cairn_up_places *places,
                                      struct cairn_error *err) {
    struct cairn_up_journal *journal = NULL;
    struct cairn_up_journal_options options = {
        .path = places->journal_path, .node = places->node, .replay = show_record};
    CAIRN_TRY(cairn_up_journal_open(&options, &journal, err));
    cairn_up_journal_free(journal);
    if (fflush(stdout)) return cairn_fail_errno(err, "standard output");
    return CAIRN_OK;
}
