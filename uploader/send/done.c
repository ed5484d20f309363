/* SPDX-License-Identifier: Apache-2.0 */
/* Results of requests: first the journal (upload ids), then the state machine, then the save. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/crc.h"
#include "common/hooks.h"
#include "common/log.h"
#include "uploader/journal/journal.h"
#include "uploader/metrics.h"
#include "uploader/saves/save.h"
#include "uploader/send/inside.h"

#define BACKOFF_MS_MIN UINT64_C(50)
#define BACKOFF_MS_MAX UINT64_C(5000)

/* R2: no part is sent under an upload id that a restart would not know. */
static void remember_upload(struct cairn_up_sender *sender, struct cairn_up_sending *sending) {
    struct cairn_store_request *request = &sending->request;
    if (sending->action.kind != CAIRN_MULTIPART_CREATE || request->code != CAIRN_OK) return;
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

/* Where a listing shows no checksums, a restart knows an acknowledged part by this record. It is
 * not waited for: a part whose record is lost is sent once more. */
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
    /* An ETag that is no UTF-8 cannot be remembered. */
    if (message) (void)!cairn_up_journal_post(up->journal, &record, 1, NULL, NULL, NULL);
}

/* S20: the store says that bytes and checksum differ; the source is summed to see which changed. */
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

/* The store's client has retried already; this pause keeps a dead store from a loop of requests. */
static void back_off(struct cairn_up_shard *shard, enum cairn_code code) {
    uint64_t pause_ms = shard->queue.mp.pause_ms; /* until it is worth another look */
    bool answered = code == CAIRN_OK || code == CAIRN_NOT_FOUND || code == CAIRN_PRECONDITION;
    if (answered) shard->queue.failures = 0;
    if (code == CAIRN_CANCELLED || (answered && !pause_ms)) return;
    uint32_t shift = shard->queue.failures < 8 ? shard->queue.failures : 8;
    if (!answered) {
        shard->queue.failures++;
        pause_ms = cairn_max_u64(pause_ms,
                                 cairn_min_u64(BACKOFF_MS_MAX, BACKOFF_MS_MIN << shift));
    }
    if (cairn_crashpoint_fails("uploader.send.pause")) pause_ms = 0;
    shard->queue.not_before_ms = cairn_mono_ms() + pause_ms;
}

static void log_failure(const struct cairn_up_sending *sending) {
    enum cairn_code code = sending->request.code;
    if (code == CAIRN_OK || code == CAIRN_CANCELLED || code == CAIRN_NOT_FOUND) return;
    /* A store that fails for an hour must not fill a disk (P11). */
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

/* After such an answer another store may be under the same name: it is checked again. */
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

/* What is in no network takes its time in the store. */
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
    remember_upload(sender, sending);
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
    CAIRN_ASSERT(!sending->carries || shard->queue.bodies_in_flight > 0);
    shard->queue.in_flight--;
    if (sending->carries) shard->queue.bodies_in_flight--;
    bool giving_up = shard->queue.upload == CAIRN_UP_UPLOAD_ENDING;
    cairn_lock_give(&send->queue->lock);
    if (sending->carries) CAIRN_CRASHPOINT("uploader.part.done");
    if (sending->action.kind == CAIRN_MULTIPART_COMPLETE)
        CAIRN_CRASHPOINT("uploader.complete.done");
    if (sending->carries && sending->request.code == CAIRN_OK)
        tell_acked(sending, entry, index); /* the shard may be gone */
    cairn_up_sending_free(sending);
    if (giving_up) cairn_up_save_settle(send->up, entry);
}

void cairn_up_send_finish(struct cairn_up_sender *sender) {
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
    /* A result may have made work (parts after CREATE) that another worker has room for. */
    if (any && sender->send->sender_count > 1) cairn_up_queue_wake(sender->send->queue);
}

void cairn_up_send_cancel_given_up(struct cairn_up_sender *sender, bool all) {
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
