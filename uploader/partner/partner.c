/* SPDX-License-Identifier: Apache-2.0 */
/* The room's life, and its thread, which gives sealed saves to the partner, oldest first, and hands
 * over saves whose bytes are lost here. While none waits, it gives kept saves. */
#include "uploader/partner/partner.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/hash/hash.h"
#include "common/hooks.h"
#include "common/text.h"
#include "uploader/journal/format.h"
#include "uploader/mail.h"
#include "uploader/partner/inside.h"

#define LOOK_MS 500
#define AGAIN_MS 500       /* after a refusal or a failed connection */
#define KEPT_AGAIN_MS 5000 /* likewise, for kept saves */
#define HANDED_MS 3000     /* interval of asking whether a sending partner still has the copy */
#define GONE_MS 60000      /* after so long without an answer the partner's copy counts as lost */

struct gift {       /* a copied extract of a save, which may end meanwhile */
    uint64_t entry; /* 0: only kept */
    struct cairn_version_id version;
    uint32_t rank;
    struct cairn_run_name run;
    uint64_t attempt;
    struct cairn_up_member to;
    uint8_t key[CAIRN_PEER_KEY_BYTES];
};

static void answered(struct cairn_up_ask *ask) {
    struct cairn_up_partner *partner = ask->owner;
    CAIRN_HOLD(&partner->lock);
    partner->locked.answered = true;
    cairn_condition_broadcast(&partner->changed);
}

/* Sends the request and waits: an unresponsive peer fails within seconds (ask.h#2). */
static enum cairn_code put_to_partner(struct cairn_up_partner *partner, const struct gift *gift,
                                      const char *tail, struct cairn_view body,
                                      struct cairn_error *err) {
    struct cairn_up_ask ask = {.to = gift->to,
                               .run = gift->run,
                               .attempt = gift->attempt,
                               .method = "PUT",
                               .body = body,
                               .done = answered,
                               .owner = partner};
    memcpy(ask.key, gift->key, sizeof(ask.key));
    snprintf(ask.path, sizeof(ask.path), CAIRN_UP_COPY_PATH "%s/%" PRIu32 "/%s", gift->version.text,
             gift->rank, tail);
    {
        CAIRN_HOLD(&partner->lock);
        partner->locked.answered = false;
    }
    CAIRN_TRY(cairn_up_asks_add(partner->up->peers->asks, &ask, err));
    CAIRN_HOLD(&partner->lock);
    while (!partner->locked.answered)
        (void)cairn_condition_wait(&partner->changed, &partner->lock, UINT64_MAX);
    if (ask.code && err) *err = ask.error;
    return ask.code;
}

static bool is_due(const struct cairn_up_save *save, uint64_t now_ms) {
    const struct cairn_up_partnering *own = &save->partner;
    return save->state.phase == CAIRN_UP_PHASE_SEALED && now_ms >= own->next_ms;
}

static bool is_to_give(struct cairn_up *up, const struct cairn_up_save *save) {
    return (save->slab || save->stream_count) && !save->partner.node[0] &&
           !save->abort_on_disconnect && cairn_up_save_is_here_locked(up, save);
}

/* True for saves with files or bound to their trainer, which are never partnered. */
static bool is_only_here(const struct cairn_up_save *save) {
    return save->file_count && !save->abort_on_disconnect && !save->partner.complained;
}

/* Warns once per save that it has no partner. */
static void complain_locked(struct cairn_up_save *save, const char *node, const char *cause) {
    if (save->partner.complained) return;
    save->partner.complained = true;
    cairn_log(WARN, "save.unpartnered",
              "run=%s step=%" PRIu64 " rank=%u version=%s node=%s cause=\"%s\" "
              "hint=\"the save goes on; until it is committed it lies on this node alone\"",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text, node,
              cause);
}

