/* SPDX-License-Identifier: Apache-2.0 */
/* Start, serve, drain, stop. */
#include "uploader/daemon.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/process.h"
#include "common/text.h"
#include "store/s3/start.h"
#include "uploader/fetch/fetch.h"
#include "uploader/journal/recover.h"
#include "uploader/partner/partner.h"
#include "uploader/port/port.h"
#include "uploader/send/send.h"
#include "uploader/server/outbox.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/attempts.h"
#include "uploader/trainers/socket.h"

#define TICK_MS 200
#define DRAIN_LOOK_MS 20
#define LAST_WORD_MS 3000 /* how long a drain awaits versions' outcome after the last report */
#define TASKS_WAIT_MS 2000
#define PROBE_MS 5000 /* bound of each request that tests the store */

/* Starts even while the store is unreachable, because trainers and the journal need the uploader;
 * until the store answers, safe assumptions hold. */
static enum cairn_code start_store(struct cairn_up *up, const char *url, struct cairn_store **ret,
                                   struct cairn_error *err) {
    struct cairn_store_s3_settings settings = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_STORE_S3_SETTING_OF(&up->settings, type, name)
#include "store/s3/settings.def"
#undef CONFIG
    };
    struct cairn_store_start start = {.url = url,
                                      .s3 = &settings,
                                      .file_mode = up->settings.file_mode,
                                      .by = "uploader",
                                      .probe_ms = PROBE_MS};
    return cairn_store_start(&start, ret, err);
}

static enum cairn_code load_token(struct cairn_up *up, struct cairn_error *err) {
    const char *given = getenv("CAIRN_TOKEN");
    CAIRN_AUTO(buf) text = {.limit = CAIRN_REST_TOKEN_BYTES_MAX};
    if (*up->settings.token_file) {
        CAIRN_TRY(cairn_file_load_secret_line(up->settings.token_file, &text, err));
        if (cairn_file_is_shared(up->settings.token_file))
            cairn_log(WARN, "token.file_shared",
                      "file=\"%s\" cause=\"its group can read or write it; chmod 600 it unless "
                      "that is meant\"",
                      up->settings.token_file);
        given = text.size ? text.data : NULL;
    }
    if (!given || !*given) return CAIRN_OK;
    up->token = strdup(given);
    if (text.data) explicit_bzero(text.data, text.size);
    return up->token ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the token");
}

static enum cairn_code make_parts(struct cairn_up *up, struct cairn_error *err) {
    CAIRN_TRY(cairn_up_metrics_new(&up->metrics, err));
    CAIRN_TRY(load_token(up, err));
    /* Skips a further read store that cannot be opened: the main store has every version. */
    CAIRN_AUTO(stores) stores = {0};
    CAIRN_TRY(start_store(up, up->settings.store, &up->store, err));
    CAIRN_TRY(cairn_stores_parse(up->settings.stores, &stores, err));
    for (size_t i = 0; i < stores.count; i++) {
        struct cairn_store *store = i == stores.main ? up->store : NULL;
        struct cairn_error why = {0};
        if (!store && start_store(up, stores.items[i].url, &store, &why) != CAIRN_OK)
            cairn_log(WARN, "store.further_away", "store=%s cause=\"%s\"", stores.items[i].name,
                      why.message);
        if (store) up->reads[up->read_count++] = store;
    }
    CAIRN_TRY(cairn_up_mail_new(&up->mail, err));
    CAIRN_TRY(cairn_up_socket_new(up, &up->socket, err));
    CAIRN_TRY(cairn_up_tasks_new(up, &up->tasks, err));
    CAIRN_TRY(cairn_up_queue_new(up, &up->queue, err));
    CAIRN_TRY(cairn_up_send_new(up, &up->send, err));
    CAIRN_TRY(cairn_up_peers_new(up, &up->peers, err));
    CAIRN_TRY(cairn_up_partner_new(up, &up->partner, err));
    CAIRN_TRY(cairn_up_fetch_new(up, &up->fetch, err));
    const char *folder = up->settings.state_dir;
    CAIRN_TRY(cairn_dir_make(folder, 0700, err));
    CAIRN_TRY(cairn_dir_check_own(folder, "state_dir", err)); /* the journal holds credentials */
    if (access(up->places.journal_path, F_OK) != 0)
        cairn_up_journal_tell_others(
            folder, &(struct cairn_up_journal_own){up->places.journal_path, up->places.node,
                                                   up->places.host, *up->settings.node != '\0'});
    struct cairn_up_recovery *recovery = NULL;
    CAIRN_TRY(cairn_up_recovery_new(&recovery, err));
    struct cairn_up_journal_options options = {
        .path = up->places.journal_path,
        .node = up->places.node,
        .replay = cairn_up_recovery_replay,
        .owner = recovery,
        .lost = cairn_up_save_unwritten,
        .lost_owner = up,
    };
    enum cairn_code code = cairn_up_journal_open(&options, &up->journal, err);
    if (code == CAIRN_OK) code = cairn_up_recovery_build(recovery, up, err);
    cairn_up_recovery_free(recovery);
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_up_outbox_new(up, &up->outbox, err));
    CAIRN_TRY(cairn_up_lists_new(up, &up->lists, err));
    return cairn_up_watch_new(up, &up->watch, err);
}

