/* SPDX-License-Identifier: Apache-2.0 */
/* Open: a damaged file, or an older format, is rewritten before use. Group commit: callers add
 * records to `pending` and wait; one thread writes all pending records, syncs once and completes
 * every call, while the next group gathers. */
#include "uploader/journal/journal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/file.h"
#include "common/hooks.h"
#include "common/lock.h"
#include "common/trace.h"
#include "uploader/journal/format.h"
#include "uploader/settings.h"

#define CAIRN_UP_GROUP_BYTES_MAX (256 * CAIRN_MIB)

struct cairn_up_noted { /* one written record, for the index once it is durable */
    uint64_t entry;
    bool closes, dropped;
    uint64_t bytes;
};
struct cairn_up_waiter { /* one call */
    struct cairn_up_waiter *next;
    void (*done)(void *owner, enum cairn_code code, const struct cairn_error *why);
    void *owner;
    size_t first, count; /* its range in the noted records */
    bool blocking, finished;
    enum cairn_code code;
    struct cairn_error error;
};
struct cairn_up_group {
    struct cairn_buf bytes;
    struct cairn_up_noted *noted; /* owned */
    size_t noted_count, noted_capacity;
    struct cairn_up_waiter *first, **last;
};
/* Entries that lost a record. */
struct cairn_up_broken {
    uint64_t *entries; /* owned */
    size_t count, capacity;
    bool all; /* more than the list holds, or no memory: all count */
};

struct cairn_up_file {
    int fd;
    uint64_t size, sequence; /* of the last group */
    struct cairn_up_file_id id;
    struct cairn_up_touches touches; /* for the next head */
    struct cairn_up_journal_index index;
};

struct cairn_up_journal {
    char *path, *node;
    uint64_t rewrite_bytes;
    int lock_fd, dir_fd;
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition work, progress;
    struct {
        struct cairn_up_group pending;
        struct cairn_up_broken lost; /* journal.h#6 */
        bool stopping;
        bool dozing;            /* the thread sleeps until signalled */
        bool hurried;           /* write notes now */
        bool broken;            /* journal.h#3 */
        bool failing;           /* the last write failed, and the disk is still full */
        struct cairn_error why; /* the last failure */
        uint64_t entry_last, live_count, file_bytes;
    } locked;
    struct cairn_up_file own;
    void (*lost)(void *owner, uint64_t entry, const struct cairn_error *why);
    void *owner;
    bool started;
};

/* ---- a file for appending groups ---- */

static void file_release(struct cairn_up_file *file) {
    if (file->fd >= 0) cairn_fd_close_at(&file->fd);
    cairn_up_touches_release(&file->touches);
    cairn_up_journal_index_release(&file->index);
}

static uint32_t node_crc(const char *node) {
    return cairn_crc32c(0, node, strlen(node));
}

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

/* Writes the first group of an empty file and draws its id, without sync. */
static enum cairn_code file_begin(struct cairn_up_file *file, const char *node,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message =
        CAIRN_PACK(record_journal, .format = CAIRN_UP_JOURNAL_FORMAT, .node = node);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal's header");
    struct cairn_up_record record = {.message = message};
    CAIRN_AUTO(buf) header = {0};
    uint8_t head[CAIRN_UP_GROUP2_HEAD_BYTES];
    CAIRN_TRY(cairn_up_record_encode(&record, &header, err));
    while (!file->id.file) cairn_random(&file->id.file, sizeof(file->id.file));
    file->id.node_crc = node_crc(node);
    cairn_up_group2_head(1, file->id.file, cairn_buf_view(&header), head);
    CAIRN_TRY(write_all(file->fd, head, sizeof(head), 0, err));
    CAIRN_TRY(write_all(file->fd, header.data, header.size, sizeof(head), err));
    file->sequence = file->touches.covers_from = 1;
    file->size = sizeof(head) + header.size;
    return CAIRN_OK;
}