/* True when the bytes died with the previous uploader process and no trainer has offered them. */
static bool is_to_hand_over(struct cairn_up *up, const struct cairn_up_save *save) {
    return save->partner.node[0] && save->partner.recovered && !up->locked.offers_awaited &&
           !cairn_up_save_state_is_durable(&save->state) && !cairn_up_save_is_here_locked(up, save);
}

/* Finds the slab that keeps the save which the partner lacks; NULL: none. */
static struct cairn_up_slab *slab_of_locked(const struct cairn_up *up, const struct gift *gift) {
    for (struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (at->kept && at->kept->gift.head.size && at->kept->rank == gift->rank &&
            !strcmp(at->kept->version.text, gift->version.text))
            return at;
    return NULL;
}

/* *ret_gives: give the save; otherwise hand it over. */
static bool pick_save_locked(struct cairn_up *up, struct gift *ret, bool *ret_gives) {
    uint64_t now_ms = cairn_mono_ms();
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!is_due(save, now_ms)) continue;
        if (is_only_here(save)) {
            /* Excludes files: they are read as they are sent, so there are no checksums for a
             * partner yet. */
            struct cairn_up_member to;
            uint8_t key[CAIRN_PEER_KEY_BYTES];
            save->partner.next_ms = cairn_mono_ms() + AGAIN_MS;
            if (cairn_up_members_partner(&up->peers->members, &save->place.name,
                                         save->attempt->grant.attempt, NULL, &to, key))
                complain_locked(save, to.node, "it has files, which are read as they are sent");
            cairn_wipe(key, sizeof(key));
        }
        *ret_gives = is_to_give(up, save);
        if (!*ret_gives && !is_to_hand_over(up, save)) continue;
        *ret = (struct gift){.entry = save->entry,
                             .version = save->place.id,
                             .rank = save->rank,
                             .run = save->place.name,
                             .attempt = save->attempt->grant.attempt};
        const char *node = *ret_gives ? NULL : save->partner.node;
        save->partner.next_ms = now_ms + AGAIN_MS;
        if (!save->partner.since_ms) save->partner.since_ms = now_ms;
        if (cairn_up_members_partner(&up->peers->members, &ret->run, ret->attempt, node, &ret->to,
                                     ret->key))
            return true;
        if (!*ret_gives) return true; /* a handover also checks that it is lost here */
    }
    return false;
}

/* Prefers saves to kept generations: only this node has their bytes. */
static bool pick(struct cairn_up_partner *partner, struct gift *ret, bool *ret_gives) {
    CAIRN_HOLD(&partner->up->lock);
    if (pick_save_locked(partner->up, ret, ret_gives)) return true;
    *ret_gives = true;
    /* Picks a kept generation that the store had before the partner. */
    uint64_t now_ms = cairn_mono_ms();
    for (const struct cairn_up_slab *at = partner->up->locked.slabs; at; at = at->next) {
        struct cairn_up_kept *kept = at->kept;
        if (!kept || !kept->gift.head.size || now_ms < kept->gift.next_ms ||
            cairn_up_kept_is_outdated_locked(partner->up, kept))
            continue;
        *ret = (struct gift){.version = kept->version,
                             .rank = kept->rank,
                             .run = kept->run,
                             .attempt = kept->attempt};
        kept->gift.next_ms = now_ms + KEPT_AGAIN_MS;
        if (cairn_up_members_partner(&partner->up->peers->members, &ret->run, ret->attempt, NULL,
                                     &ret->to, ret->key))
            return true;
    }
    return false;
}

/* True when a save waits for the partner; kept generations yield to it. */
static bool is_awaited_locked(struct cairn_up *up) {
    uint64_t now_ms = cairn_mono_ms();
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (is_due(up->locked.saves[i], now_ms) && is_to_give(up, up->locked.saves[i])) return true;
    return false;
}

static const struct cairn_up_kept_shard *shard_at(const struct cairn_up_kept *kept, size_t place) {
    for (size_t i = 0; i < kept->shard_count; i++)
        if (kept->shards[i].place == place) return &kept->shards[i];
    return NULL;
}

