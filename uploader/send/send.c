/* SPDX-License-Identifier: Apache-2.0 */
/* The senders' threads; results of requests go to the journal (upload ids), the state machine and
 * the save, in this order; and the check of the store. */
#include "uploader/send/send.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/hooks.h"
#include "common/text.h"
#include "store/open.h"
#include "uploader/journal/journal.h"
#include "uploader/saves/save.h"
#include "uploader/send/inside.h"

#define BACKOFF_MS_MIN UINT64_C(50)
#define BACKOFF_MS_MAX UINT64_C(5000)

/* For stores that list parts without checksums: a restart recognises the part by this record.
 * Nothing waits for it: a part without a record is sent again. */
static void remember_part(struct cairn_up_sender *sender, struct cairn_up_sending *sending) {
    const struct cairn_store_request *request = &sending->request;
    const struct cairn_multipart_action *action = &sending->action;
    struct cairn_up *up = sender->send->up;
    if (action->kind != CAIRN_MULTIPART_PART || request->code != CAIRN_OK || !request->etag[0] ||
        cairn_store_profile(up->store)->lists_part_checksums)
        return;
    CAIRN_AUTO_JSON json_t *message =
        CAIRN_PACK(record_part, .s = sending->shard->index, .part = action->part_number,
                   .bytes = action->length, .crc32c = action->crc32c, .etag = request->etag);
    struct cairn_up_record record = {.entry = sending->shard->entry, .message = message};
    /* An ETag that is not UTF-8 cannot be journaled. */
    if (message) (void)!cairn_up_journal_post(up->journal, &record, 1, NULL, NULL, NULL);
}

/* S20: the store reports that bytes and checksum differ; sums the source to see which changed. */
static void compare_source(struct cairn_up_sender *sender, struct cairn_up_sending *sending) {
    const struct cairn_store_request *request = &sending->request;
    if (!sending->carries ||
        (request->code != CAIRN_CORRUPT && request->code != CAIRN_SOURCE_CHANGED))
        return;
    const struct cairn_up_shard *shard = sending->shard;
    const uint8_t *data = request->body.data;
    uint64_t offset = sending->action.offset, left = request->body.size;
    for (uint64_t block = offset / CAIRN_BLOCK_BYTES; left; block++) {
        size_t size = (size_t)cairn_min_u64(left, CAIRN_BLOCK_BYTES);
        uint32_t found = cairn_crc32c(0, data, size), expected = shard->queue.mp.blocks[block];
        if (found != expected) {
            struct cairn_error why = {0};
            cairn_fail(&why, CAIRN_SOURCE_CHANGED,
                       "bytes %" PRIu64 "-%" PRIu64 " changed after they were staged: "
                       "expected %08x, found %08x",
                       block * CAIRN_BLOCK_BYTES, block * CAIRN_BLOCK_BYTES + size - 1, expected,
                       found);
            cairn_up_shard_give_up(sender->send->queue, sending->shard, &why);
            return;
        }
        data += size;
        left -= size;
    }
}

/* The store's client has already retried; this pause keeps a dead store from a request loop. */
static void back_off(struct cairn_up_shard *shard, enum cairn_code code) {
    uint64_t pause_ms = shard->queue.mp.pause_ms; /* when a retry is worthwhile */
    bool answered = code == CAIRN_OK || code == CAIRN_NOT_FOUND || code == CAIRN_PRECONDITION;
    if (answered) shard->queue.failures = 0;
    if (code == CAIRN_CANCELLED || (answered && !pause_ms)) return;
    uint32_t shift = shard->queue.failures < 8 ? shard->queue.failures : 8;
    if (!answered) {
        shard->queue.failures++;
        pause_ms = cairn_max_u64(pause_ms, cairn_min_u64(BACKOFF_MS_MAX, BACKOFF_MS_MIN << shift));
    }
    if (cairn_crashpoint_fails("uploader.send.pause")) pause_ms = 0;
    shard->queue.not_before_ms = cairn_mono_ms() + pause_ms;
}