/* Writes head and records after the last group, without sync; the caller advances the end. */
static enum cairn_code file_put(const struct cairn_up_file *file, struct cairn_view records,
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

/* Advances past a written group: its head, each record, the end. */
static void file_took_head(struct cairn_up_file *file, uint64_t head_bytes) {
    file->size += head_bytes;
    file->sequence++;
}

static enum cairn_code file_took_record(struct cairn_up_file *file, uint64_t entry, bool closes,
                                        uint64_t bytes, struct cairn_error *err) {
    struct cairn_up_journal_span span = {file->size, bytes};
    file->size += bytes;
    cairn_up_touches_add(&file->touches, file->sequence, entry, closes);
    return cairn_up_journal_index_add(&file->index, entry, closes, span, err);
}

static void file_took_group(struct cairn_up_file *file) {
    cairn_up_touches_trim(&file->touches, file->sequence);
}

static enum cairn_code put_one(struct cairn_up_file *to, uint64_t entry, struct cairn_view record,
                               struct cairn_error *err) {
    uint64_t head_bytes = 0;
    CAIRN_TRY(file_put(to, record, &head_bytes, err));
    file_took_head(to, head_bytes);
    CAIRN_TRY(file_took_record(to, entry, false, record.size, err));
    file_took_group(to);
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
    CAIRN_TRY(file_begin(to, journal->node, err));
    to->index.entry_last = index->entry_last;
    for (size_t i = 0; i < index->count; i++)
        CAIRN_TRY(copy_entry(journal, &index->entries[i], to, err));
    return fdatasync(to->fd) ? cairn_fail_errno(err, "syncing the new journal") : CAIRN_OK;
}

/* Writes the live entries to a new file and renames it to the journal's name. */
static enum cairn_code rewrite_journal(struct cairn_up_journal *journal, bool *ret_renamed,
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
        file_release(&fresh);
        unlink(name.data);
        return code;
    }
    file_release(&journal->own);
    journal->own = fresh;
    return CAIRN_OK;
}

struct open_work {
    struct cairn_up_journal *journal;
    const struct cairn_up_journal_options *options;
    bool headed, earlier; /* earlier: the header names an older format */
};

/* ---- the first pass: which entries live ---- */

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

static enum cairn_code note_damage(void *owner, const struct cairn_up_damage *damage,
                                   struct cairn_error *err) {
    struct open_work *work = owner;
    struct cairn_up_journal *journal = work->journal;
    struct cairn_up_journal_index *index = &journal->own.index;
    size_t entries = 0;
    if (!work->headed && damage->head->id.node_crc != node_crc(journal->node))
        return cairn_fail(err, CAIRN_CONFLICT, "it does not belong to node %s", journal->node);
    work->headed = true;
    index->entry_last = cairn_max_u64(index->entry_last, damage->entry_last);
    /* An entry that a lost group closed is not damaged. */
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
        ++entries;
    }
    for (size_t i = 0; !damage->known && i < index->count; i++) index->entries[i].damaged = true;
    cairn_log(ERROR, "journal.damaged",
              "path=%s offset=%" PRIu64 " bytes=%" PRIu64 " groups=%" PRIu64
              " entries=%zu may_concern=%s",
              journal->path, damage->offset, damage->end - damage->offset,
              damage->last + 1 - damage->first, damage->known ? entries : index->count,
              damage->known ? "those" : "all");
    return CAIRN_OK;
}

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
    if (!record.name) record.name = ""; /* replay rejects it and sets the entry aside */
    return work->options->replay(work->options->owner, &record, err);
}

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

