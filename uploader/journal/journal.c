/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group commit: whoever has records appends them to `pending` and waits for its sequence number;
 * the one writing thread takes all that is pending, writes, syncs once and tells everybody. While
 * it syncs, the next group gathers.
 */
#include "uploader/journal/journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/rule.h"
#include "uploader/journal/group.h"

#define JOURNAL_FORMAT 2
#define JOURNAL_FORMAT_BEFORE 1 /* records without groups; read, and rewritten at once */
#define WRITE_AGAIN_MS 2000     /* a disk that is full for a moment costs a stall, not a save */
#define WRITE_PAUSE_MS 20

struct cairn_up_journal {
    char *path, *node;
    uint64_t rewrite_bytes;
    int lock_fd, dir_fd;
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition work, progress;
    struct {
        struct cairn_up_group pending;
        struct cairn_up_broken lost; /* J6 */
        bool stopping;
        bool broken;            /* J3 */
        struct cairn_error why; /* the last failure */
        uint64_t entry_last, live_count, file_bytes;
    } locked;
    struct { /* the writing thread's (open's before it starts) */
        int fd;
        uint64_t size, sequence;
        struct cairn_up_journal_index index;
    } own;
    void (*lost)(void *owner, uint64_t entry, const struct cairn_error *why);
    void *owner;
    bool started;
};

/* ---- opening ---- */

struct opening {
    struct cairn_up_journal *journal;
    const struct cairn_up_journal_options *options;
    struct cairn_view file;
    bool headed;
    uint64_t format;
};

static enum cairn_code check_header(struct opening *opening, const json_t *message,
                                    struct cairn_error *err) {
    const char *name = NULL, *node = NULL;
    uint64_t format = 0;
    const struct cairn_json_field fields[] = {
        {"t", CAIRN_JSON_TEXT, true, &name, 0},
        {"format", CAIRN_JSON_U64, true, &format, 0},
        {"node", CAIRN_JSON_TEXT, true, &node, 0},
    };
    CAIRN_TRY(cairn_json_read(message, "", fields, CAIRN_COUNT(fields), true, err));
    if (strcmp(name, "journal") != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "it does not begin with its header");
    if (format != JOURNAL_FORMAT && format != JOURNAL_FORMAT_BEFORE)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "it has format %" PRIu64 ", this build reads %d and %d", format,
                          JOURNAL_FORMAT_BEFORE, JOURNAL_FORMAT);
    opening->format = format;
    if (strcmp(node, opening->options->node) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "it belongs to node %s, this is %s", node,
                          opening->options->node);
    opening->headed = true;
    return CAIRN_OK;
}

static enum cairn_code index_one(void *owner, const struct cairn_up_record_found *found,
                                 struct cairn_error *err) {
    struct opening *opening = owner;
    if (opening->headed)
        return cairn_up_journal_index_add(&opening->journal->own.index, found->entry, found->closes,
                                          found->span, err);
    CAIRN_AUTO_JSON json_t *message = NULL;
    CAIRN_TRY(cairn_json_parse(found->json, (struct cairn_json_limits){0}, &message, err));
    return check_header(opening, message, err);
}

static bool is_live(const struct cairn_up_journal_index *index, uint64_t entry) {
    for (size_t i = 0; i < index->count; i++) {
        if (index->entries[i].entry == entry) return true;
    }
    return false;
}

