/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that empty the queue of shards. */
#include "uploader/send/send.h"

#include <stdlib.h>

#include "common/log.h"
#include "uploader/cores.h"
#include "uploader/metrics.h"
#include "uploader/send/inside.h"

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

/* What has ended is not left for the end of a wait: nobody would ring for it. */
static bool is_told_all(const struct cairn_up_sender *sender) {
    for (const struct cairn_up_sending *at = sender->flying; at; at = at->next)
        if (at->finished) return false;
    return true;
}

static void run_once(struct cairn_up_sender *sender) {
    struct cairn_up_send *send = sender->send;
    cairn_up_send_cancel_given_up(sender, false);
    cairn_up_send_finish(sender); /* a request that is cancelled has ended with that */
    uint32_t appetite = cairn_store_appetite(sender->store);
    uint64_t again_ms = UINT64_MAX; /* nothing comes by time alone */
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
    sender->late.timed_out = !picked && may && sender->flying_count < appetite &&
                             again_ms == UINT64_MAX && cairn_mono_ms() >= from_ms + IDLE_POLL_MS;
    cairn_up_send_finish(sender);
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
    cairn_up_send_cancel_given_up(sender, true);
    cairn_up_send_finish(sender);
    CAIRN_ASSERT(!sender->flying && !sender->flying_count);
    return NULL;
}

enum cairn_code cairn_up_send_start(struct cairn_up_send *send, struct cairn_error *err) {
    for (size_t i = 0; i < send->sender_count; i++) {
        if (pthread_create(&send->senders[i].thread, NULL, sender_main, &send->senders[i]))
            return cairn_fail(err, CAIRN_INTERNAL, "no thread for a sender");
        send->senders[i].started = true;
    }
    return cairn_up_readers_start(send, err);
}

bool cairn_up_send_stop(struct cairn_up_send *send) {
    if (!send) return true;
    cairn_lock_take(&send->queue->lock);
    send->queue->locked.stopping = true;
    cairn_lock_give(&send->queue->lock);
    cairn_up_queue_wake(send->queue);
    for (size_t i = 0; i < send->sender_count; i++) {
        if (send->senders[i].started) pthread_join(send->senders[i].thread, NULL);
        send->senders[i].started = false;
    }
    return cairn_up_readers_stop(send);
}

void cairn_up_send_free(struct cairn_up_send *send) {
    if (!send) return;
    bool quiet = cairn_up_send_stop(send);
    CAIRN_ASSERT(quiet); /* whoever frees has stopped it before */
    cairn_up_readers_free(send);
    cairn_up_queue_drop_workers(send->queue);
    for (size_t i = 0; i < send->sender_count; i++) {
        if (send->senders[i].store) cairn_store_worker_free(send->senders[i].store);
        free(send->senders[i].read_buffer);
    }
    free(send->senders);
    free(send);
}