/* *ret_anew: the file must be rewritten before use. */
static enum cairn_code take_file(struct open_work *work, bool *ret_anew, bool *ret_damaged,
                                 struct cairn_error *err) {
    struct cairn_up_journal *journal = work->journal;
    struct cairn_up_file *own = &journal->own;
    __attribute__((cleanup(cairn_mapped_release))) struct mapped file = {0};
    struct cairn_up_scanned scanned = {0};
    const struct cairn_up_scan_sink sink = {index_one, note_damage, work};
    CAIRN_TRY(map_file(own->fd, &file, err));
    enum cairn_code code =
        cairn_up_journal_scan(file.view, node_crc(journal->node), &sink, &scanned, err);
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

/* ---- records of a stopped uploader ---- */

/* Grants are credentials and must not be printed. */
static enum cairn_code show_record(void *owner, const struct cairn_up_replayed *record,
                                   struct cairn_error *err) {
    (void)owner;
    json_t *message = record->message; /* borrowed, and not read afterwards */
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

/* ---- groups of records ---- */

#define NOTED_MAX (CAIRN_UP_GROUP_BYTES_MAX / CAIRN_UP_RECORD_HEAD_BYTES)
#define BROKEN_MAX (1 << 20)

static bool broken_has(const struct cairn_up_broken *broken, uint64_t entry) {
    for (size_t i = 0; i < broken->count; i++) {
        if (broken->entries[i] == entry) return true;
    }
    return broken->all;
}

/* False: the entry was already in the list. */
static bool broken_add(struct cairn_up_broken *broken, uint64_t entry) {
    if (broken_has(broken, entry)) return false;
    if (CAIRN_ARRAY_ROOM(broken->entries, broken->count, broken->capacity, BROKEN_MAX,
                         "broken entries", NULL)) {
        broken->all = true;
        return true;
    }
    broken->entries[broken->count++] = entry;
    return true;
}

static void group_init(struct cairn_up_group *ret) {
    *ret = (struct cairn_up_group){.bytes = {.limit = CAIRN_UP_GROUP_BYTES_MAX}};
}

static void group_release(struct cairn_up_group *group) {
    cairn_buf_release(&group->bytes);
    free(group->noted);
}

static enum cairn_code note_record(struct cairn_up_group *group,
                                   const struct cairn_up_record *record, uint64_t bytes,
                                   struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(group->noted, group->noted_count, group->noted_capacity, NOTED_MAX,
                               "records in a group of the journal", err));
    group->noted[group->noted_count++] =
        (struct cairn_up_noted){record->entry, record->closes, false, bytes};
    return CAIRN_OK;
}

static void group_drop(struct cairn_up_group *group, const struct cairn_up_broken *broken) {
    size_t from = 0, to = 0;
    for (size_t i = 0; i < group->noted_count; i++) {
        struct cairn_up_noted *noted = &group->noted[i];
        CAIRN_ASSERT(from + noted->bytes <= group->bytes.size);
        noted->dropped = !noted->closes && broken_has(broken, noted->entry);
        if (!noted->dropped) {
            memmove(group->bytes.data + to, group->bytes.data + from, (size_t)noted->bytes);
            to += (size_t)noted->bytes;
        }
        from += (size_t)noted->bytes;
    }
    group->bytes.size = to;
}

/* True when a record of the waiter's call was dropped. */
static bool group_lost(const struct cairn_up_group *group, const struct cairn_up_waiter *waiter) {
    for (size_t i = 0; i < waiter->count; i++) {
        if (group->noted[waiter->first + i].dropped) return true;
    }
    return false;
}

#define WRITE_AGAIN_MS 2000 /* a full disk is retried so long: a stall, not a lost save */
#define WRITE_PAUSE_MS 20
#define ROOM_LOOK_MS 1000
#define ROOM_BYTES 4096
#define NOTE_MS 10 /* how long a note may wait for other records */

static enum cairn_code open_folder(struct cairn_up_journal *journal, struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s.lock", journal->path));
    CAIRN_TRY(cairn_file_lock(name.data, &journal->lock_fd, err));
    const char *slash = strrchr(journal->path, '/');
    cairn_buf_clear(&name);
    size_t length = slash && slash != journal->path ? (size_t)(slash - journal->path) : 1;
    CAIRN_TRY(cairn_buf_append(&name, slash ? journal->path : ".", length, err));
    journal->dir_fd = open(name.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (journal->dir_fd < 0) return cairn_fail_errno(err, "opening the journal's folder");
    return CAIRN_OK;
}

static void *journal_main(void *argument);

static enum cairn_code prepare(struct cairn_up_journal *journal,
                               const struct cairn_up_journal_options *options,
                               struct cairn_error *err) {
    journal->path = strdup(options->path);
    journal->node = strdup(options->node);
    if (!journal->path || !journal->node)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal");
    CAIRN_TRY(open_folder(journal, err));
    /* Opens or creates journal->path and replays it. */
    struct open_work work = {.journal = journal, .options = options};
    bool anew = false, damaged = false;
    journal->own.fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal->own.fd < 0) return cairn_fail_errno(err, "opening the journal");
    CAIRN_TRY(take_file(&work, &anew, &damaged, err));
    if (anew) {
        /* Keeps a hard link to the damaged file beside the journal, for diagnosis. */
        CAIRN_AUTO(buf) kept = {0};
        bool renamed = false;
        CAIRN_TRY(cairn_buf_printf(&kept, err, "%s.damaged", journal->path));
        if (damaged && unlink(kept.data) && errno != ENOENT)
            return cairn_fail_errno(err, "removing %s", kept.data);
        if (damaged && link(journal->path, kept.data))
            return cairn_fail_errno(err, "keeping the damaged journal as %s", kept.data);
        CAIRN_TRY(rewrite_journal(journal, &renamed, err));
    }
    if (!work.headed) CAIRN_TRY(file_begin(&journal->own, journal->node, err));
    if (fdatasync(journal->own.fd)) return cairn_fail_errno(err, "syncing the journal");
    CAIRN_TRY(cairn_dir_sync(journal->dir_fd, err));
    CAIRN_TRY(replay_file(&work, err));
    journal->locked.entry_last = journal->own.index.entry_last;
    journal->locked.live_count = journal->own.index.count;
    journal->locked.file_bytes = journal->own.size;
    if (pthread_create(&journal->thread, NULL, journal_main, journal))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread for the journal");
    journal->started = true;
    return CAIRN_OK;
}

enum cairn_code cairn_up_journal_open(const struct cairn_up_journal_options *options,
                                      struct cairn_up_journal **ret, struct cairn_error *err) {
    struct cairn_up_journal *journal = calloc(1, sizeof(*journal));
    if (!journal) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal");
    journal->lock_fd = journal->dir_fd = journal->own.fd = -1;
    journal->rewrite_bytes =
        options->rewrite_bytes ? options->rewrite_bytes : CAIRN_UP_JOURNAL_REWRITE_BYTES;
    cairn_lock_init(&journal->lock, CAIRN_LOCK_journal);
    cairn_condition_init(&journal->work);
    cairn_condition_init(&journal->progress);
    group_init(&journal->locked.pending);
    journal->lost = options->lost;
    journal->owner = options->lost_owner;
    enum cairn_code code = prepare(journal, options, err);
    if (code != CAIRN_OK) {
        cairn_within(err, code, "journal %s", options->path);
        cairn_up_journal_free(journal);
        return code;
    }
    *ret = journal;
    return CAIRN_OK;
}

void cairn_up_journal_free(struct cairn_up_journal *journal) {
    if (!journal) return;
    if (journal->started) {
        cairn_lock_take(&journal->lock);
        journal->locked.stopping = true;
        cairn_condition_signal(&journal->work);
        cairn_lock_give(&journal->lock);
        pthread_join(journal->thread, NULL);
    }
    group_release(&journal->locked.pending);
    free(journal->locked.lost.entries);
    journal->locked.lost = (struct cairn_up_broken){0};
    file_release(&journal->own);
    if (journal->dir_fd >= 0) close(journal->dir_fd);
    if (journal->lock_fd >= 0) close(journal->lock_fd);
    cairn_condition_release(&journal->progress);
    cairn_condition_release(&journal->work);
    cairn_lock_release(&journal->lock);
    free(journal->node);
    free(journal->path);
    free(journal);
}

uint64_t cairn_up_journal_entry_new(struct cairn_up_journal *journal) {
    CAIRN_HOLD(&journal->lock);
    return ++journal->locked.entry_last;
}

uint64_t cairn_up_journal_live_count(struct cairn_up_journal *journal) {
    CAIRN_HOLD(&journal->lock);
    return journal->locked.live_count;
}

uint64_t cairn_up_journal_bytes(struct cairn_up_journal *journal) {
    CAIRN_HOLD(&journal->lock);
    return journal->locked.file_bytes;
}

enum cairn_code cairn_up_journal_trouble(struct cairn_up_journal *journal,
                                         struct cairn_error *ret) {
    CAIRN_HOLD(&journal->lock);
    if (!journal->locked.broken && !journal->locked.failing) return CAIRN_OK;
    *ret = journal->locked.why;
    return cairn_within(ret, journal->locked.why.code,
                        journal->locked.broken ? "the journal cannot be written any more"
                                               : "the journal cannot be written");
}

/* Adds all records of the call or none. The lock is held. */
static enum cairn_code gather(struct cairn_up_journal *journal,
                              const struct cairn_up_record *records, size_t count,
                              struct cairn_error *err) {
    if (journal->locked.broken) {
        if (err) *err = journal->locked.why;
        return cairn_within(err, journal->locked.why.code,
                            "the journal cannot be written any more");
    }
    for (size_t i = 0; i < count && CAIRN_RULE(Q45); i++) {
        if (records[i].closes || !broken_has(&journal->locked.lost, records[i].entry)) continue;
        if (err) *err = journal->locked.why;
        return cairn_within(err, journal->locked.why.code,
                            "an earlier record of the save could not be written");
    }
    struct cairn_up_group *group = &journal->locked.pending;
    size_t bytes_before = group->bytes.size, noted_before = group->noted_count;
    for (size_t i = 0; i < count; i++) {
        size_t from = group->bytes.size;
        enum cairn_code code = cairn_up_record_encode(&records[i], &group->bytes, err);
        if (code == CAIRN_OK) code = note_record(group, &records[i], group->bytes.size - from, err);
        if (code != CAIRN_OK) {
            group->bytes.size = bytes_before;
            group->noted_count = noted_before;
            return code;
        }
    }
    return CAIRN_OK;
}

static void wait_in(struct cairn_up_journal *journal, struct cairn_up_waiter *waiter) {
    struct cairn_up_group *group = &journal->locked.pending;
    CAIRN_ASSERT(waiter->count <= group->noted_count);
    waiter->first = group->noted_count - waiter->count;
    if (!group->first) group->last = &group->first;
    *group->last = waiter;
    group->last = &waiter->next;
    cairn_condition_signal(&journal->work);
}

enum cairn_code cairn_up_journal_append(struct cairn_up_journal *journal,
                                        const struct cairn_up_record *records, size_t count,
                                        struct cairn_error *err) {
    struct cairn_up_waiter waiter = {.blocking = true, .count = count};
    CAIRN_HOLD(&journal->lock);
    CAIRN_TRY(gather(journal, records, count, err));
    wait_in(journal, &waiter);
    while (!waiter.finished) {
        (void)cairn_condition_wait(&journal->progress, &journal->lock, UINT64_MAX);
    }
    if (waiter.code != CAIRN_OK && err) *err = waiter.error;
    return waiter.code;
}

enum cairn_code cairn_up_journal_post(struct cairn_up_journal *journal,
                                      const struct cairn_up_record *records, size_t count,
                                      void (*done)(void *owner, enum cairn_code code,
                                                   const struct cairn_error *why),
                                      void *owner, struct cairn_error *err) {
    struct cairn_up_waiter *waiter = NULL;
    if (done) {
        waiter = calloc(1, sizeof(*waiter));
        if (!waiter) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal");
        waiter->done = done;
        waiter->owner = owner;
        waiter->count = count;
    }
    CAIRN_HOLD(&journal->lock);
    enum cairn_code code = gather(journal, records, count, err);
    if (code != CAIRN_OK) {
        free(waiter);
        return code;
    }
    if (waiter)
        wait_in(journal, waiter);
    else if (journal->locked.dozing)
        cairn_condition_signal(&journal->work);
    return CAIRN_OK;
}

void cairn_up_journal_note(struct cairn_up_journal *journal, const struct cairn_up_record *records,
                           size_t count) {
    struct cairn_error error = {0};
    if (cairn_up_journal_post(journal, records, count, NULL, NULL, &error) != CAIRN_OK)
        cairn_log(ERROR, "journal.post", "entry=%" PRIu64 " cause=\"%s\"", records[0].entry,
                  error.message);
}

void cairn_up_journal_close(struct cairn_up_journal *journal, uint64_t entry,
                            json_t *take_message) {
    const struct cairn_up_record record = {.entry = entry, .closes = true, .message = take_message};
    cairn_up_journal_note(journal, &record, 1);
    json_decref(take_message);
}

void cairn_up_journal_hurry(struct cairn_up_journal *journal) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.hurried = true;
    cairn_condition_signal(&journal->work);
}