static enum cairn_code replay_one(void *owner, const struct cairn_up_record_found *found,
                                  struct cairn_error *err) {
    struct opening *opening = owner;
    if (!opening->options->replay || !is_live(&opening->journal->own.index, found->entry))
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
    return opening->options->replay(opening->options->owner, &record, err);
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

static enum cairn_code header_encode(const struct cairn_up_journal *journal, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *message = json_pack("{s:s, s:i, s:s}", "t", "journal", "format",
                                                JOURNAL_FORMAT, "node", journal->node);
    if (!message) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the journal's header");
    struct cairn_up_record record = {.message = message};
    return cairn_up_record_encode(&record, ret, err);
}

/* One group: its head, then the records. */
static enum cairn_code put_group(int fd, uint64_t sequence, struct cairn_view records,
                                 uint64_t offset, struct cairn_error *err) {
    uint8_t head[CAIRN_UP_GROUP_HEAD_BYTES];
    cairn_up_group_head(sequence, records, head);
    CAIRN_TRY(write_all(fd, head, sizeof(head), offset, err));
    return write_all(fd, records.data, records.size, offset + sizeof(head), err);
}

static enum cairn_code read_file(struct opening *opening, struct cairn_error *err) {
    struct cairn_up_journal *journal = opening->journal;
    uint64_t end = 0;
    if (opening->file.size) {
        struct cairn_up_scanned scanned = {0};
        CAIRN_TRY(cairn_up_journal_scan(opening->file, index_one, opening, &scanned, err));
        end = scanned.end;
        journal->own.sequence = scanned.sequence;
        CAIRN_TRY(cairn_up_journal_scan(opening->file, replay_one, opening, &scanned, err));
        if (end < opening->file.size) {
            cairn_log(WARN, "journal.torn_tail", "path=%s kept=%" PRIu64 " cut=%zu", journal->path,
                      end, (size_t)(opening->file.size - end));
            if (ftruncate(journal->own.fd, (off_t)end))
                return cairn_fail_errno(err, "cutting the journal's torn tail");
        }
    }
    if (!opening->headed) {
        CAIRN_AUTO(buf) header = {0};
        CAIRN_TRY(header_encode(journal, &header, err));
        CAIRN_TRY(put_group(journal->own.fd, 1, cairn_buf_view(&header), 0, err));
        journal->own.sequence = 1;
        end = CAIRN_UP_GROUP_HEAD_BYTES + header.size;
    }
    if (fdatasync(journal->own.fd)) return cairn_fail_errno(err, "syncing the journal");
    CAIRN_TRY(cairn_dir_sync(journal->dir_fd, err));
    journal->own.size = end;
    return CAIRN_OK;
}

static enum cairn_code rewrite(struct cairn_up_journal *journal, bool *ret_renamed,
                               struct cairn_error *err);

static enum cairn_code open_file(struct cairn_up_journal *journal,
                                 const struct cairn_up_journal_options *options,
                                 struct cairn_error *err) {
    journal->own.fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal->own.fd < 0) return cairn_fail_errno(err, "opening the journal");
    struct stat status;
    if (fstat(journal->own.fd, &status)) return cairn_fail_errno(err, "looking at the journal");
    struct opening opening = {.journal = journal, .options = options};
    void *mapped = NULL;
    if (status.st_size > 0) {
        mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, journal->own.fd, 0);
        if (mapped == MAP_FAILED) return cairn_fail_errno(err, "mapping the journal");
        opening.file = (struct cairn_view){mapped, (size_t)status.st_size};
    }
    enum cairn_code code = read_file(&opening, err);
    if (mapped) munmap(mapped, (size_t)status.st_size);
    bool renamed = false;
    if (code == CAIRN_OK && opening.format == JOURNAL_FORMAT_BEFORE)
        code = rewrite(journal, &renamed, err);
    return code;
}

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
    CAIRN_TRY(open_file(journal, options, err));
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
    cairn_up_group_init(&journal->locked.pending);
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
    cairn_up_group_release(&journal->locked.pending);
    cairn_up_broken_release(&journal->locked.lost);
    cairn_up_journal_index_release(&journal->own.index);
    if (journal->own.fd >= 0) close(journal->own.fd);
    if (journal->dir_fd >= 0) close(journal->dir_fd);
    if (journal->lock_fd >= 0) close(journal->lock_fd);
    cairn_condition_release(&journal->progress);
    cairn_condition_release(&journal->work);
    cairn_lock_release(&journal->lock);
    free(journal->node);
    free(journal->path);
    free(journal);
}

/* ---- asking ---- */

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

/* All records of the call or none. The lock is held. */
static enum cairn_code gather(struct cairn_up_journal *journal,
                              const struct cairn_up_record *records, size_t count,
                              struct cairn_error *err) {
    if (journal->locked.broken) {
        if (err) *err = journal->locked.why;
        return cairn_within(err, journal->locked.why.code,
                            "the journal cannot be written any more");
    }
    for (size_t i = 0; i < count && CAIRN_RULE(Q45); i++) {
        if (records[i].closes || !cairn_up_broken_has(&journal->locked.lost, records[i].entry))
            continue;
        if (err) *err = journal->locked.why;
        return cairn_within(err, journal->locked.why.code,
                            "an earlier record of the save could not be written");
    }
    return cairn_up_group_add(&journal->locked.pending, records, count, err);
}

static void wait_in(struct cairn_up_journal *journal, struct cairn_up_waiter *waiter) {
    cairn_up_group_wait(&journal->locked.pending, waiter);
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
    else
        cairn_condition_signal(&journal->work);
    return CAIRN_OK;
}

/* ---- writing ---- */

static void break_journal(struct cairn_up_journal *journal, const struct cairn_error *why) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.broken = true;
    journal->locked.why = *why;
}

static bool is_full(const struct cairn_error *why) {
    return why->os_errno == ENOSPC || why->os_errno == EDQUOT || why->os_errno == EFBIG;
}

