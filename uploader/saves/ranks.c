/* SPDX-License-Identifier: Apache-2.0 */
/* Attempts and their ranks' counts; disconnected ranks and their processes. */
#include "uploader/saves/ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/file.h"
#include "common/process.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/port/peers.h"
#include "uploader/saves/save.h"

/* ---- attempts: a list suffices, one per job on this node ---- */

enum cairn_code cairn_up_attempt_join(struct cairn_up *up, const char *grant_text,
                                      struct cairn_up_attempt **ret, struct cairn_error *err) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (strcmp(at->text, grant_text) != 0) continue;
        at->users++;
        *ret = at;
        return CAIRN_OK;
    }
    struct cairn_up_attempt *made = calloc(1, sizeof(*made));
    if (!made) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an attempt");
    enum cairn_code code = cairn_grant_parse(grant_text, &made->grant, err);
    if (code == CAIRN_OK && !cairn_text_copy(made->text, sizeof(made->text), grant_text))
        code = cairn_fail(err, CAIRN_PROTOCOL, "the grant is longer than %d bytes",
                          CAIRN_GRANT_BYTES_MAX);
    if (code != CAIRN_OK) {
        free(made);
        return code;
    }
    snprintf(made->run_text, sizeof(made->run_text), "%s/%s", made->grant.name.project,
             made->grant.name.run);
    made->users = 1;
    made->next = up->locked.attempts;
    up->locked.attempts = made;
    if (up->peers) {
        /* Requests the new attempt's list of nodes: the old attempt's list names other nodes. */
        (void)cairn_up_members_name(&up->peers->members, made->text);
        cairn_up_members_hurry(&up->peers->members);
    }
    *ret = made;
    return CAIRN_OK;
}

void cairn_up_attempt_version(const struct cairn_up_attempt *attempt, uint64_t step, uint32_t n,
                              struct cairn_version_id *ret) {
    const struct cairn_grant *grant = &attempt->grant;
    struct cairn_version_origin origin = {
        .name = grant->name, .attempt = grant->attempt, .step = step, .n = n};
    (void)cairn_text_copy(origin.nonce, sizeof(origin.nonce), grant->nonce);
    cairn_version_id_make(&origin, ret);
}

void cairn_up_attempt_leave(struct cairn_up *up, struct cairn_up_attempt *attempt) {
    if (!attempt) return;
    CAIRN_ASSERT(attempt->users > 0);
    if (--attempt->users) return;
    CAIRN_ASSERT(!attempt->sessions);
    struct cairn_up_attempt **at = &up->locked.attempts;
    while (*at != attempt) at = &(*at)->next;
    *at = attempt->next;
    while (attempt->counted) {
        struct cairn_up_counted *counted = attempt->counted;
        attempt->counted = counted->next;
        free(counted);
    }
    free(attempt);
}

struct cairn_up_attempt *cairn_up_attempt_find(struct cairn_up *up, const char *run_text,
                                               uint64_t number, const char *nonce) {
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (at->grant.attempt == number && !strcmp(at->grant.nonce, nonce) &&
            !strcmp(at->run_text, run_text))
            return at;
    }
    return NULL;
}

const struct cairn_up_counted *cairn_up_attempt_counted(const struct cairn_up_attempt *attempt,
                                                        uint32_t rank) {
    const struct cairn_up_counted *at = attempt->counted;
    while (at && at->rank != rank) at = at->next;
    return at;
}

uint32_t cairn_up_counted_of(const struct cairn_up_counted *counted, uint64_t step) {
    for (size_t i = 0; counted && i < CAIRN_COUNT(counted->steps); i++)
        if (counted->steps[i].n && counted->steps[i].step == step) return counted->steps[i].n;
    return 0;
}

static struct cairn_up_counted *counted_of(struct cairn_up_attempt *attempt, uint32_t rank) {
    struct cairn_up_counted *at = attempt->counted;
    while (at && at->rank != rank) at = at->next;
    if (at) return at;
    at = calloc(1, sizeof(*at));
    if (!at) return NULL;
    at->rank = rank;
    at->next = attempt->counted;
    attempt->counted = at;
    return at;
}

void cairn_up_attempt_count(struct cairn_up_attempt *attempt, uint32_t rank, uint32_t world_size,
                            uint64_t step, uint32_t n) {
    struct cairn_up_counted *counted = counted_of(attempt, rank);
    if (!counted || !n) return;
    counted->world_size = world_size;
    for (size_t i = 0; i < CAIRN_COUNT(counted->steps); i++) {
        if (!counted->steps[i].n || counted->steps[i].step != step) continue;
        if (n > counted->steps[i].n) counted->steps[i].n = n;
        return;
    }
    counted->steps[counted->place].step = step;
    counted->steps[counted->place].n = n;
    counted->place = (counted->place + 1) % CAIRN_COUNT(counted->steps);
}

