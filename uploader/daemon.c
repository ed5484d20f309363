/* SPDX-License-Identifier: Apache-2.0 */
/* Start, serve, drain, stop. */
#include "uploader/daemon.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/manifest.h"
#include "common/file.h"
#include "common/log.h"
#include "common/text.h"
#include "store/fault.h"
#include "uploader/attempt.h"
#include "uploader/fetch.h"
#include "uploader/journal.h"
#include "uploader/outbox.h"
#include "uploader/recover.h"
#include "uploader/save.h"
#include "uploader/send.h"
#include "uploader/slabs.h"
#include "uploader/socket.h"
#include "uploader/tasks.h"
#include "uploader/watch.h"

#define TICK_MS 200
#define DRAIN_LOOK_MS 20

/* ---- the store's identity ---- */

enum cairn_code cairn_up_store_meet(struct cairn_up *up, struct cairn_store_worker *worker,
                                    struct cairn_error *err) {
    struct cairn_key key;
    struct cairn_store_record record;
    CAIRN_AUTO(buf) text = {.limit = CAIRN_MIB};
    cairn_key_store_json(&key);
    CAIRN_TRY(cairn_store_get_small(worker, key.text, &text, err));
    enum cairn_code code = cairn_store_record_decode(cairn_buf_view(&text), &record, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "store %s: store.json", cairn_store_url(up->store));
    CAIRN_HOLD(&up->lock);
    if (up->locked.store_uuid[0] && strcmp(up->locked.store_uuid, record.uuid) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "store %s became another one: %s, it was %s",
                          cairn_store_url(up->store), record.uuid, up->locked.store_uuid);
    if (!up->locked.store_uuid[0])
        cairn_log(INFO, "store.met", "url=%s uuid=%s", cairn_store_url(up->store), record.uuid);
    (void)cairn_text_copy(up->locked.store_uuid, sizeof(up->locked.store_uuid), record.uuid);
    return CAIRN_OK;
}

enum cairn_code cairn_up_store_check(struct cairn_up *up, const char *grant_uuid,
                                     struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.store_uuid[0] || !strcmp(up->locked.store_uuid, grant_uuid)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "the server writes to store %s, this uploader's store %s is %s", grant_uuid,
                      cairn_store_url(up->store), up->locked.store_uuid);
}

enum cairn_code cairn_up_admits(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!up->locked.draining) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "the uploader of node %s is stopping", up->places.node);
}

/* ---- start ---- */

static enum cairn_code open_store(struct cairn_up *up, struct cairn_error *err) {
    struct cairn_store_options options = {.url = up->settings.store};
    CAIRN_TRY(cairn_store_open(&options, &up->store, err));
#ifdef CAIRN_CRASHPOINTS
    const char *script = getenv("CAIRN_STORE_FAULT");
    if (script) {
        struct cairn_store_fault_options fault = {.script = script};
        struct cairn_store *plain = up->store;
        up->store = NULL;
        CAIRN_TRY(cairn_store_fault_wrap(plain, &fault, &up->store, err));
    }
#endif
    const char *note = cairn_store_profile(up->store)->note;
    if (*note) cairn_log(WARN, "store.profile", "url=%s note=\"%s\"", cairn_store_url(up->store), note);
    return CAIRN_OK;
}

static enum cairn_code load_token(struct cairn_up *up, struct cairn_error *err) {
    if (!*up->settings.token_file) return CAIRN_OK;
    CAIRN_AUTO(buf) text = {.limit = 4096};
    CAIRN_TRY(cairn_file_load(up->settings.token_file, &text, err));
    while (text.size && (text.data[text.size - 1] == '\n' || text.data[text.size - 1] == '\r'))
        text.data[--text.size] = '\0';
    up->token = strdup(text.size ? text.data : "");
    return up->token ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the token");
}

static enum cairn_code open_journal(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_TRY(cairn_dir_make(up->settings.state_dir, 0700, err));
    struct cairn_up_recovery *recovery = NULL;
    CAIRN_TRY(cairn_up_recovery_new(&recovery, err));
    struct cairn_up_journal_options options = {
        .path = up->places.journal_path,
        .node = up->places.node,
        .replay = cairn_up_recovery_replay,
        .owner = recovery,
    };
    enum cairn_code code = cairn_up_journal_open(&options, &up->journal, err);
    if (code == CAIRN_OK) code = cairn_up_recovery_build(recovery, up, err);
    cairn_up_recovery_free(recovery);
    return code;
}

static enum cairn_code make_parts(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_TRY(load_token(up, err));
    CAIRN_TRY(open_store(up, err));
    CAIRN_TRY(cairn_up_socket_new(up, &up->socket, err));
    CAIRN_TRY(cairn_up_tasks_new(up, &up->tasks, err));
    CAIRN_TRY(cairn_up_send_new(up, &up->send, err));
    CAIRN_TRY(cairn_up_fetch_new(up, &up->fetch, err));
    CAIRN_TRY(open_journal(up, err));
    CAIRN_TRY(cairn_up_outbox_new(up, &up->outbox, err));
    return cairn_up_watch_new(up, &up->watch, err);
}