/* Copies from the slab that keeps the save; the partner refuses a piece overwritten meanwhile. */
static enum cairn_code copy_kept_piece(struct cairn_up_partner *partner, const struct gift *gift,
                                       size_t index, uint64_t offset, size_t *ret_bytes,
                                       struct cairn_error *err) {
    struct cairn_up *up = partner->up;
    struct cairn_up_kept_bytes bytes = {0};
    {
        CAIRN_HOLD(&up->lock);
        struct cairn_up_slab *slab = slab_of_locked(up, gift);
        const struct cairn_up_kept_shard *shard = slab ? shard_at(slab->kept, index) : NULL;
        if (!shard) return cairn_fail(err, CAIRN_NOT_FOUND, "its memory was given back");
        if (is_awaited_locked(up)) return cairn_fail(err, CAIRN_CANCELLED, "a newer save waits");
        *ret_bytes = (size_t)cairn_min_u64(CAIRN_UP_COPY_PIECE_BYTES, shard->bytes - offset);
        slab->pins++;
        bytes = (struct cairn_up_kept_bytes){
            .slab = slab, .kept = slab->state.kept, .data = slab->memory.data + shard->offset};
    }
    memcpy(partner->buffer, bytes.data + offset, *ret_bytes);
    cairn_up_kept_unpin(up, &bytes, true); /* the partner compares the bytes */
    return CAIRN_OK;
}

/* Copies from the slab or a stream, while the save holds it for milliseconds, or from the kept
 * generation. */
static enum cairn_code copy_piece(struct cairn_up_partner *partner, const struct gift *gift,
                                  size_t index, uint64_t offset, size_t *ret_bytes,
                                  struct cairn_error *err) {
    struct cairn_up *up = partner->up;
    const uint8_t *from = NULL;
    {
        CAIRN_HOLD(&up->lock);
        struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
        bool open = save && save->state.phase == CAIRN_UP_PHASE_SEALED;
        from = open ? cairn_up_save_bytes_locked(up, save, index) : NULL;
        if (from) {
            *ret_bytes = (size_t)cairn_min_u64(CAIRN_UP_COPY_PIECE_BYTES,
                                               save->shards[index]->size_bytes - offset);
            from += offset;
            save->partner.reading = true;
        }
    }
    if (!from) return copy_kept_piece(partner, gift, index, offset, ret_bytes, err);
    memcpy(partner->buffer, from, *ret_bytes);
    CAIRN_CRASHPOINT("uploader.partner.copying");
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    CAIRN_ASSERT(save);
    save->partner.reading = false;
    cairn_up_save_settle_locked(up, save);
    return CAIRN_OK;
}

/* False: no such shard, or the save is neither open nor kept. */
static bool shard_bytes(struct cairn_up *up, const struct gift *gift, size_t index,
                        uint64_t *ret_bytes) {
    CAIRN_HOLD(&up->lock);
    const struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (save) {
        if (index >= save->state.shard_count) return false;
        *ret_bytes = save->shards[index]->size_bytes;
        return true;
    }
    const struct cairn_up_slab *slab = slab_of_locked(up, gift);
    const struct cairn_up_kept_shard *shard = slab ? shard_at(slab->kept, index) : NULL;
    if (!shard) return false;
    *ret_bytes = shard->bytes;
    return true;
}

static enum cairn_code describe_gift(struct cairn_up *up, const struct gift *gift,
                                     struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_HOLD(&up->lock);
    const struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (save) return cairn_up_save_describe_locked(up, save, ret, err);
    const struct cairn_up_slab *slab = slab_of_locked(up, gift);
    if (!slab) return cairn_fail(err, CAIRN_NOT_FOUND, "it is over");
    ret->limit = CAIRN_UP_DESCRIPTION_BYTES_MAX;
    const struct cairn_buf *head = &slab->kept->gift.head;
    return cairn_buf_append(ret, head->data, head->size, err);
}