/* A full disk often has room again within moments; the file is as before after each try. */
static enum cairn_code put_again(struct cairn_up_journal *journal, struct cairn_view records,
                                 struct cairn_error *err) {
    uint64_t until_ms = cairn_mono_ms() + WRITE_AGAIN_MS;
    for (;;) {
        enum cairn_code code =
            put_group(journal->own.fd, journal->own.sequence + 1, records, journal->own.size, err);
        if (code == CAIRN_OK) return CAIRN_OK;
        if (ftruncate(journal->own.fd, (off_t)journal->own.size)) {
            break_journal(journal, err);
            return code;
        }
        if (!is_full(err) || cairn_mono_ms() >= until_ms) return code;
        (void)poll(NULL, 0, WRITE_PAUSE_MS);
    }
}

static enum cairn_code write_group(struct cairn_up_journal *journal,
                                   const struct cairn_up_group *group, struct cairn_error *err) {
    CAIRN_TRY(put_again(journal, cairn_buf_view(&group->bytes), err));
    if (fdatasync(journal->own.fd) == 0) return CAIRN_OK;
    enum cairn_code code = cairn_fail_errno(err, "syncing the journal");
    break_journal(journal, err);
    return code;
}

static void index_group(struct cairn_up_journal *journal, const struct cairn_up_group *group) {
    journal->own.size += CAIRN_UP_GROUP_HEAD_BYTES;
    journal->own.sequence++;
    for (size_t i = 0; i < group->noted_count; i++) {
        const struct cairn_up_noted *noted = &group->noted[i];
        struct cairn_up_journal_span span = {journal->own.size, noted->bytes};
        struct cairn_error error;
        if (noted->dropped) continue;
        if (cairn_up_journal_index_add(&journal->own.index, noted->entry, noted->closes, span,
                                       &error) != CAIRN_OK) {
            /* It is on the disk, but a rewrite would leave it out: nothing more may be promised. */
            cairn_log(ERROR, "journal.index", "cause=\"%s\"", error.message);
            break_journal(journal, &error);
        }
        if (noted->closes) {
            CAIRN_HOLD(&journal->lock);
            cairn_up_broken_remove(&journal->locked.lost, noted->entry);
        }
        journal->own.size += noted->bytes;
    }
}

/* J6: what the group was to say of these entries is lost, so nothing more is written of them. */
static void lose_group(struct cairn_up_journal *journal, const struct cairn_up_group *group,
                       const struct cairn_error *why) {
    for (size_t i = 0; i < group->noted_count; i++) {
        const struct cairn_up_noted *noted = &group->noted[i];
        cairn_lock_take(&journal->lock);
        journal->locked.why = *why;
        bool fresh = !noted->closes && cairn_up_broken_add(&journal->locked.lost, noted->entry);
        cairn_lock_give(&journal->lock);
        if (fresh && journal->lost && CAIRN_RULE(Q45))
            journal->lost(journal->owner, noted->entry, why);
    }
}