static void break_journal(struct cairn_up_journal *journal, const struct cairn_error *why) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.broken = true;
    journal->locked.why = *why;
}

static bool is_full(const struct cairn_error *why) {
    return why->os_errno && cairn_code_from_errno(why->os_errno) == CAIRN_NO_SPACE;
}

/* Retries a full disk, which often has room soon; each failed try leaves the file unchanged. */
static enum cairn_code put_again(struct cairn_up_journal *journal, struct cairn_view records,
                                 uint64_t *ret_head_bytes, struct cairn_error *err) {
    uint64_t until_ms = cairn_mono_ms() + WRITE_AGAIN_MS;
    for (;;) {
        enum cairn_code code = file_put(&journal->own, records, ret_head_bytes, err);
        if (code == CAIRN_OK) return CAIRN_OK;
        if (ftruncate(journal->own.fd, (off_t)journal->own.size)) {
            break_journal(journal, err);
            return code;
        }
        if (!is_full(err) || cairn_mono_ms() >= until_ms) return code;
        (void)poll(NULL, 0, WRITE_PAUSE_MS);
    }
}

static void note_failing(struct cairn_up_journal *journal, bool failing) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.failing = failing;
}

/* Probes for room: appends zeros and truncates them. Dying between leaves a torn tail. */
static void look_for_room(struct cairn_up_journal *journal) {
    static const char zeros[ROOM_BYTES];
    const struct cairn_up_file *own = &journal->own;
    bool room = pwrite(own->fd, zeros, sizeof zeros, (off_t)own->size) == (ssize_t)sizeof zeros;
    struct cairn_error why = {0};
    if (ftruncate(own->fd, (off_t)own->size)) {
        (void)cairn_fail_errno(&why, "cutting the journal");
        break_journal(journal, &why);
    }
    if (room) note_failing(journal, false);
}