/* Journals the shards' tokens, and the partner that has the save (NULL: none yet). */
static enum cairn_code remember(struct cairn_up_partner *partner, const struct gift *gift,
                                const char *node, struct cairn_error *err) {
    struct cairn_up *up = partner->up;
    struct cairn_up_notes notes = {0};
    enum cairn_code code = CAIRN_OK;
    cairn_lock_take(&up->lock);
    const struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (!save || save->state.phase != CAIRN_UP_PHASE_SEALED)
        code = cairn_fail(err, CAIRN_NOT_FOUND, "it is over");
    for (size_t i = 0; !code && i < save->state.shard_count; i++)
        code = cairn_up_notes_add(&notes, gift->entry,
                                  cairn_up_shard_intent(up->queue, save->shards[i], node),
                                  (struct cairn_view){0}, err);
    cairn_lock_give(&up->lock);
    if (!code) code = cairn_up_journal_append(up->journal, notes.records, notes.count, err);
    cairn_up_notes_release(&notes);
    return code;
}

/* Journals tokens before the partner receives them: it may send under them while this node
 * restarts, which then must not draw new ones. Once per save. */
static enum cairn_code remember_tokens(struct cairn_up_partner *partner, const struct gift *gift,
                                       struct cairn_error *err) {
    struct cairn_up *up = partner->up;
    {
        CAIRN_HOLD(&up->lock);
        const struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
        if (save && save->partner.tokens_journaled) return CAIRN_OK;
    }
    CAIRN_TRY(remember(partner, gift, NULL, err));
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (save) save->partner.tokens_journaled = true;
    return CAIRN_OK;
}

static void tell_partnered(struct cairn_up_partner *partner, const struct gift *gift) {
    struct cairn_up *up = partner->up;
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (!save || save->state.phase != CAIRN_UP_PHASE_SEALED) return;
    (void)cairn_text_copy(save->partner.node, sizeof(save->partner.node), gift->to.node);
    cairn_up_mail_wake(up->mail); /* its session tells the trainer */
    cairn_metrics_add(up->metrics, CAIRN_UP_METRIC(partnered_saves_total), 1);
    cairn_log(INFO, "save.partnered", "run=%s step=%" PRIu64 " rank=%u version=%s node=%s",
              save->attempt->run_text, save->place.step, save->rank, save->place.id.text,
              gift->to.node);
}

/* The partner has the kept bytes: drops the description. */
static void forget_gift(struct cairn_up_partner *partner, const struct gift *gift) {
    struct cairn_up *up = partner->up;
    CAIRN_HOLD(&up->lock);
    struct cairn_up_slab *slab = slab_of_locked(up, gift);
    if (!slab) return;
    cairn_buf_release(&slab->kept->gift.head);
    cairn_log(INFO, "kept.given", "run=%s step=%" PRIu64 " rank=%u version=%s node=%s",
              slab->kept->run_text, slab->kept->step, gift->rank, gift->version.text,
              gift->to.node);
}

/* True when the save still needs a copy: it is open at the server, even if the store has it. */
static bool is_under_way(struct cairn_up *up, const struct gift *gift) {
    CAIRN_HOLD(&up->lock);
    const struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    return save && save->state.phase == CAIRN_UP_PHASE_SEALED;
}