static void tell(struct cairn_up_journal *journal, struct cairn_up_group *group,
                 enum cairn_code code, const struct cairn_error *why) {
    struct cairn_up_waiter *late = NULL, **end = &late;
    cairn_lock_take(&journal->lock);
    for (struct cairn_up_waiter *waiter = group->first, *next; waiter; waiter = next) {
        next = waiter->next;
        bool lost = code == CAIRN_OK && cairn_up_group_lost(group, waiter);
        waiter->error = lost ? journal->locked.why : *why;
        waiter->code = lost ? journal->locked.why.code : code;
        if (waiter->blocking) {
            waiter->finished = true; /* its memory is gone once the lock is given */
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

/* ---- rewriting (J4) ---- */

static enum cairn_code copy_live(struct cairn_up_journal *journal, int to, uint64_t *ret_size,
                                 uint64_t *ret_sequence, struct cairn_up_journal_index *ret_index,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = CAIRN_UP_RECORD_BYTES_MAX + CAIRN_MIB};
    CAIRN_TRY(header_encode(journal, &bytes, err));
    CAIRN_TRY(put_group(to, 1, cairn_buf_view(&bytes), 0, err));
    uint64_t size = CAIRN_UP_GROUP_HEAD_BYTES + bytes.size;
    *ret_sequence = 1;
    const struct cairn_up_journal_index *index = &journal->own.index;
    for (size_t i = 0; i < index->count; i++) {
        for (size_t k = 0; k < index->entries[i].count; k++) {
            struct cairn_up_journal_span span = index->entries[i].spans[k];
            cairn_buf_clear(&bytes);
            CAIRN_TRY(cairn_buf_reserve(&bytes, (size_t)span.bytes, err));
            if (pread(journal->own.fd, bytes.data, (size_t)span.bytes, (off_t)span.offset) !=
                (ssize_t)span.bytes)
                return cairn_fail(err, CAIRN_IO, "reading the journal back at %" PRIu64,
                                  span.offset);
            struct cairn_view record = {bytes.data, (size_t)span.bytes};
            CAIRN_TRY(put_group(to, ++*ret_sequence, record, size, err));
            size += CAIRN_UP_GROUP_HEAD_BYTES;
            struct cairn_up_journal_span there = {size, span.bytes};
            CAIRN_TRY(
                cairn_up_journal_index_add(ret_index, index->entries[i].entry, false, there, err));
            size += span.bytes;
        }
    }
    ret_index->entry_last = index->entry_last;
    *ret_size = size;
    return fdatasync(to) ? cairn_fail_errno(err, "syncing the new journal") : CAIRN_OK;
}

static enum cairn_code rewrite(struct cairn_up_journal *journal, bool *ret_renamed,
                               struct cairn_error *err) {
    CAIRN_AUTO(buf) name = {0};
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s.new", journal->path));
    CAIRN_AUTO_FD fd = open(name.data, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return cairn_fail_errno(err, "creating %s", name.data);
    struct cairn_up_journal_index index = {0};
    uint64_t size = 0, sequence = 0;
    enum cairn_code code = copy_live(journal, fd, &size, &sequence, &index, err);
    if (code == CAIRN_OK && rename(name.data, journal->path))
        code = cairn_fail_errno(err, "renaming %s", name.data);
    *ret_renamed = code == CAIRN_OK;
    if (code == CAIRN_OK) code = cairn_dir_sync(journal->dir_fd, err);
    if (code != CAIRN_OK) {
        cairn_up_journal_index_release(&index);
        unlink(name.data);
        return code;
    }
    close(journal->own.fd);
    journal->own.fd = fd;
    fd = -1;
    journal->own.size = size;
    journal->own.sequence = sequence;
    cairn_up_journal_index_release(&journal->own.index);
    journal->own.index = index;
    return CAIRN_OK;
}

static void rewrite_if_worth(struct cairn_up_journal *journal, bool stopping) {
    const struct cairn_up_journal_index *index = &journal->own.index;
    bool empty = !index->count && (stopping || journal->own.size > CAIRN_UP_JOURNAL_EMPTY_BYTES);
    bool dead =
        journal->own.size > journal->rewrite_bytes && index->live_bytes < journal->own.size / 2;
    if (!empty && !dead) return;
    struct cairn_error error;
    bool renamed = false;
    if (rewrite(journal, &renamed, &error) != CAIRN_OK) {
        cairn_log(ERROR, "journal.rewrite", "path=%s cause=\"%s\"", journal->path, error.message);
        if (!renamed) return; /* the old file is whole and goes on */
        /* Which of the two a power cut would leave is unknown: J3. */
        break_journal(journal, &error);
        return;
    }
    cairn_lock_take(&journal->lock);
    journal->locked.file_bytes = journal->own.size;
    cairn_lock_give(&journal->lock);
}

static void *journal_main(void *argument) {
    struct cairn_up_journal *journal = argument;
    bool stopping = false;
    while (!stopping) {
        struct cairn_up_group group;
        cairn_lock_take(&journal->lock);
        while (!journal->locked.pending.bytes.size && !journal->locked.pending.first &&
               !journal->locked.stopping) {
            (void)cairn_condition_wait(&journal->work, &journal->lock, UINT64_MAX);
        }
        group = journal->locked.pending;
        if (group.first) *group.last = NULL;
        cairn_up_group_init(&journal->locked.pending);
        if (journal->locked.lost.count && CAIRN_RULE(Q45))
            cairn_up_group_drop(&group, &journal->locked.lost);
        stopping = journal->locked.stopping;
        bool broken = journal->locked.broken;
        struct cairn_error error = journal->locked.why;
        cairn_lock_give(&journal->lock);
        enum cairn_code code = broken ? error.code : CAIRN_OK;
        if (code == CAIRN_OK && group.bytes.size) code = write_group(journal, &group, &error);
        if (code == CAIRN_OK && group.bytes.size) index_group(journal, &group);
        if (code != CAIRN_OK && !broken)
            cairn_log(ERROR, "journal.write", "path=%s cause=\"%s\"", journal->path, error.message);
        if (code != CAIRN_OK) lose_group(journal, &group, &error);
        tell(journal, &group, code, &error);
        cairn_up_group_release(&group);
        if (code == CAIRN_OK) rewrite_if_worth(journal, stopping);
    }
    return NULL;
}