enum cairn_code cairn_up_start(struct cairn_up *up, struct cairn_error *err) {
    cairn_lock_init(&up->lock, CAIRN_LOCK_uploader_state);
    cairn_condition_init(&up->changed);
    cairn_budget_init(&up->budget, up->places.budget_bytes);
    cairn_uuid_random(up->uuid);
    CAIRN_TRY(make_parts(up, err));
    CAIRN_TRY(cairn_up_send_start(up->send, err));
    CAIRN_TRY(cairn_up_outbox_start(up->outbox, err));
    CAIRN_TRY(cairn_up_watch_start(up->watch, err));
    CAIRN_TRY(cairn_up_socket_start(up->socket, err));
    char budget[24];
    cairn_size_text(up->budget.total_bytes, budget);
    cairn_log(INFO, "uploader.ready", "node=%s socket=%s store=%s server=%s budget=\"%s\"",
              up->places.node, up->places.socket_path, cairn_store_url(up->store),
              up->settings.server, budget);
    return CAIRN_OK;
}

/* ---- serve ---- */

/* A stranger's store is noticed as soon as there is a record to compare with. */
static enum cairn_code look_for_store(struct cairn_up *up, struct cairn_store_worker *worker,
                                      bool *told, struct cairn_error *err) {
    cairn_lock_take(&up->lock);
    bool met = up->locked.store_uuid[0] != '\0';
    cairn_lock_give(&up->lock);
    if (met) return CAIRN_OK;
    struct cairn_error error = {0};
    enum cairn_code code = cairn_up_store_meet(up, worker, &error);
    if (code == CAIRN_OK) return CAIRN_OK;
    if (!*told)
        cairn_log(WARN, "store.not_ready", "url=%s cause=\"%s\" hint=\"the server sets it up when it "
                  "starts\"", cairn_store_url(up->store), error.message);
    *told = true;
    if (code != CAIRN_UNSUPPORTED && code != CAIRN_CONFLICT) return CAIRN_OK;
    if (err) *err = error;
    return code;
}

static void drain(struct cairn_up *up) {
    uint64_t deadline_ms = cairn_mono_ms() + up->settings.drain_timeout_ms;
    cairn_up_socket_close_door(up->socket);
    cairn_lock_take(&up->lock);
    up->locked.draining = true;
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    cairn_log(INFO, "uploader.draining", "saves=%" PRIu64 " at_most_ms=%" PRIu64,
              cairn_up_save_unfinished(up), up->settings.drain_timeout_ms);
    while (cairn_up_save_unfinished(up) && cairn_mono_ms() < deadline_ms) {
        CAIRN_HOLD(&up->lock);
        (void)cairn_condition_wait(&up->changed, &up->lock, cairn_mono_ms() + DRAIN_LOOK_MS);
    }
    uint64_t left = cairn_up_save_unfinished(up);
    if (left)
        cairn_log(WARN, "uploader.left_over", "saves=%" PRIu64 " hint=\"they are in the journal and go "
                  "on with the next start\"", left);
}

enum cairn_code cairn_up_run(struct cairn_up *up, int stop_fd, struct cairn_error *err) {
    struct cairn_store_worker *worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(up->store, &worker, err));
    struct pollfd waiting = {.fd = stop_fd, .events = POLLIN};
    enum cairn_code code = CAIRN_OK;
    bool told = false;
    while (code == CAIRN_OK) {
        code = look_for_store(up, worker, &told, err);
        cairn_up_recovery_tick(up);
        if (poll(&waiting, 1, TICK_MS) > 0) break;
    }
    cairn_store_worker_free(worker);
    if (code == CAIRN_OK) drain(up);
    return code;
}

/* ---- stop ---- */

static void free_left(struct cairn_up *up) {
    CAIRN_HOLD(&up->lock);
    while (up->locked.left) {
        struct cairn_up_left *left = up->locked.left;
        up->locked.left = left->next;
        cairn_up_attempt_leave(up, left->attempt);
        free(left);
    }
}

void cairn_up_stop(struct cairn_up *up) {
    cairn_lock_take(&up->lock);
    up->locked.ending = up->locked.draining = true;
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    cairn_up_socket_stop(up->socket);
    cairn_up_watch_stop(up->watch);
    cairn_up_outbox_stop(up->outbox);
    cairn_up_send_stop(up->send);
    cairn_up_fetch_stop(up->fetch);
    cairn_up_tasks_free(CAIRN_TAKE(up->tasks));
    cairn_up_journal_free(CAIRN_TAKE(up->journal));
    cairn_up_socket_free(CAIRN_TAKE(up->socket));
    cairn_up_watch_free(up->watch);
    cairn_up_outbox_free(CAIRN_TAKE(up->outbox));
    cairn_up_fetch_free(up->fetch);
    if (up->send) cairn_up_save_free_all(up);
    cairn_up_slabs_free_all(up);
    free_left(up);
    cairn_up_send_free(up->send);
    if (up->store) cairn_store_free(up->store);
    if (up->token) explicit_bzero(up->token, strlen(up->token));
    free(up->token);
    cairn_budget_release(&up->budget);
    cairn_condition_release(&up->changed);
    cairn_lock_release(&up->lock);
}
