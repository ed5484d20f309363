/* SPDX-License-Identifier: Apache-2.0 */
/* The file that groups are appended to, and its replacement by one of the live entries
 * (journal.h#4). */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/file.h"
#include "common/trace.h"
#include "uploader/journal/before.h"
#include "uploader/journal/inside.h"

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