static void log_failure(const struct cairn_up_sending *sending) {
    enum cairn_code code = sending->request.code;
    if (code == CAIRN_OK || code == CAIRN_CANCELLED || code == CAIRN_NOT_FOUND) return;
    /* Rate-limited: a store that fails for an hour must not fill a disk (P11). */
    struct cairn_up_send *send = sending->sender->send;
    bool of_part = sending->action.kind == CAIRN_MULTIPART_PART;
    cairn_up_save_store_error(send->up, sending->shard->entry, sending->shard->name,
                              of_part ? sending->action.part_number : 0, &sending->request.error);
    char cause[80];
    uint64_t unsaid = 0;
    snprintf(cause, sizeof(cause), "%s %s %d", cairn_store_op_word(sending->request.op),
             cairn_code_info(code)->name, sending->request.error.http_status);
    cairn_lock_take(&send->queue->lock);
    bool says = cairn_log_limit_allows(&send->log_limit, cause, cairn_mono_ms(), &unsaid);
    cairn_lock_give(&send->queue->lock);
    if (says)
        cairn_log(WARN, "send.retry", "shard=%s action=%s part=%u cause=\"%s\" unsaid=%" PRIu64,
                  sending->shard->name, cairn_store_op_word(sending->request.op),
                  sending->action.part_number, sending->request.error.message, unsaid);
}

/* After these answers another store may have the same name: it is checked again. */
static bool is_gap(const struct cairn_store_request *request) {
    enum cairn_code code = request->code;
    return code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_STORE ||
           (code != CAIRN_OK && cairn_store_is_away(request->error.os_errno));
}

static void measure(const struct cairn_up_sending *sending) {
    struct cairn_metrics *metrics = sending->sender->send->up->metrics;
    const struct cairn_store_request *request = &sending->request;
    cairn_up_metrics_tell(metrics, request);
    if (!request->code)
        atomic_store_explicit(&sending->sender->send->up->answered_ms, cairn_mono_ms(),
                              memory_order_relaxed);
    if (!sending->carries) return;
    if (!request->code)
        atomic_fetch_add_explicit(&sending->sender->send->up->sent_bytes, sending->action.length,
                                  memory_order_relaxed);
    cairn_metrics_shift(metrics, CAIRN_UP_METRIC(inflight_bytes), -(int64_t)sending->action.length);
    cairn_metrics_observe(
        metrics,
        (struct cairn_metric_at){CAIRN_UP_METRIC_upload_part_duration_seconds, request->code, 0},
        cairn_mono_us() - sending->submitted_us);
    if (!request->code)
        cairn_metrics_add(metrics, CAIRN_UP_METRIC(upload_bytes_total), sending->action.length);
}

/* Without a network the whole time is the store's. */
static void tell_acked(const struct cairn_up_sending *sending, uint64_t entry, uint32_t index) {
    struct cairn_up *up = sending->sender->send->up;
    bool linked = cairn_store_profile(up->store)->over_network;
    struct cairn_up_acked acked = {.offset = sending->action.offset,
                                   .bytes = sending->action.length,
                                   .link_us = sending->request.link_us,
                                   .store_us = linked ? sending->request.store_us
                                                      : cairn_mono_us() - sending->submitted_us};
    cairn_up_save_part_acked(up, entry, index, &acked);
}

static void finish_one(struct cairn_up_sender *sender, struct cairn_up_sending *sending) {
    struct cairn_up_send *send = sender->send;
    struct cairn_up_shard *shard = sending->shard;
    uint64_t entry = shard->entry;
    uint32_t index = shard->index;
    if (sending->carries) CAIRN_CRASHPOINT("uploader.part.answered");
    measure(sending);
    /* R2: no part is sent under an unjournaled upload id. */
    struct cairn_store_request *request = &sending->request;
    if (sending->action.kind == CAIRN_MULTIPART_CREATE && request->code == CAIRN_OK) {
        CAIRN_CRASHPOINT("uploader.create.done");
        CAIRN_AUTO_JSON json_t *message =
            CAIRN_PACK(record_upload, .s = sending->shard->index, .upload_id = request->upload_id);
        struct cairn_up_record record = {.entry = sending->shard->entry, .message = message};
        struct cairn_error error = {0};
        enum cairn_code code =
            message ? cairn_up_journal_append(sender->send->up->journal, &record, 1, &error)
                    : cairn_fail(&error, CAIRN_PROTOCOL, "the store's upload id is no UTF-8");
        CAIRN_CRASHPOINT("uploader.upload.journaled");
        if (code != CAIRN_OK) cairn_up_shard_give_up(sender->send->queue, sending->shard, &error);
    }
    remember_part(sender, sending);
    compare_source(sender, sending);
    log_failure(sending);
    CAIRN_ASSERT(!sending->read_into || sender->reading);
    if (sending->read_into) sender->reading = false;
    cairn_lock_take(&send->queue->lock);
    cairn_multipart_result(&shard->queue.mp, &sending->action, &sending->request);
    back_off(shard, sending->request.code);
    if (is_gap(&sending->request)) send->queue->locked.admitted = false;
    if (sending->buffer) cairn_up_pool_give(&send->queue->pool, sending->buffer);
    CAIRN_ASSERT(shard->queue.in_flight > 0);
    shard->queue.in_flight--;
    if (sending->carries)
        cairn_up_queue_body_ends(send->queue, shard,
                                 sending->request.code ? 0 : sending->action.length);
    bool giving_up = shard->queue.upload == CAIRN_UP_UPLOAD_ENDING;
    cairn_lock_give(&send->queue->lock);
    if (sending->carries) CAIRN_CRASHPOINT("uploader.part.done");
    if (sending->action.kind == CAIRN_MULTIPART_COMPLETE)
        CAIRN_CRASHPOINT("uploader.complete.done");
    if (sending->carries && sending->request.code == CAIRN_OK)
        tell_acked(sending, entry, index); /* before the shard may be freed */
    cairn_up_sending_free(sending);
    if (giving_up) cairn_up_save_settle(send->up, entry);
}