static enum cairn_code write_group(struct cairn_up_journal *journal,
                                   const struct cairn_up_group *group, uint64_t *ret_head_bytes,
                                   struct cairn_error *err) {
    CAIRN_TRY(put_again(journal, cairn_buf_view(&group->bytes), ret_head_bytes, err));
    bool broken = cairn_crashpoint_fails("uploader.journal.sync");
    if (broken) errno = EIO;
    if (!broken && fdatasync(journal->own.fd) == 0) return CAIRN_OK;
    enum cairn_code code = cairn_fail_errno(err, "syncing the journal");
    break_journal(journal, err);
    return code;
}

static void index_group(struct cairn_up_journal *journal, const struct cairn_up_group *group,
                        uint64_t head_bytes) {
    file_took_head(&journal->own, head_bytes);
    for (size_t i = 0; i < group->noted_count; i++) {
        const struct cairn_up_noted *noted = &group->noted[i];
        struct cairn_error error;
        if (noted->dropped) continue;
        if (file_took_record(&journal->own, noted->entry, noted->closes, noted->bytes, &error) !=
            CAIRN_OK) {
            /* The group is durable, but a rewrite would drop it: the journal must fail. */
            cairn_log(ERROR, "journal.index", "cause=\"%s\"", error.message);
            break_journal(journal, &error);
        }
        if (noted->closes) {
            CAIRN_HOLD(&journal->lock);
            struct cairn_up_broken *broken = &journal->locked.lost;
            for (size_t k = 0; k < broken->count; k++) {
                if (broken->entries[k] == noted->entry)
                    broken->entries[k--] = broken->entries[--broken->count];
            }
        }
    }
    file_took_group(&journal->own);
}

