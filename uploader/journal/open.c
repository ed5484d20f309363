/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is there when the uploader starts. A file of an earlier format, and one that is damaged, is
 * written anew before anything is taken from it, so that what follows is told by whole records.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "common/file.h"
#include "common/log.h"
#include "uploader/journal/inside.h"
#include "uploader/journal/scan.h"

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