/* ---- disconnected ranks: a list, newest first ---- */

#define HOLD_MS 2000  /* ranks open an attempt one after the other */
#define ENDED_MAX 256 /* each may hold a descriptor */

enum said { SAID_NOTHING, SAID_ENDED, SAID_SETTLED };

struct cairn_up_ended {
    struct cairn_up_ended *next;
    struct cairn_up_attempt *attempt; /* one use */
    uint32_t rank;
    char proc[CAIRN_UUID_TEXT_BYTES];
    uint64_t entry; /* in the journal; 0: closed */
    int process;    /* -1: ended or invisible */
    bool bye, ended;
    bool taken;     /* the server's present catalog knows */
    enum said said; /* the end that the last urgent heartbeat reported */
    uint64_t hold_until_ms;
    bool awaited; /* of the previous uploader process: holds while offers are awaited */
};

static void close_entry(struct cairn_up *up, uint64_t *entry) {
    if (!*entry) return;
    cairn_up_journal_close(up->journal, *entry, CAIRN_PACK(record_left, 0));
    *entry = 0;
}

static void unlink_at(struct cairn_up *up, struct cairn_up_ended **at) {
    struct cairn_up_ended *gone = *at;
    *at = gone->next;
    if (gone->process >= 0) cairn_fd_close_at(&gone->process);
    cairn_up_attempt_leave(up, gone->attempt);
    free(gone);
}

static void drop_rank(struct cairn_up *up, struct cairn_up_ended **at) {
    close_entry(up, &(*at)->entry);
    unlink_at(up, at);
}

/* The only rank of a world needs no report: no other rank waits for it. */
static bool matters(const struct cairn_up_rank *rank) {
    return rank->world_size > 1 && (rank->ended || rank->process >= 0);
}

static void add_rank(struct cairn_up *up, const struct cairn_up_rank *take, bool bye,
                     uint64_t hold_until_ms, bool awaited) {
    int process = take->process;
    uint64_t entry = take->entry;
    /* Drops the oldest acknowledged rank, otherwise the oldest. */
    struct cairn_up_ended **oldest = NULL, **taken = NULL;
    size_t count = 0;
    for (struct cairn_up_ended **at = &up->locked.ended; *at; at = &(*at)->next, count++) {
        oldest = at;
        if ((*at)->taken) taken = at;
    }
    if (count >= ENDED_MAX) drop_rank(up, taken ? taken : oldest);
    struct cairn_up_ended *gone = calloc(1, sizeof(*gone));
    if (process >= 0 && (!gone || !matters(take))) cairn_fd_close_at(&process);
    if (!gone) { /* other ranks wait until their deadlines */
        close_entry(up, &entry);
        cairn_up_attempt_leave(up, take->attempt);
        return;
    }
    *gone = (struct cairn_up_ended){.next = up->locked.ended,
                                    .attempt = take->attempt,
                                    .rank = take->rank,
                                    .entry = entry,
                                    .process = matters(take) ? process : -1,
                                    .bye = bye,
                                    .ended = take->ended && matters(take),
                                    .hold_until_ms = hold_until_ms,
                                    .awaited = awaited};
    (void)cairn_text_copy(gone->proc, sizeof(gone->proc), take->proc);
    up->locked.ended = gone;
}

void cairn_up_ended_add_locked(struct cairn_up *up, const struct cairn_up_rank *take, bool bye) {
    struct cairn_up_rank rank = *take;
    if (!matters(take)) close_entry(up, &rank.entry);
    if (matters(take) && bye) { /* a journaled bye does not hold the attempt after a restart */
        CAIRN_AUTO_JSON json_t *message = CAIRN_PACK(
            record_session, .grant = take->attempt->text, .rank = take->rank,
            .world_size = take->world_size, .proc = take->proc, .process = take->name, .bye = true);
        struct cairn_up_record record = {.entry = take->entry, .message = message};
        cairn_up_journal_note(up->journal, &record, 1);
    }
    add_rank(up, &rank, bye, bye ? 0 : cairn_mono_ms() + HOLD_MS, false);
}

void cairn_up_ended_recover_locked(struct cairn_up *up, const struct cairn_up_rank *take,
                                   bool bye) {
    add_rank(up, take, bye, 0, !bye && !take->ended);
}

void cairn_up_ended_back_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt,
                                uint32_t rank) {
    for (struct cairn_up_ended **at = &up->locked.ended; *at;) {
        if ((*at)->attempt == attempt && (*at)->rank == rank)
            drop_rank(up, at);
        else
            at = &(*at)->next;
    }
}