/* journal.h#6: entries of a lost group take no further records. */
static void lose_group(struct cairn_up_journal *journal, const struct cairn_up_group *group,
                       const struct cairn_error *why) {
    for (size_t i = 0; i < group->noted_count; i++) {
        const struct cairn_up_noted *noted = &group->noted[i];
        cairn_lock_take(&journal->lock);
        journal->locked.why = *why;
        bool fresh = !noted->closes && broken_add(&journal->locked.lost, noted->entry);
        cairn_lock_give(&journal->lock);
        if (fresh && journal->lost && CAIRN_RULE(Q45))
            journal->lost(journal->owner, noted->entry, why);
    }
}

static void tell_waiters(struct cairn_up_journal *journal, struct cairn_up_group *group,
                         enum cairn_code code, const struct cairn_error *why) {
    struct cairn_up_waiter *late = NULL, **end = &late;
    cairn_lock_take(&journal->lock);
    for (struct cairn_up_waiter *waiter = group->first, *next; waiter; waiter = next) {
        next = waiter->next;
        bool lost = code == CAIRN_OK && group_lost(group, waiter);
        waiter->error = lost ? journal->locked.why : *why;
        waiter->code = lost ? journal->locked.why.code : code;
        if (waiter->blocking) {
            waiter->finished = true; /* the waiter's memory is invalid once the lock is released */
            continue;
        }
        waiter->next = NULL;
        *end = waiter;
        end = &waiter->next;
    }
    journal->locked.live_count = journal->own.index.count;
    journal->locked.file_bytes = journal->own.size;
    cairn_condition_broadcast(&journal->progress);
    cairn_lock_give(&journal->lock);
    while (late) {
        struct cairn_up_waiter *waiter = late;
        late = waiter->next;
        waiter->done(waiter->owner, waiter->code, &waiter->error);
        free(waiter);
    }
}