static enum cairn_code give(struct cairn_up_partner *partner, const struct gift *gift,
                            struct cairn_error *err) {
    if (gift->entry) CAIRN_TRY(remember_tokens(partner, gift, err));
    CAIRN_AUTO(buf) head = {0};
    uint8_t sum[CAIRN_SHA256_BYTES];
    char hex[2 * CAIRN_SHA256_BYTES + 1];
    CAIRN_TRY(describe_gift(partner->up, gift, &head, err));
    cairn_sha256_of(cairn_buf_view(&head), sum);
    cairn_hex_encode(sum, sizeof(sum), hex);
    CAIRN_TRY(put_to_partner(partner, gift, hex, cairn_buf_view(&head), err));
    uint64_t bytes = 0;
    for (size_t i = 0; shard_bytes(partner->up, gift, i, &bytes); i++) {
        for (uint64_t offset = 0; offset < bytes; offset += CAIRN_UP_COPY_PIECE_BYTES) {
            char tail[64];
            size_t size = 0;
            CAIRN_TRY(copy_piece(partner, gift, i, offset, &size, err));
            snprintf(tail, sizeof(tail), "%zu/%" PRIu64, i, offset);
            CAIRN_TRY(put_to_partner(partner, gift, tail,
                                     (struct cairn_view){partner->buffer, size}, err));
        }
    }
    CAIRN_TRY(put_to_partner(partner, gift, "whole", (struct cairn_view){"", 0}, err));
    forget_gift(partner, gift);
    if (!is_under_way(partner->up, gift)) return CAIRN_OK;
    CAIRN_CRASHPOINT("uploader.partner.whole");
    CAIRN_TRY(remember(partner, gift, gift->to.node, err));
    CAIRN_CRASHPOINT("uploader.partner.journaled");
    tell_partnered(partner, gift);
    return CAIRN_OK;
}

/* The save continues without a copy, which is retried while its memory is here. */
static void refused(struct cairn_up_partner *partner, const struct gift *gift,
                    const struct cairn_error *why) {
    struct cairn_up *up = partner->up;
    if (why->code == CAIRN_CANCELLED || why->code == CAIRN_NOT_FOUND) return;
    CAIRN_HOLD(&up->lock);
    cairn_up_members_outdate(&up->peers->members, &gift->run);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (!save) return;
    save->partner.next_ms = cairn_mono_ms() + AGAIN_MS;
    complain_locked(save, gift->to.node, why->message);
}

/* True when the partner's copy is lost; not while the server is unreachable, which names the
 * partner's address and takes the failure. A sending partner may have dropped it at the end. */
static bool is_gone(struct cairn_up *up, struct cairn_up_save *save, const struct gift *gift,
                    enum cairn_code code) {
    bool refuses = code == CAIRN_NOT_FOUND || code == CAIRN_CONFLICT || code == CAIRN_FORBIDDEN;
    if (refuses && !save->partner.handed) return true;
    if (!cairn_up_members_heard(&up->peers->members, &gift->run, gift->attempt,
                                GONE_MS + 2 * up->settings.heartbeat_ms))
        save->partner.since_ms = cairn_mono_ms();
    uint64_t wait_ms = refuses ? 3 * up->settings.heartbeat_ms : GONE_MS;
    return cairn_mono_ms() > save->partner.since_ms + wait_ms;
}

static void hand_over(struct cairn_up_partner *partner, const struct gift *gift) {
    struct cairn_up *up = partner->up;
    struct cairn_error why = {0};
    enum cairn_code code =
        gift->to.node[0]
            ? put_to_partner(partner, gift, "finish", (struct cairn_view){"", 0}, &why)
            : cairn_fail(&why, CAIRN_UNAVAILABLE, "it is no node of the attempt any more");
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, gift->entry);
    if (!save || save->state.phase != CAIRN_UP_PHASE_SEALED) return;
    if (!code) {
        save->partner.since_ms = cairn_mono_ms();
        save->partner.next_ms = save->partner.since_ms + HANDED_MS;
        if (!save->partner.handed)
            cairn_log(INFO, "save.handed_over",
                      "run=%s step=%" PRIu64 " rank=%u version=%s node=%s", save->attempt->run_text,
                      save->place.step, save->rank, save->place.id.text, gift->to.node);
        save->partner.handed = true;
        return;
    }
    cairn_up_members_outdate(&up->peers->members, &gift->run);
    if (!is_gone(up, save, gift, code)) return;
    cairn_within(&why, CAIRN_SOURCE_GONE, "its bytes are gone here, and the copy on node %s, too",
                 save->partner.node);
    why.code = CAIRN_SOURCE_GONE;
    cairn_up_save_fail_for_locked(up, save, &why);
}

