/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer comes back with its memory after the old uploader's end. A helper maps the slabs and
 * finds the right under which the trainer writes; the socket's thread then joins saves and slabs.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/log.h"
#include "common/text.h"
#include "uploader/journal/journal.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/attempt_call.h"
#include "uploader/trainers/inside.h"

struct offering {
    struct cairn_up_attempt_call *call;
    uint64_t attempt;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    struct {
        int fd;
        uint64_t bytes, device, inode;
        uint64_t owner;           /* the save to which it belongs, by the trainer; 0: nobody's */
        struct cairn_slab memory; /* fd -1: not attached */
    } slabs[CAIRN_UP_GENERATIONS_MAX];
    size_t slab_count;
    json_t *saves; /* owned: what the trainer knows, read into `parsed` */
    struct cairn_msg_offer_save *parsed;
    size_t parsed_count;
};

static void offering_free(void *owner) {
    struct offering *offering = owner;
    for (size_t i = 0; i < offering->slab_count; i++) {
        if (offering->slabs[i].fd >= 0) cairn_fd_close_at(&offering->slabs[i].fd);
        if (offering->slabs[i].memory.data) cairn_slab_release(&offering->slabs[i].memory);
    }
    json_decref(offering->saves);
    free(offering->parsed);
    cairn_up_attempt_call_free(offering->call);
    free(offering);
}

/* ---- on a helper ---- */

/* What this or an earlier uploader made is whole, and counted in its budget. Pages that are not
 * there would be made by the reading of them, however many they are. */
static enum cairn_code check_whole(int fd, size_t index, uint64_t bytes, struct cairn_error *err) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        (uint64_t)status.st_blocks * 512 >= bytes)
        return CAIRN_OK; /* whether it is memory at all is looked at next */
    return cairn_fail(err, CAIRN_PROTOCOL,
                      "slab %zu has pages for %llu of its %" PRIu64 " bytes: no uploader made it",
                      index, (unsigned long long)status.st_blocks * 512, bytes);
}

/* Before anything of them is mapped. What the others hold is counted when they are adopted. */
static enum cairn_code check_budget(const struct offering *offering, struct cairn_error *err) {
    uint64_t budget = offering->call->up->budget.total_bytes, bytes = 0;
    for (size_t i = 0; i < offering->slab_count; i++) {
        if (!cairn_add_overflows(bytes, offering->slabs[i].bytes, &bytes) && bytes <= budget)
            continue;
        return cairn_up_slabs_no_room(offering->call->up, offering->slabs[i].bytes, err);
    }
    return CAIRN_OK;
}

static enum cairn_code attach(struct offering *offering, struct cairn_error *err) {
    CAIRN_TRY(check_budget(offering, err));
    for (size_t i = 0; i < offering->slab_count; i++) {
        int fd = offering->slabs[i].fd;
        CAIRN_TRY(check_whole(fd, i, offering->slabs[i].bytes, err));
        offering->slabs[i].fd = -1;
        struct cairn_slab *memory = &offering->slabs[i].memory;
        CAIRN_TRY(cairn_slab_attach(fd, offering->slabs[i].bytes, false, memory, err));
        if (memory->device != offering->slabs[i].device ||
            memory->inode != offering->slabs[i].inode)
            return cairn_fail(err, CAIRN_PROTOCOL,
                              "slab %zu is not the memory that it is said to be (device %" PRIu64
                              " inode %" PRIu64 ")",
                              i, memory->device, memory->inode);
    }
    return CAIRN_OK;
}

/* The journal's own copy of the grant, else the server's answer to the same job and process. */
static enum cairn_code find_right(struct cairn_up_helper *helper, struct offering *offering,
                                  struct cairn_error *err) {
    struct cairn_up_attempt_call *call = offering->call;
    struct cairn_up *up = helper->up;
    cairn_lock_take(&up->lock);
    struct cairn_up_attempt *known =
        cairn_up_attempt_find(up, call->run_text, offering->attempt, offering->nonce);
    if (known) (void)cairn_text_copy(call->grant, sizeof(call->grant), known->text);
    cairn_lock_give(&up->lock);
    if (!known) CAIRN_TRY(cairn_up_attempt_call_send(helper, call, err));
    struct cairn_grant grant;
    CAIRN_TRY(cairn_grant_parse(call->grant, &grant, err));
    if (grant.attempt != offering->attempt || strcmp(grant.nonce, offering->nonce) != 0)
        return cairn_fail(err, CAIRN_STALE_ATTEMPT,
                          "attempt %" PRIu64 " of %s is the newest, the trainer has %" PRIu64,
                          grant.attempt, call->run_text, offering->attempt);
    return cairn_up_attempt_call_settle(call, err);
}