/* ranks.h#7 */
static bool holds(const struct cairn_up *up, const struct cairn_up_ended *gone) {
    return cairn_mono_ms() < gone->hold_until_ms || (gone->awaited && up->locked.offers_awaited);
}

bool cairn_up_ended_holds_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    uint32_t left = 0;
    for (const struct cairn_up_ended *at = up->locked.ended; at; at = at->next)
        if (at->attempt == attempt && !holds(up, at)) left++;
    return attempt->users > left;
}

/* True when the process has ended since the last look. */
static bool notice_end(struct cairn_up_ended *gone) {
    struct pollfd process = {.fd = gone->process, .events = POLLIN};
    if (gone->process < 0 || poll(&process, 1, 0) <= 0) return false;
    cairn_fd_close_at(&gone->process);
    gone->process = -1;
    gone->ended = true;
    const struct cairn_up_attempt *attempt = gone->attempt;
    if (gone->bye) /* a bye precedes the usual end */
        cairn_log(INFO, "session.over", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, gone->rank);
    else
        cairn_log(WARN, "session.lost", "run=%s attempt=%" PRIu64 " rank=%u", attempt->run_text,
                  attempt->grant.attempt, gone->rank);
    return true;
}

/* Q56: true when nothing of the rank is in flight. */
static bool is_settled(const struct cairn_up *up, const struct cairn_up_ended *gone) {
    for (size_t i = 0; i < up->locked.save_count; i++) {
        const struct cairn_up_save *save = up->locked.saves[i];
        if (save->attempt == gone->attempt && save->rank == gone->rank &&
            cairn_up_save_state_end_is_unheard(&save->state))
            return false;
    }
    return true;
}

bool cairn_up_ended_tick(struct cairn_up *up) {
    bool due = false;
    cairn_lock_take(&up->lock);
    for (struct cairn_up_ended **at = &up->locked.ended; *at;) {
        struct cairn_up_ended *gone = *at;
        bool unseen = !gone->ended && gone->process < 0;
        if (gone->attempt->stale || gone->attempt->foreign.code != CAIRN_OK ||
            (unseen && !holds(up, gone))) {
            drop_rank(up, at);
            continue;
        }
        at = &gone->next;
        (void)notice_end(gone);
        if (!gone->ended || gone->taken) continue;
        enum said say = is_settled(up, gone) ? SAID_SETTLED : SAID_ENDED;
        due |= say > gone->said;
        gone->said = say;
    }
    cairn_lock_give(&up->lock);
    return due;
}

json_t *cairn_up_ended_ranks_locked(struct cairn_up *up, const struct cairn_up_attempt *attempt) {
    json_t *ranks = json_array();
    for (struct cairn_up_ended *at = up->locked.ended; at; at = at->next) {
        (void)notice_end(at);
        if (at->ended && !strcmp(at->attempt->run_text, attempt->run_text) &&
            at->attempt->grant.attempt == attempt->grant.attempt)
            json_array_append_new(ranks, json_integer((json_int_t)at->rank));
    }
    return ranks;
}

json_t *cairn_up_ended_report_locked(struct cairn_up *up) {
    json_t *report = json_array();
    for (struct cairn_up_ended *at = up->locked.ended; at && report; at = at->next) {
        (void)notice_end(at);
        if (!at->ended || at->taken || at->attempt->stale) continue;
        json_t *item = CAIRN_PACK(node_ended, .grant = at->attempt->text, .rank = at->rank,
                                  .proc = at->proc, .settled = is_settled(up, at));
        if (!json_array_append_new(report, item)) continue;
        json_decref(report);
        return NULL;
    }
    return report;
}

static struct cairn_up_ended *find_reported(struct cairn_up *up, const json_t *item) {
    const char *grant = json_string_value(json_object_get(item, "grant"));
    json_int_t rank = json_integer_value(json_object_get(item, "rank"));
    struct cairn_up_ended *at = grant ? up->locked.ended : NULL;
    while (at && (!at->ended || at->rank != rank || strcmp(at->attempt->text, grant) != 0))
        at = at->next;
    return at;
}

void cairn_up_ended_taken(struct cairn_up *up, const json_t *report, const json_t *indexes) {
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < json_array_size(indexes); i++) {
        json_int_t index = json_integer_value(json_array_get(indexes, i));
        struct cairn_up_ended *gone =
            find_reported(up, index < 0 ? NULL : json_array_get(report, (size_t)index));
        if (!gone) continue;
        gone->taken = true;
        close_entry(up, &gone->entry);
    }
}

