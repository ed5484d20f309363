/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's thread: it writes and syncs the records that have gathered, group by group. */
#include "uploader/journal/journal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/array.h"
#include "common/clock.h"
#include "common/crashpoint.h"
#include "common/file.h"
#include "common/log.h"
#include "common/rule.h"
#include "uploader/journal/inside.h"

#define WRITE_AGAIN_MS 2000 /* a disk that is full for a moment costs a stall, not a save */
#define WRITE_PAUSE_MS 20
#define ROOM_LOOK_MS 1000
#define ROOM_BYTES 4096
#define NOTE_MS 10 /* how long a record that nobody waits for may wait for others */

/* ---- opening ---- */

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
    CAIRN_TRY(cairn_up_journal_read(journal, options, err));
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
    cairn_up_file_release(&journal->own);
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

enum cairn_code cairn_up_journal_trouble(struct cairn_up_journal *journal,
                                         struct cairn_error *ret) {
    CAIRN_HOLD(&journal->lock);
    if (!journal->locked.broken && !journal->locked.failing) return CAIRN_OK;
    *ret = journal->locked.why;
    return cairn_within(ret, journal->locked.why.code,
                        journal->locked.broken ? "the journal cannot be written any more"
                                               : "the journal cannot be written");
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

void cairn_up_journal_hurry(struct cairn_up_journal *journal) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.hurried = true;
    cairn_condition_signal(&journal->work);
}

/* ---- writing ---- */

static void break_journal(struct cairn_up_journal *journal, const struct cairn_error *why) {
    CAIRN_HOLD(&journal->lock);
    journal->locked.broken = true;
    journal->locked.why = *why;
}

static bool is_full(const struct cairn_error *why) {
    return why->os_errno && cairn_code_from_errno(why->os_errno) == CAIRN_NO_SPACE;
}

/* A full disk often has room again within moments; the file is as before after each try. */
static enum cairn_code put_again(struct cairn_up_journal *journal, struct cairn_view records,
                                 uint64_t *ret_head_bytes, struct cairn_error *err) {
    uint64_t until_ms = cairn_mono_ms() + WRITE_AGAIN_MS;
    for (;;) {
        enum cairn_code code = cairn_up_file_put(&journal->own, records, ret_head_bytes, err);
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

/* Zeros behind the last group, which are cut again; a process that ends between the two leaves a
 * torn tail. */
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
    cairn_up_file_took_head(&journal->own, head_bytes);
    for (size_t i = 0; i < group->noted_count; i++) {
        const struct cairn_up_noted *noted = &group->noted[i];
        struct cairn_error error;
        if (noted->dropped) continue;
        if (cairn_up_file_took_record(&journal->own, noted->entry, noted->closes, noted->bytes,
                                      &error) != CAIRN_OK) {
            /* It is on the disk, but a rewrite would leave it out: nothing more may be promised. */
            cairn_log(ERROR, "journal.index", "cause=\"%s\"", error.message);
            break_journal(journal, &error);
        }
        if (noted->closes) {
            CAIRN_HOLD(&journal->lock);
            cairn_up_broken_remove(&journal->locked.lost, noted->entry);
        }
    }
    cairn_up_file_took_group(&journal->own);
}

/* journal.h#6: what the group was to say of these entries is lost, so nothing more is written of
 * them. */
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

/* ---- the thread ---- */

static void rewrite_if_worth(struct cairn_up_journal *journal, bool stopping) {
    const struct cairn_up_journal_index *index = &journal->own.index;
    bool empty = !index->count && (stopping || journal->own.size > CAIRN_UP_JOURNAL_EMPTY_BYTES);
    bool dead =
        journal->own.size > journal->rewrite_bytes && index->live_bytes < journal->own.size / 2;
    if (!empty && !dead) return;
    struct cairn_error error;
    bool renamed = false;
    if (cairn_up_journal_rewrite(journal, &renamed, &error) != CAIRN_OK) {
        cairn_log(ERROR, "journal.rewrite", "path=%s cause=\"%s\"", journal->path, error.message);
        if (!renamed) return; /* the old file is whole and goes on */
        /* Which of the two a power cut would leave is unknown: journal.h#3. */
        break_journal(journal, &error);
        return;
    }
    cairn_lock_take(&journal->lock);
    journal->locked.file_bytes = journal->own.size;
    cairn_lock_give(&journal->lock);
}

/* Until somebody waits, or what was only noted has lain for up to NOTE_MS: with a sync of its own
 * it would hold up the next seal. Within NOTE_MS of a group the thread looks for notes by itself,
 * so that posting one wakes nobody. While writes fail it returns without work every ROOM_LOOK_MS.
 * The lock is held. */
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
        cairn_up_group_init(&journal->locked.pending);
        if (journal->locked.lost.count && CAIRN_RULE(Q45))
            cairn_up_group_drop(&group, &journal->locked.lost);
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
        tell(journal, &group, code, &error);
        cairn_up_group_release(&group);
        if (code == CAIRN_OK) rewrite_if_worth(journal, stopping);
    }
    return NULL;
}