static enum cairn_up_slab_use use_of(const struct cairn_up_slab *slab) {
    if (slab->state.owner) return CAIRN_UP_SLAB_HELD;
    return cairn_up_kept_is_spare(slab) ? CAIRN_UP_SLAB_KEPT : CAIRN_UP_SLAB_FREE;
}

static void measure_slabs(struct cairn_up *up) {
    int64_t bytes[CAIRN_UP_SLAB_USES] = {0}, kept = 0;
    {
        CAIRN_HOLD(&up->lock);
        for (const struct cairn_up_slab *slab = up->locked.slabs; slab; slab = slab->next)
            bytes[use_of(slab)] += (int64_t)slab->bytes;
        kept = (int64_t)cairn_up_kept_bytes_locked(up);
    }
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(kept_bytes), kept);
    for (size_t use = 0; use < CAIRN_UP_SLAB_USES; use++)
        cairn_metrics_set(up->metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_slab_bytes, use, 0},
                          bytes[use]);
}

static void measure_queue(struct cairn_up *up) {
    int64_t count = 0;
    {
        CAIRN_HOLD(&up->queue->lock);
        count = (int64_t)up->queue->locked.depth;
    }
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(queue_depth), count);
}

static enum cairn_code write_metrics(void *owner, struct cairn_buf *ret, struct cairn_error *err) {
    struct cairn_up *up = owner;
    measure_slabs(up);
    measure_queue(up);
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(saves_unfinished),
                      (int64_t)cairn_up_save_unfinished(up, NULL));
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(memory_budget_bytes),
                      (int64_t)up->budget.total_bytes);
    int64_t keys_until_ms = cairn_store_keys_until_ms(up->store);
    if (keys_until_ms)
        cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(credential_expiry_timestamp_seconds),
                          keys_until_ms / 1000);
    return cairn_metrics_write(up->metrics, ret, err);
}

enum cairn_code cairn_up_start(struct cairn_up *up, struct cairn_error *err) {
    cairn_lock_init(&up->lock, CAIRN_LOCK_uploader_state);
    cairn_condition_init(&up->changed);
    cairn_up_wakeup_init(&up->outbox_work);
    cairn_up_wakeup_init(&up->partner_work);
    cairn_lock_init(&up->restores.lock, CAIRN_LOCK_uploader_restores);
    cairn_budget_init(&up->budget, up->places.budget_bytes);
    cairn_uuid_random(up->uuid);
    CAIRN_TRY(cairn_up_claim(up, CAIRN_UP_CLAIM_SERVER, up->settings.server, err));
    CAIRN_TRY(make_parts(up, err));
    CAIRN_TRY(cairn_up_send_start(up->send, err));
    CAIRN_TRY(cairn_up_outbox_start(up->outbox, err));
    if (up->peers) CAIRN_TRY(cairn_up_port_start(up->peers->port, err));
    CAIRN_TRY(cairn_up_partner_start(up->partner, err));
    CAIRN_TRY(cairn_up_lists_start(up->lists, err));
    CAIRN_TRY(cairn_up_watch_start(up->watch, err));
    CAIRN_TRY(cairn_up_socket_start(up->socket, err));
    CAIRN_TRY(
        cairn_up_scrape_start(up->settings.metrics_listen, write_metrics, up, &up->scrape, err));
    char budget[24];
    cairn_size_text(up->budget.total_bytes, budget);
    cairn_log(INFO, "uploader.ready", "node=%s socket=%s store=%s server=%s budget=\"%s\"",
              up->places.node, up->places.socket_path, cairn_store_url(up->store),
              up->settings.server, budget);
    return CAIRN_OK;
}

static void drain(struct cairn_up *up, struct cairn_up_store_check *check) {
    uint64_t deadline_ms = cairn_mono_ms() + up->settings.drain_timeout_ms;
    cairn_up_socket_stop_accepting(up->socket);
    cairn_lock_take(&up->lock);
    up->locked.draining = true;
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    cairn_up_slabs_serve(up); /* refuses waiting requests */
    cairn_log(INFO, "uploader.draining", "saves=%" PRIu64 " at_most_ms=%" PRIu64,
              cairn_up_save_unfinished(up, NULL), up->settings.drain_timeout_ms);
    uint64_t open = 0, left = 0, done_ms = 0;
    while (cairn_mono_ms() < deadline_ms) {
        if (cairn_up_store_check_tick(check, up, NULL) != CAIRN_OK) break; /* logged by the check */
        cairn_up_recovery_tick(up);
        left = cairn_up_save_unfinished(up, &open);
        if (!left && !done_ms) done_ms = cairn_mono_ms();
        if (!open || (!left && cairn_mono_ms() > done_ms + LAST_WORD_MS)) break;
        CAIRN_HOLD(&up->lock);
        (void)cairn_condition_wait(&up->changed, &up->lock, cairn_mono_ms() + DRAIN_LOOK_MS);
    }
    left = cairn_up_save_unfinished(up, &open);
    if (left)
        cairn_log(WARN, "uploader.left_over",
                  "saves=%" PRIu64 " hint=\"the next start goes on with what living trainers hold; "
                  "of ended ones it has only what the store has\"",
                  left);
}