void cairn_up_ended_again(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_ended *at = up->locked.ended; at; at = at->next) {
        at->taken = false;
        at->said = SAID_NOTHING;
    }
}

void cairn_up_ended_free(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    while (up->locked.ended) unlink_at(up, &up->locked.ended);
}

/* ---- processes ---- */

/* A name is "boot namespace number start": start, from /proc/N/stat, distinguishes reused numbers;
 * boot id and the namespace's inode say whose number it is. */

#define BOOT_BYTES 40
#define START_FIELD 22 /* of /proc/N/stat, from 1 */

/* True for a process descriptor, not another readable descriptor. The kernel refuses signals into
 * another namespace, but only after it has found the process. */
static bool is_process(int fd) {
    return fd >= 0 && (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno != EBADF);
}

int cairn_up_process_watch(struct cairn_up_process_names *take_names) {
    struct cairn_up_process_names names = *take_names;
    take_names->peer = take_names->told = -1;
    int process = names.peer;
    if (process < 0 && names.pid > 0) process = cairn_process_fd(names.pid);
    if (process < 0 && is_process(names.told)) process = names.told;
    if (names.told >= 0 && names.told != process) close(names.told);
    return process;
}

/* Writes "boot namespace", within which equal numbers mean equal processes. */
static bool place_of(char *ret, size_t capacity) {
    CAIRN_AUTO(buf) boot = {.limit = 4096};
    struct stat status;
    if (cairn_file_load("/proc/sys/kernel/random/boot_id", &boot, NULL)) return false;
    if (stat("/proc/self/ns/pid", &status)) return false;
    int bytes = (int)strcspn(boot.data, "\n ");
    if (!bytes || bytes >= BOOT_BYTES) return false;
    int size =
        snprintf(ret, capacity, "%.*s %llu", bytes, boot.data, (unsigned long long)status.st_ino);
    return size > 0 && (size_t)size < capacity;
}

/* Field two, the program's name in brackets, may hold any byte. */
static bool start_of(pid_t pid, unsigned long long *ret) {
    char path[40];
    CAIRN_AUTO(buf) text = {.limit = 4096};
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (cairn_file_load(path, &text, NULL)) return false;
    const char *at = strrchr(text.data, ')');
    for (int field = 2; at && field < START_FIELD; field++) at = strchr(at + 1, ' ');
    char *end = NULL;
    if (!at) return false;
    *ret = strtoull(at + 1, &end, 10);
    return end != at + 1;
}

void cairn_up_process_name(pid_t pid, char ret[CAIRN_UP_PROCESS_BYTES]) {
    char place[BOOT_BYTES + 24];
    unsigned long long start = 0;
    ret[0] = 0;
    if (pid > 0 && place_of(place, sizeof(place)) && start_of(pid, &start))
        snprintf(ret, CAIRN_UP_PROCESS_BYTES, "%s %d %llu", place, (int)pid, start);
}

static bool has_ended(int process) {
    struct pollfd ended = {.fd = process, .events = POLLIN};
    return poll(&ended, 1, 0) > 0;
}

enum cairn_up_process cairn_up_process_find(const char *name, int *ret_fd) {
    char here[BOOT_BYTES + 24], boot[BOOT_BYTES] = "", now[CAIRN_UP_PROCESS_BYTES];
    unsigned long long space = 0;
    int pid = 0;
    *ret_fd = -1;
    if (sscanf(name, "%39s %llu %d", boot, &space, &pid) != 3 || pid <= 0)
        return CAIRN_UP_PROCESS_UNSEEN;
    if (!place_of(here, sizeof(here))) return CAIRN_UP_PROCESS_UNSEEN;
    size_t boot_size = strlen(boot), here_size = strlen(here);
    if (strncmp(here, boot, boot_size) || here[boot_size] != ' ') return CAIRN_UP_PROCESS_ENDED;
    if (strncmp(here, name, here_size) || name[here_size] != ' ') return CAIRN_UP_PROCESS_UNSEEN;
    int process = cairn_process_fd(pid);
    if (process < 0) return errno == ESRCH ? CAIRN_UP_PROCESS_ENDED : CAIRN_UP_PROCESS_UNSEEN;
    /* The descriptor was opened first, so the name is its process's, or that process ended. */
    cairn_up_process_name(pid, now);
    if (!strcmp(now, name)) {
        *ret_fd = process;
        return CAIRN_UP_PROCESS_LIVES;
    }
    bool ended = now[0] || has_ended(process);
    cairn_fd_close_at(&process);
    return ended ? CAIRN_UP_PROCESS_ENDED : CAIRN_UP_PROCESS_UNSEEN;
}