/* True when a retry or a question to a sending partner is due by time alone. */
static bool is_paused(struct cairn_up *up) {
    uint64_t now_ms = cairn_mono_ms();
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++)
        if (up->locked.saves[i]->partner.next_ms > now_ms) return true;
    for (const struct cairn_up_slab *at = up->locked.slabs; at; at = at->next)
        if (at->kept && at->kept->gift.next_ms > now_ms) return true;
    return false;
}

/* False: stop. */
static bool wait_for_work(struct cairn_up_partner *partner) {
    struct cairn_up *up = partner->up;
    bool paused = is_paused(up);
    uint64_t until_ms = cairn_mono_ms() + LOOK_MS;
    if (!cairn_up_wakeup_wait(&up->partner_work, until_ms, false)) return false;
    partner->late.timed_out = !paused && cairn_mono_ms() >= until_ms;
    if (cairn_late_before(&partner->late, &up->partner_work.bell, cairn_mono_ms()))
        cairn_up_metrics_late(up->metrics, CAIRN_UP_WAIT_PARTNERS);
    return true;
}

static void *giving_main(void *argument) {
    struct cairn_up_partner *partner = argument;
    pthread_setname_np(pthread_self(), "partner");
    while (wait_for_work(partner)) {
        struct gift gift;
        bool gives = false, any = pick(partner, &gift, &gives);
        cairn_late_after(&partner->late, &partner->up->partner_work.bell, any, cairn_mono_ms());
        for (; any; any = pick(partner, &gift, &gives)) {
            struct cairn_error why = {0};
            if (!gives)
                hand_over(partner, &gift);
            else if (give(partner, &gift, &why))
                refused(partner, &gift, &why);
            CAIRN_HOLD(&partner->lock);
            if (partner->locked.stopping) return NULL;
        }
    }
    return NULL;
}

enum cairn_code cairn_up_partner_new(struct cairn_up *up, struct cairn_up_partner **ret,
                                     struct cairn_error *err) {
    uint64_t bytes = up->settings.partner_memory_bytes;
    if (!up->peers || !bytes) return CAIRN_OK;
    struct cairn_up_partner *partner = calloc(1, sizeof(*partner));
    if (!partner) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for copies of other nodes");
    partner->up = up;
    cairn_lock_init(&partner->lock, CAIRN_LOCK_uploader_partner);
    cairn_condition_init(&partner->changed);
    uint64_t reserved = bytes + CAIRN_UP_COPY_PIECE_BYTES;
    enum cairn_code code = cairn_budget_take(&up->budget, reserved, "partner_memory", err);
    if (!code) partner->reserved_bytes = reserved;
    if (!code && !(partner->buffer = malloc(CAIRN_UP_COPY_PIECE_BYTES)))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a piece of a copy");
    if (code) {
        cairn_up_partner_free(partner);
        return code;
    }
    partner->free_bytes = bytes;
    cairn_up_port_route(up->peers->port, &(struct cairn_up_route){.method = "PUT",
                                                                  .path = CAIRN_UP_COPY_PATH,
                                                                  .serve = cairn_up_copies_serve,
                                                                  .owner = partner});
    *ret = partner;
    return CAIRN_OK;
}

enum cairn_code cairn_up_partner_start(struct cairn_up_partner *partner, struct cairn_error *err) {
    if (!partner) return CAIRN_OK;
    return cairn_up_thread_start(&partner->thread, giving_main, partner, "copies to other nodes",
                                 err);
}