enum cairn_code cairn_up_run(struct cairn_up *up, int stop_fd, struct cairn_error *err) {
    struct cairn_up_store_check check;
    CAIRN_TRY(cairn_up_store_check_init(&check, up, err));
    struct pollfd waiting[] = {
        {.fd = stop_fd, .events = POLLIN},
        {.fd = up->peers ? up->peers->members.hurry_fd : -1, .events = POLLIN}};
    enum cairn_code code = CAIRN_OK;
    struct cairn_store_watch watch = {0};
    while (code == CAIRN_OK) {
        code = cairn_up_store_check_tick(&check, up, err);
        cairn_store_watch_look(&watch, up->store, true);
        cairn_up_recovery_tick(up);
        if (cairn_up_ended_tick(up)) cairn_up_watch_beat(up->watch);
        if (up->peers && cairn_up_members_hurried(&up->peers->members))
            cairn_up_watch_beat(up->watch);
        cairn_up_kept_tick(up);
        cairn_up_partner_tick(up->partner);
        cairn_up_slabs_serve(up);
        cairn_up_version_tick(up->fetch, false);
        cairn_up_claims_tick(up);
        cairn_manager_alive();
        if (cairn_up_queue_is_still(up->queue))
            atomic_store_explicit(&up->answered_ms, cairn_mono_ms(), memory_order_relaxed);
        if (poll(waiting, CAIRN_COUNT(waiting), TICK_MS) > 0 && waiting[0].revents) break;
    }
    cairn_manager_tell("STOPPING=1");
    if (code == CAIRN_OK) drain(up, &check);
    cairn_store_worker_free(check.worker);
    return code;
}

void cairn_up_stop(struct cairn_up *up, int status) {
    cairn_lock_take(&up->lock);
    up->locked.ending = up->locked.draining = true;
    cairn_condition_broadcast(&up->changed);
    cairn_lock_give(&up->lock);
    cairn_up_slabs_serve(up); /* refuses requests still waiting */
    cairn_up_scrape_stop(CAIRN_TAKE(up->scrape));
    cairn_up_socket_stop(up->socket);
    cairn_up_watch_stop(up->watch);
    cairn_up_lists_stop(up->lists);
    cairn_up_outbox_stop(up->outbox);
    bool quiet = cairn_up_send_stop(up->send);
    cairn_up_peers_stop(up->peers); /* the port's routes wait for the readers */
    cairn_up_partner_stop(up->partner);
    cairn_up_fetch_stop(up->fetch);
    quiet &= cairn_up_tasks_stop(up->tasks, TASKS_WAIT_MS);
    if (!quiet) { /* a helper is blocked in a file or a call to the server */
        cairn_up_journal_free(up->journal);
        _exit(status);
    }
    cairn_up_tasks_free(CAIRN_TAKE(up->tasks));
    cairn_up_attempt_calls_free(up);
    if (up->mail) cairn_up_mail_drop(up->mail); /* dropping an attempt closes its journal entry */
    cairn_up_journal_free(CAIRN_TAKE(up->journal));
    cairn_up_socket_free(CAIRN_TAKE(up->socket));
    cairn_up_mail_free(up->mail);
    cairn_up_watch_free(up->watch);
    cairn_up_lists_free(CAIRN_TAKE(up->lists));
    cairn_up_outbox_free(CAIRN_TAKE(up->outbox));
    cairn_up_fetch_free(up->fetch);
    if (up->send) cairn_up_save_free_all(up);
    cairn_up_partner_free(up->partner); /* after senders, which read from its memory */
    cairn_up_peers_free(up->peers);
    cairn_up_tables_free_all(up);
    cairn_up_slabs_free_all(up);
    cairn_up_ended_free(up);
    cairn_up_send_free(up->send);
    cairn_up_queue_free(up->queue);
    for (size_t i = 0; i < up->read_count; i++)
        if (up->reads[i] != up->store) cairn_store_free(up->reads[i]);
    if (up->store) cairn_store_free(up->store);
    cairn_metrics_free(up->metrics);
    cairn_up_claims_release(up);
    if (up->token) explicit_bzero(up->token, strlen(up->token));
    free(up->token);
    cairn_budget_release(&up->budget);
    cairn_up_wakeup_release(&up->outbox_work);
    cairn_up_wakeup_release(&up->partner_work);
    cairn_lock_release(&up->restores.lock);
    cairn_condition_release(&up->changed);
    cairn_lock_release(&up->lock);
}