static void finish_all(struct cairn_up_sender *sender) {
    struct cairn_up_sending **at = &sender->flying;
    bool any = false;
    while (*at) {
        struct cairn_up_sending *sending = *at;
        if (!sending->finished) {
            at = &sending->next;
            continue;
        }
        CAIRN_ASSERT(sender->flying_count > 0);
        *at = sending->next;
        sender->flying_count--;
        sender->flying_small -= sending->small;
        finish_one(sender, sending);
        any = true;
    }
    /* A result may allow more requests (parts after CREATE), for which another worker has room. */
    if (any && sender->send->sender_count > 1) cairn_up_queue_wake(sender->send->queue);
}

/* Cancels requests that carry bytes of shards given up, or failed by a refusal. */
static void cancel_given_up(struct cairn_up_sender *sender, bool all) {
    struct cairn_up_send *send = sender->send;
    for (struct cairn_up_sending *at = sender->flying; at; at = at->next) {
        cairn_lock_take(&send->queue->lock);
        bool failing =
            at->shard->queue.upload == CAIRN_UP_UPLOAD_ENDING || at->shard->queue.mp.give_up;
        bool cancel = all || (at->carries && failing);
        cairn_lock_give(&send->queue->lock);
        if (cancel && !at->finished) cairn_store_cancel(sender->store, &at->request);
    }
}

#define IDLE_POLL_MS 1000

enum cairn_code cairn_up_send_new(struct cairn_up *up, struct cairn_up_send **ret,
                                  struct cairn_error *err) {
    struct cairn_up_send *send = calloc(1, sizeof(*send));
    if (!send) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the senders");
    send->up = up;
    send->queue = up->queue;
    send->cores = cairn_up_cores_shared(&up->settings);
    send->senders = calloc((size_t)up->settings.workers, sizeof(*send->senders));
    send->sender_count = send->senders ? (size_t)up->settings.workers : 0;
    enum cairn_code code = cairn_up_readers_new(send, err);
    if (code == CAIRN_OK && !send->senders)
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the senders");
    for (size_t i = 0; code == CAIRN_OK && i < send->sender_count; i++) {
        send->senders[i].send = send;
        code = cairn_store_worker_new(up->store, &send->senders[i].store, err);
        if (code == CAIRN_OK) cairn_up_queue_add_worker(send->queue, send->senders[i].store);
    }
    if (code != CAIRN_OK) {
        cairn_up_send_free(send);
        return code;
    }
    *ret = send;
    return CAIRN_OK;
}

/* True when every ended request was reported: a wait would delay the others. */
static bool is_told_all(const struct cairn_up_sender *sender) {
    for (const struct cairn_up_sending *at = sender->flying; at; at = at->next)
        if (at->finished) return false;
    return true;
}

static void run_once(struct cairn_up_sender *sender) {
    struct cairn_up_send *send = sender->send;
    cancel_given_up(sender, false);
    finish_all(sender); /* a cancelled request has ended by now */
    uint32_t appetite = cairn_store_appetite(sender->store);
    uint64_t again_ms = UINT64_MAX; /* no deadline */
    if (cairn_late_before(&sender->late, &send->queue->bell, cairn_mono_ms()))
        cairn_up_metrics_late(send->up->metrics, CAIRN_UP_WAIT_SENDERS);
    bool moved = cairn_store_moved(send->up->store);
    cairn_lock_take(&send->queue->lock);
    if (moved) send->queue->locked.admitted = false;
    bool may = send->queue->locked.admitted;
    struct cairn_up_sending *picked = may ? cairn_up_send_pick(sender, &again_ms) : NULL;
    cairn_lock_give(&send->queue->lock);
    uint64_t from_ms = cairn_mono_ms();
    cairn_late_after(&sender->late, &send->queue->bell, picked != NULL, from_ms);
    if (picked) cairn_up_send_launch(sender, picked);
    uint64_t wait_ms = picked ? 0 : cairn_min_u64(again_ms, IDLE_POLL_MS);
    CAIRN_ASSERT(wait_ms == 0 || is_told_all(sender));
    struct cairn_error error;
    if (cairn_store_poll(sender->store, (uint32_t)wait_ms, &error) != CAIRN_OK)
        cairn_log(ERROR, "send.poll", "cause=\"%s\"", error.message);
    /* A request that has ended meanwhile makes work of its own. */
    sender->late.timed_out = !picked && may && sender->flying_count < appetite &&
                             is_told_all(sender) && again_ms == UINT64_MAX &&
                             cairn_mono_ms() >= from_ms + IDLE_POLL_MS;
    finish_all(sender);
}