/* ---- groups of records ---- */

#define NOTED_MAX (CAIRN_UP_GROUP_BYTES_MAX / CAIRN_UP_RECORD_HEAD_BYTES)
#define BROKEN_MAX (1 << 20)

void cairn_up_group_init(struct cairn_up_group *ret) {
    *ret = (struct cairn_up_group){.bytes = {.limit = CAIRN_UP_GROUP_BYTES_MAX}};
}

void cairn_up_group_release(struct cairn_up_group *group) {
    cairn_buf_release(&group->bytes);
    free(group->noted);
}

static enum cairn_code note(struct cairn_up_group *group, const struct cairn_up_record *record,
                            uint64_t bytes, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(group->noted, group->noted_count, group->noted_capacity, NOTED_MAX,
                               "records in a group of the journal", err));
    group->noted[group->noted_count++] =
        (struct cairn_up_noted){record->entry, record->closes, false, bytes};
    return CAIRN_OK;
}

enum cairn_code cairn_up_group_add(struct cairn_up_group *group,
                                   const struct cairn_up_record *records, size_t count,
                                   struct cairn_error *err) {
    size_t bytes_before = group->bytes.size, noted_before = group->noted_count;
    for (size_t i = 0; i < count; i++) {
        size_t from = group->bytes.size;
        enum cairn_code code = cairn_up_record_encode(&records[i], &group->bytes, err);
        if (code == CAIRN_OK) code = note(group, &records[i], group->bytes.size - from, err);
        if (code != CAIRN_OK) {
            group->bytes.size = bytes_before;
            group->noted_count = noted_before;
            return code;
        }
    }
    return CAIRN_OK;
}

void cairn_up_group_wait(struct cairn_up_group *group, struct cairn_up_waiter *waiter) {
    CAIRN_ASSERT(waiter->count <= group->noted_count);
    waiter->first = group->noted_count - waiter->count;
    if (!group->first) group->last = &group->first;
    *group->last = waiter;
    group->last = &waiter->next;
}

void cairn_up_group_drop(struct cairn_up_group *group, const struct cairn_up_broken *broken) {
    size_t from = 0, to = 0;
    for (size_t i = 0; i < group->noted_count; i++) {
        struct cairn_up_noted *noted = &group->noted[i];
        CAIRN_ASSERT(from + noted->bytes <= group->bytes.size);
        noted->dropped = !noted->closes && cairn_up_broken_has(broken, noted->entry);
        if (!noted->dropped) {
            memmove(group->bytes.data + to, group->bytes.data + from, (size_t)noted->bytes);
            to += (size_t)noted->bytes;
        }
        from += (size_t)noted->bytes;
    }
    group->bytes.size = to;
}

bool cairn_up_group_lost(const struct cairn_up_group *group, const struct cairn_up_waiter *waiter) {
    for (size_t i = 0; i < waiter->count; i++) {
        if (group->noted[waiter->first + i].dropped) return true;
    }
    return false;
}

void cairn_up_broken_release(struct cairn_up_broken *broken) {
    free(broken->entries);
    *broken = (struct cairn_up_broken){0};
}

bool cairn_up_broken_has(const struct cairn_up_broken *broken, uint64_t entry) {
    for (size_t i = 0; i < broken->count; i++) {
        if (broken->entries[i] == entry) return true;
    }
    return broken->all;
}

bool cairn_up_broken_add(struct cairn_up_broken *broken, uint64_t entry) {
    if (cairn_up_broken_has(broken, entry)) return false;
    if (CAIRN_ARRAY_ROOM(broken->entries, broken->count, broken->capacity, BROKEN_MAX,
                         "broken entries", NULL)) {
        broken->all = true;
        return true;
    }
    broken->entries[broken->count++] = entry;
    return true;
}

void cairn_up_broken_remove(struct cairn_up_broken *broken, uint64_t entry) {
    for (size_t i = 0; i < broken->count; i++) {
        if (broken->entries[i] == entry) broken->entries[i--] = broken->entries[--broken->count];
    }
}