/* ---- on the socket's thread ---- */

static void source_of(struct cairn_up *up, struct cairn_up_save *save) {
    for (size_t i = 0; i < save->stage_count; i++) {
        struct cairn_up_shard *shard = save->shards[save->stage_first + i];
        cairn_up_shard_source(up->queue, shard, save->slab->memory.data + shard->slab_offset);
    }
}

/* Q41: the generation goes to the save that owned it, by the trainer and by the journal. */
static void claim_slab(struct cairn_up_session *session, const struct offering *offering,
                       struct cairn_up_save *save, uint32_t index) {
    struct cairn_up_slab *slab = index < offering->slab_count
                                     ? cairn_up_slab_of_locked(session->up, session->conn, index)
                                     : NULL;
    if (!slab || save->slab || !save->staged_in.bytes) return; /* one not staged holds nothing */
    const struct cairn_up_slab_claim claim = {
        .offered_owner = CAIRN_RULE(Q41) ? offering->slabs[index].owner : save->state.owner,
        .save_owner = save->state.owner,
        .journaled_owner = save->state.owner,
        .same_memory = cairn_up_save_is_staged_in(save, slab),
        .needed = cairn_up_save_state_needs_slab(&save->state)};
    enum cairn_up_claimed claimed = cairn_up_slab_state_claim(&slab->state, &claim);
    if (claimed == CAIRN_UP_CLAIM_NOT_NEEDED) return;
    if (claimed != CAIRN_UP_CLAIM_JOINED) {
        cairn_log(INFO, "offer.not_joined",
                  "version=%s rank=%u slab=%u owner=%" PRIu64 " of=%" PRIu64, save->place.id.text,
                  save->rank, index, offering->slabs[index].owner, save->state.owner);
        return;
    }
    bool taken = cairn_up_save_slab_take_locked(save, slab);
    CAIRN_ASSERT(taken);
    if (save->state.phase == CAIRN_UP_PHASE_SEALED) source_of(session->up, save);
}

static const char *join_save(struct cairn_up_session *session, const struct offering *offering,
                             struct cairn_up_save *save, const struct cairn_msg_offer_save *told) {
    static const char *const texts[] = {"continues", "durable", "committed",
                                        "aborted",   "failed",  "ended"};
    enum cairn_up_joined joined = cairn_up_save_state_join(&save->state, save->end);
    save->conn = session->conn;
    save->number = told->save;
    save->follows = told->follow;
    save->decided = false; /* this connection has not heard it */
    if (joined != CAIRN_UP_JOINED_CONTINUES) return texts[joined];
    for (size_t i = 0; save->state.staging == CAIRN_UP_STAGING_AGAIN && i < save->state.shard_count;
         i++)
        cairn_up_shard_await(session->up->queue, save->shards[i]);
    claim_slab(session, offering, save, told->slab);
    return texts[joined];
}

/* Its entry was closed because the version ended, or the journal was lost. Q40: only the server
 * knows; a watcher asks it, for as long as it takes, and the trainer hears a verdict. */
static bool remember(struct cairn_up_session *session, const struct cairn_msg_offer_save *told) {
    struct cairn_up *up = session->up;
    struct cairn_up_save *save = NULL;
    const struct cairn_up_begin begin = {.attempt = session->attempt,
                                         .conn = session->conn,
                                         .number = told->save,
                                         .session = session->uuid,
                                         .proc = session->proc,
                                         .rank = session->rank,
                                         .world_size = session->world_size,
                                         .step = told->step,
                                         .n = told->n};
    if (cairn_up_save_new_locked(up, cairn_up_journal_entry_new(up->journal), &begin, &save,
                                 NULL) != CAIRN_OK)
        return false;
    if (strcmp(save->place.id.text, told->version) != 0) {
        cairn_up_save_drop_locked(up, save);
        return false;
    }
    cairn_up_save_state_init_in_doubt(save->entry, &save->state);
    return true;
}

static const char *judge(struct cairn_up_session *session, const struct offering *offering,
                         const struct cairn_msg_offer_save *told, bool *ret_sealed) {
    if (told->save > session->save_last) session->save_last = told->save;
    struct cairn_up_save *save =
        cairn_up_save_known_locked(session->up, told->version, session->rank);
    *ret_sealed = save && cairn_up_save_state_is_sealed(&save->state);
    if (save) return join_save(session, offering, save, told);
    return told->sealed && remember(session, told) ? "ended" : "unknown";
}