void cairn_up_partner_stop(struct cairn_up_partner *partner) {
    if (!partner || !partner->thread.started) return;
    cairn_lock_take(&partner->lock);
    partner->locked.stopping = true;
    cairn_condition_broadcast(&partner->changed);
    cairn_lock_give(&partner->lock);
    cairn_up_wakeup_stop(&partner->up->partner_work);
    cairn_up_thread_join(&partner->thread);
}

void cairn_up_partner_free(struct cairn_up_partner *partner) {
    if (!partner) return;
    cairn_up_partner_stop(partner);
    {
        CAIRN_HOLD(&partner->up->lock);
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next) at->over = true;
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next) at->entry = 0;
        for (struct cairn_up_copy *at = partner->copies; at; at = at->next)
            if (at->kept) at->kept->gone = true;
        cairn_up_copies_sweep_locked(partner);
        CAIRN_ASSERT(!partner->copies);
    }
    cairn_budget_give(&partner->up->budget, partner->reserved_bytes);
    free(partner->buffer);
    cairn_condition_release(&partner->changed);
    cairn_lock_release(&partner->lock);
    free(partner);
}

void cairn_up_partner_tick(struct cairn_up_partner *partner) {
    if (!partner) return;
    CAIRN_HOLD(&partner->up->lock);
    cairn_up_copies_sweep_locked(partner);
}

void cairn_up_partner_listed(struct cairn_up *up, const char *grant) {
    if (!up->partner) return;
    CAIRN_HOLD(&up->lock);
    for (size_t i = 0; i < up->locked.save_count; i++) {
        struct cairn_up_save *save = up->locked.saves[i];
        if (!save->partner.handed && !strcmp(save->attempt->text, grant)) save->partner.next_ms = 0;
    }
    cairn_up_wakeup_raise(&up->partner_work);
}

json_t *cairn_up_partner_copies_locked(const struct cairn_up_partner *partner,
                                       const struct cairn_up_attempt *attempt) {
    json_t *array = NULL;
    for (const struct cairn_up_copy *at = partner ? partner->copies : NULL; at; at = at->next) {
        if (at->attempt != attempt || at->missing || at->over || at->entry) continue;
        if (!array && !(array = json_array())) return NULL;
        (void)json_array_append_new(array, CAIRN_PACK(node_copy, .version = at->version.text,
                                                      .rank = at->rank, .node = at->node,
                                                      .uploader = at->told.uploader));
    }
    return array;
}

void cairn_up_partner_over_locked(struct cairn_up_partner *partner, const char *version,
                                  bool committed) {
    if (!partner) return;
    for (struct cairn_up_copy *at = partner->copies; at; at = at->next) {
        if (strcmp(at->version.text, version) != 0) continue;
        if (committed && at->missing) continue; /* still arriving, only for restores (5) */
        at->over = true;
        if (at->kept) at->kept->committed |= committed;
        if (at->kept) at->kept->gone |= !committed;
    }
}

enum cairn_code cairn_up_partner_finish(struct cairn_up_partner *partner, const char *version,
                                        uint32_t rank, struct cairn_error *err) {
    struct cairn_error why = {0};
    if (!partner) return cairn_fail(err, CAIRN_NOT_FOUND, "this node keeps no copies");
    CAIRN_HOLD(&partner->up->lock);
    struct cairn_up_copy *copy = cairn_up_copy_find_locked(partner, version, rank);
    if (!copy || copy->missing) return cairn_fail(err, CAIRN_NOT_FOUND, "there is no whole copy");
    if (copy->entry) return CAIRN_OK;
    enum cairn_code code = cairn_up_copy_finish_locked(partner->up, copy, &why);
    if (!code) return CAIRN_OK;
    cairn_log(ERROR, "partner.unfinished", "version=%s rank=%u node=%s cause=\"%s\"", version, rank,
              copy->node, why.message);
    return cairn_fail(err, CAIRN_UNAVAILABLE, "it cannot be sent from here now: %s", why.message);
}