static void rewrite_if_worth(struct cairn_up_journal *journal, bool stopping) {
    const struct cairn_up_journal_index *index = &journal->own.index;
    bool empty = !index->count && (stopping || journal->own.size > CAIRN_UP_JOURNAL_EMPTY_BYTES);
    bool dead =
        journal->own.size > journal->rewrite_bytes && index->live_bytes < journal->own.size / 2;
    if (!empty && !dead) return;
    struct cairn_error error;
    bool renamed = false;
    if (rewrite_journal(journal, &renamed, &error) != CAIRN_OK) {
        cairn_log(ERROR, "journal.rewrite", "path=%s cause=\"%s\"", journal->path, error.message);
        if (!renamed) return; /* the old file is intact and stays in use */
        /* A power cut could leave either file: journal.h#3. */
        break_journal(journal, &error);
        return;
    }
    cairn_lock_take(&journal->lock);
    journal->locked.file_bytes = journal->own.size;
    cairn_lock_give(&journal->lock);
}

/* Waits for a caller that waits, or until a note is NOTE_MS old: an own sync of notes would delay
 * the next seal. Within NOTE_MS of a group the thread polls for notes, so that posting needs no
 * wake-up. While writes fail it returns every ROOM_LOOK_MS without work. The lock is held. */
static void await_work(struct cairn_up_journal *journal) {
    uint64_t until_ms = cairn_mono_ms() + NOTE_MS;
    bool dozing = false;
    while (!journal->locked.pending.first && !journal->locked.hurried &&
           !journal->locked.stopping) {
        journal->locked.dozing = dozing;
        bool woken = cairn_condition_wait(&journal->work, &journal->lock, until_ms);
        if (!woken && (dozing || journal->locked.pending.bytes.size)) break;
        if (!woken)
            until_ms = journal->locked.failing ? cairn_mono_ms() + ROOM_LOOK_MS : UINT64_MAX;
        else if (dozing)
            until_ms = cairn_mono_ms() + NOTE_MS;
        dozing = !woken;
    }
    journal->locked.dozing = journal->locked.hurried = false;
}

static void *journal_main(void *argument) {
    struct cairn_up_journal *journal = argument;
    bool stopping = false;
    while (!stopping) {
        struct cairn_up_group group;
        cairn_lock_take(&journal->lock);
        await_work(journal);
        group = journal->locked.pending;
        if (group.first) *group.last = NULL;
        group_init(&journal->locked.pending);
        if (journal->locked.lost.count && CAIRN_RULE(Q45))
            group_drop(&group, &journal->locked.lost);
        stopping = journal->locked.stopping;
        bool broken = journal->locked.broken, failing = journal->locked.failing;
        struct cairn_error error = journal->locked.why;
        cairn_lock_give(&journal->lock);
        enum cairn_code code = broken ? error.code : CAIRN_OK;
        uint64_t head_bytes = 0;
        if (code == CAIRN_OK && group.bytes.size)
            code = write_group(journal, &group, &head_bytes, &error);
        if (code == CAIRN_OK && group.bytes.size) index_group(journal, &group, head_bytes);
        if (code != CAIRN_OK && !broken)
            cairn_log(ERROR, "journal.write", "path=%s cause=\"%s\"", journal->path, error.message);
        if (group.bytes.size)
            note_failing(journal, code != CAIRN_OK);
        else if (failing && !broken && !stopping)
            look_for_room(journal);
        if (code != CAIRN_OK) lose_group(journal, &group, &error);
        tell_waiters(journal, &group, code, &error);
        group_release(&group);
        if (code == CAIRN_OK) rewrite_if_worth(journal, stopping);
    }
    return NULL;
}