static bool same_right(const struct cairn_up_attempt *a, const struct cairn_up_attempt *b) {
    return !strcmp(a->run_text, b->run_text) && a->grant.attempt == b->grant.attempt &&
           !strcmp(a->grant.nonce, b->grant.nonce);
}

/* A save is offered by the process that began it, under the attempt under which it did: version
 * and rank alone would let the trainer of another run, or another life of this rank, seal its bytes
 * into it. The end of the old connection may not have been noticed yet: then it is `busy`. */
static enum cairn_code check_claims(struct cairn_up_session *session,
                                    const struct offering *offering, struct cairn_error *err) {
    for (size_t i = 0; i < offering->parsed_count; i++) {
        const char *version = offering->parsed[i].version;
        const struct cairn_up_save *save =
            cairn_up_save_known_locked(session->up, version, session->rank);
        if (!save) continue;
        if (!same_right(save->attempt, session->attempt))
            return cairn_fail(err, CAIRN_FORBIDDEN,
                              "%s was begun by attempt %" PRIu64 " of %s, not by attempt %" PRIu64
                              " of %s",
                              version, save->attempt->grant.attempt, save->attempt->run_text,
                              session->attempt->grant.attempt, session->run_text);
        if (save->proc[0] && strcmp(save->proc, session->proc) != 0)
            return cairn_fail(err, CAIRN_FORBIDDEN,
                              "%s was begun by another process (%s) of rank %u", version,
                              save->proc, session->rank);
        if (save->conn && save->conn != session->conn)
            return cairn_fail(err, CAIRN_BUSY, "the old connection of rank %u has not ended yet",
                              session->rank);
    }
    return CAIRN_OK;
}

static enum cairn_code join_slabs(struct cairn_up_session *session, struct offering *offering,
                                  struct cairn_error *err) {
    for (size_t i = 0; i < offering->slab_count; i++) {
        struct cairn_slab memory = offering->slabs[i].memory;
        offering->slabs[i].memory = (struct cairn_slab){.fd = -1};
        struct cairn_up_slab *slab = NULL;
        CAIRN_TRY(cairn_up_slabs_adopt_locked(session->up, session->conn, (uint32_t)i,
                                              session->attempt, &memory, &slab, err));
    }
    session->reserved = offering->slab_count > 0;
    return CAIRN_OK;
}

static json_t *join_all(struct cairn_up_session *session, struct offering *offering,
                        struct cairn_error *err) {
    struct cairn_up *up = session->up;
    CAIRN_AUTO_JSON json_t *answers = json_array();
    CAIRN_AUTO_JSON json_t *owners = json_array();
    CAIRN_HOLD(&up->lock);
    if (check_claims(session, offering, err) != CAIRN_OK) return NULL;
    if (join_slabs(session, offering, err) != CAIRN_OK) {
        cairn_up_slabs_orphan_locked(up, session->conn);
        return NULL;
    }
    for (size_t i = 0; i < offering->parsed_count; i++) {
        const struct cairn_msg_offer_save *told = &offering->parsed[i];
        bool sealed = false;
        const char *state = judge(session, offering, told, &sealed);
        json_array_append_new(answers, CAIRN_PACK(offered_save, .save = told->save, .state = state,
                                                  .sealed = sealed));
    }
    for (size_t i = 0; i < offering->slab_count; i++) {
        const struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, session->conn, (uint32_t)i);
        json_array_append_new(owners, json_integer((json_int_t)slab->state.owner));
    }
    json_t *answer =
        CAIRN_PACK(offered, .session = session->uuid, .saves = answers, .owners = owners);
    if (!answer) cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    return answer;
}

static void offer_done(void *owner, struct cairn_up_session *session) {
    struct offering *offering = owner;
    struct cairn_up_attempt_call *call = offering->call;
    struct cairn_up *up = call->up;
    if (session) session->attempting = false;
    json_t *answer = NULL;
    if (call->code == CAIRN_OK && !session) cairn_up_attempt_call_abandon(call);
    if (call->code == CAIRN_OK && session) {
        cairn_up_attempt_call_adopt(session, CAIRN_TAKE(call->attempt), call->entry);
        answer = join_all(session, offering, &call->error);
        if (answer) cairn_up_attempt_call_counts(call, session);
    }
    if (answer) {
        cairn_up_mail_answer(up->mail, call->conn, call->request, answer);
        cairn_up_wakeup_raise(&up->outbox_work);
        cairn_up_wakeup_raise(&up->partner_work);
        cairn_up_watch_poke(up->watch);
    } else {
        cairn_up_mail_refuse(up->mail, call->conn, call->request, &call->error);
    }
    offering_free(offering);
}