static void *sender_main(void *argument) {
    struct cairn_up_sender *sender = argument;
    struct cairn_up_send *send = sender->send;
    pthread_setname_np(pthread_self(), "sender"); /* for top, and for tests of a failing disk */
    for (;;) {
        cairn_lock_take(&send->queue->lock);
        bool stopping = send->queue->locked.stopping;
        cairn_lock_give(&send->queue->lock);
        if (stopping) break;
        run_once(sender);
    }
    cancel_given_up(sender, true);
    finish_all(sender);
    CAIRN_ASSERT(!sender->flying && !sender->flying_count);
    return NULL;
}

enum cairn_code cairn_up_send_start(struct cairn_up_send *send, struct cairn_error *err) {
    for (size_t i = 0; i < send->sender_count; i++) {
        struct cairn_up_sender *sender = &send->senders[i];
        CAIRN_TRY(cairn_up_thread_start(&sender->thread, sender_main, sender, "a sender", err));
    }
    return cairn_up_readers_start(send, err);
}

bool cairn_up_send_stop(struct cairn_up_send *send) {
    if (!send) return true;
    cairn_lock_take(&send->queue->lock);
    send->queue->locked.stopping = true;
    cairn_lock_give(&send->queue->lock);
    cairn_up_queue_wake(send->queue);
    for (size_t i = 0; i < send->sender_count; i++) cairn_up_thread_join(&send->senders[i].thread);
    return cairn_up_readers_stop(send);
}

void cairn_up_send_free(struct cairn_up_send *send) {
    if (!send) return;
    bool quiet = cairn_up_send_stop(send);
    CAIRN_ASSERT(quiet); /* stop came before free */
    cairn_up_readers_free(send);
    send->queue->worker_count = 0; /* their senders free them below */
    for (size_t i = 0; i < send->sender_count; i++) {
        if (send->senders[i].store) cairn_store_worker_free(send->senders[i].store);
        free(send->senders[i].read_buffer);
    }
    free(send->senders);
    free(send);
}

/* ---- the store of the grants ---- */

#define PERIOD_MS 200
#define READ_MS 5000
#define CHECK_WAIT_MS 5000
#define MISMATCHES_MAX 3

enum cairn_code cairn_up_store_check_init(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) {
    *check = (struct cairn_up_store_check){0};
    return cairn_store_worker_new(up->store, &check->worker, err);
}

static enum cairn_code compare_grants(struct cairn_up *up, const char *uuid,
                                      struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    for (struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next) {
        if (!strcmp(at->grant.store_uuid, uuid)) continue;
        return cairn_fail(err, CAIRN_CONFLICT,
                          "store %s is %s, but the journal or the server speaks of store %s "
                          "(run %s)",
                          cairn_store_url(up->store), uuid, at->grant.store_uuid, at->run_text);
    }
    return CAIRN_OK;
}

static enum cairn_code check_once(struct cairn_up_store_check *check, struct cairn_up *up,
                                  struct cairn_error *err) {
    struct cairn_store_record record = {0};
    enum cairn_code code =
        cairn_store_record_get(check->worker, cairn_mono_ms() + READ_MS, &record, err);
    if (code != CAIRN_OK)
        return cairn_within(err, code, "store %s: store.json", cairn_store_url(up->store));
    CAIRN_TRY(compare_grants(up, record.uuid, err));
    if (strcmp(up->locked.store_uuid, record.uuid) != 0) /* only this thread writes it */
        CAIRN_TRY(cairn_up_claim(up, CAIRN_UP_CLAIM_STORE, record.uuid, err));
    CAIRN_HOLD(&up->lock);
    bool first = !up->locked.store_uuid[0];
    (void)cairn_text_copy(up->locked.store_uuid, sizeof(up->locked.store_uuid), record.uuid);
    up->locked.store_waits[0] = '\0';
    up->locked.store_fails = false;
    cairn_condition_broadcast(&up->changed);
    if (first || check->reported)
        cairn_log(INFO, "store.met", "url=%s uuid=%s", cairn_store_url(up->store), record.uuid);
    return CAIRN_OK;
}