static void offer_task(struct cairn_up_helper *helper, void *owner) {
    struct offering *offering = owner;
    struct cairn_up_attempt_call *call = offering->call;
    call->code = attach(offering, &call->error);
    if (call->code == CAIRN_OK) call->code = find_right(helper, offering, &call->error);
    CAIRN_CRASHPOINT("uploader.offer.checked");
    cairn_up_mail_call(helper->up->mail, call->conn, offer_done, offering, &call->item);
}

/* ---- the message ---- */

static enum cairn_code read_slabs(struct offering *offering, const json_t *slabs,
                                  struct cairn_frame *frame, struct cairn_error *err) {
    size_t count = json_array_size(slabs);
    if (count > CAIRN_UP_GENERATIONS_MAX || count != frame->fd_count)
        return cairn_fail(err, CAIRN_PROTOCOL, "offer: %s and %s",
                          cairn_counted(count, "slab").text,
                          cairn_counted(frame->fd_count, "descriptor").text);
    for (size_t i = 0; i < count; i++) {
        struct cairn_msg_offer_slab told = {0};
        CAIRN_TRY(cairn_msg_offer_slab_read(json_array_get(slabs, i), "/slabs", &told, err));
        offering->slabs[i].bytes = told.bytes;
        offering->slabs[i].device = told.device;
        offering->slabs[i].inode = told.inode;
        offering->slabs[i].owner = told.owner;
    }
    for (size_t i = 0; i < count; i++) {
        offering->slabs[i].fd = frame->fds[i];
        frame->fds[i] = -1;
    }
    offering->slab_count = count;
    return CAIRN_OK;
}

static enum cairn_code read_saves(struct offering *offering, const json_t *saves,
                                  struct cairn_error *err) {
    size_t count = json_array_size(saves);
    offering->saves = json_deep_copy(saves);
    offering->parsed = calloc(count + 1, sizeof(*offering->parsed));
    if (!offering->saves || !offering->parsed)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    for (; offering->parsed_count < count; offering->parsed_count++) {
        struct cairn_msg_offer_save *told = &offering->parsed[offering->parsed_count];
        told->slab = (uint32_t)CAIRN_MESSAGE_NONE;
        CAIRN_TRY(cairn_msg_offer_save_read(json_array_get(offering->saves, offering->parsed_count),
                                            "/saves", told, err));
        if (!told->save) return cairn_fail(err, CAIRN_INVALID, "/saves/save counts from 1");
    }
    return CAIRN_OK;
}

static enum cairn_code read_offer(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct offering *offering,
                                  struct cairn_error *err) {
    struct cairn_msg_offer told = {.resume = "latest", .incarnation = ""};
    CAIRN_TRY(cairn_msg_offer_read(request->frame->message, "", &told, err));
    offering->attempt = told.attempt;
    (void)cairn_text_copy(offering->nonce, sizeof(offering->nonce), told.nonce);
    CAIRN_TRY(read_saves(offering, told.saves, err));
    offering->call = cairn_up_attempt_call_new(session, told.job, told.resume, told.incarnation);
    if (!offering->call) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    offering->call->request = request->id;
    offering->call->counts = json_deep_copy(told.counts);
    return read_slabs(offering, told.slabs, request->frame, err);
}

enum cairn_code cairn_up_on_offer(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    if (session->attempt || session->attempting || session->reserved || session->reserving)
        return cairn_fail(err, CAIRN_PROTOCOL, "an offer comes right after hello");
    struct offering *offering = calloc(1, sizeof(*offering));
    if (!offering) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an offer");
    for (size_t i = 0; i < CAIRN_UP_GENERATIONS_MAX; i++) {
        offering->slabs[i].fd = -1;
        offering->slabs[i].memory.fd = -1;
    }
    enum cairn_code code = read_offer(session, request, offering, err);
    if (code == CAIRN_OK)
        code = cairn_up_tasks_add(session->up->tasks, offer_task, offering_free, offering, err);
    if (code != CAIRN_OK)
        offering_free(offering);
    else
        session->attempting = true;
    return code;
}