/* Requests are retried for minutes, each by itself; this reports sooner that all of them fail. */
static void note_failing(struct cairn_up *up) {
    struct cairn_store_health health;
    cairn_store_health(up->store, &health);
    CAIRN_HOLD(&up->lock);
    if (!health.failing_ms) {
        if (up->locked.store_fails) up->locked.store_waits[0] = '\0';
        up->locked.store_fails = false;
        return;
    }
    if (up->locked.store_fails) return; /* a new text would cost the server a write */
    up->locked.store_waits_since_ms = cairn_mono_ms() - health.failing_ms;
    up->locked.store_fails = true;
    snprintf(up->locked.store_waits, sizeof(up->locked.store_waits),
             "the store fails, and is tried on: %s", health.failing);
}

static void report(struct cairn_up_store_check *check, struct cairn_up *up,
                   const struct cairn_error *why) {
    cairn_lock_take(&up->lock);
    if (!up->locked.store_waits[0]) up->locked.store_waits_since_ms = cairn_mono_ms();
    up->locked.store_fails = false;
    (void)cairn_text_copy(up->locked.store_waits, sizeof(up->locked.store_waits), why->message);
    cairn_lock_give(&up->lock);
    uint64_t unsaid = 0;
    if (!check->reported &&
        cairn_log_limit_allows(&check->log_limit, "store.not_ready", cairn_mono_ms(), &unsaid))
        cairn_log(WARN, "store.not_ready",
                  "url=%s cause=\"%s\" unsaid=%llu hint=\"nothing is sent before this is the store "
                  "of the grants; is it mounted?\"",
                  cairn_store_url(up->store), why->message, (unsigned long long)unsaid);
    check->reported = true;
}

enum cairn_code cairn_up_store_check_tick(struct cairn_up_store_check *check, struct cairn_up *up,
                                          struct cairn_error *err) {
    if (cairn_mono_ms() < check->next_ms) return CAIRN_OK;
    if (cairn_up_queue_is_admitted(up->queue)) {
        check->next_ms = cairn_mono_ms() + PERIOD_MS;
        note_failing(up);
        return CAIRN_OK;
    }
    if (!CAIRN_RULE(Q55)) cairn_up_queue_admit(up->queue);
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    if (cairn_store_moved(up->store))
        code = cairn_up_queue_is_still(up->queue)
                   ? cairn_store_follow(up->store, &why)
                   : cairn_fail(&why, CAIRN_UNAVAILABLE,
                                "another folder is under %s, and requests to the one before are "
                                "under way",
                                cairn_store_url(up->store));
    if (code == CAIRN_OK) code = check_once(check, up, &why);
    check->next_ms = cairn_mono_ms() + PERIOD_MS;
    if (code == CAIRN_OK) {
        check->reported = false;
        check->mismatches = 0;
        cairn_up_queue_admit(up->queue);
        return CAIRN_OK;
    }
    report(check, up, &why);
    bool mismatch = code == CAIRN_UNSUPPORTED || code == CAIRN_CONFLICT || code == CAIRN_CORRUPT;
    check->mismatches = mismatch ? check->mismatches + 1 : 0;
    if (check->mismatches < MISMATCHES_MAX) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

/* True for a grant in the journal: a trainer that offers its saves must not wait for the store. */
static bool is_known(const struct cairn_up *up, const char *grant_uuid) {
    for (const struct cairn_up_attempt *at = up->locked.attempts; at; at = at->next)
        if (!strcmp(at->grant.store_uuid, grant_uuid)) return true;
    return false;
}

enum cairn_code cairn_up_store_check_grant(struct cairn_up *up, const char *grant_uuid,
                                           struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    if (!up->locked.store_uuid[0] && is_known(up, grant_uuid)) return CAIRN_OK;
    uint64_t until_ms = cairn_mono_ms() + CHECK_WAIT_MS;
    while (!up->locked.store_uuid[0] && !up->locked.draining &&
           cairn_condition_wait(&up->changed, &up->lock, until_ms))
        continue;
    if (!up->locked.store_uuid[0])
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store has not been checked: %s",
                          up->locked.store_waits[0] ? up->locked.store_waits
                                                    : "store.json was not looked at yet");
    if (!strcmp(up->locked.store_uuid, grant_uuid)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "the server writes to store %s, this uploader's store %s is %s", grant_uuid,
                      cairn_store_url(up->store), up->locked.store_uuid);
}
