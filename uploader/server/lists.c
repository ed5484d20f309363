/* SPDX-License-Identifier: Apache-2.0 */
/* lists: the thread asks the server for each save that waits, the longest one first; what is to be
 * looked at goes to the trainer, and what the trainer says goes with the next request. */
#include "uploader/server/lists.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/wire/rest.h"
#include "common/clock.h"
#include "common/text.h"
#include "uploader/mail.h"
#include "uploader/server/outcome.h"

#define GROUP_BYTES 257
#define TRAINER_MS 2000 /* until it has looked, the server is asked less often */

struct cairn_up_held {
    uint64_t until_ms, next_ms; /* mono clock: it ends; the server is asked again */
    enum cairn_up_end end;
    struct cairn_error why;
    uint32_t from, to; /* that the server said last; to 0: nothing yet */
    char group[GROUP_BYTES];
    bool looked; /* digests and tensor are the trainer's, and the server does not have them */
    char digests[513], tensor[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};
struct cairn_up_lists {
    struct cairn_up *up;
    struct cairn_rest *rest;
    pthread_t thread;
    bool started;
};
struct question {
    uint64_t entry;
    char path[2 * CAIRN_NAME_BYTES_MAX + CAIRN_VERSION_ID_BYTES + 64];
    char grant[CAIRN_GRANT_BYTES_MAX];
    json_t *body; /* owned */
};

/* ---- holding ---- */

static bool can_look(const struct cairn_up_save *save) {
    size_t index;
    const json_t *split;
    json_array_foreach(json_object_get(save->begin, "splits"), index, split)
        if (json_is_true(json_object_get(split, "finer"))) return true;
    return false;
}

bool cairn_up_lists_hold_locked(struct cairn_up *up, struct cairn_up_save *save,
                                enum cairn_up_end end, const struct cairn_error *why) {
    if (save->held) return true;
    if (why->code != CAIRN_BEGIN_DIFFERS || !up->lists || !up->lists->started ||
        up->locked.ending || !save->conn || !can_look(save))
        return false;
    save->held = calloc(1, sizeof *save->held);
    if (!save->held) return false;
    save->held->until_ms = cairn_mono_ms() + CAIRN_UP_LISTS_HOLD_MS;
    save->held->end = end;
    save->held->why = *why;
    cairn_condition_broadcast(&up->changed);
    return true;
}

/* reason: NULL or what the server says now. The save may be gone afterwards. */
static void release(struct cairn_up *up, struct cairn_up_save *save, const char *reason) {
    struct cairn_error why = save->held->why;
    if (reason && reason[0]) (void)cairn_text_copy(why.message, sizeof why.message, reason);
    cairn_up_save_end_locked(up, save, save->held->end, &why);
}

void cairn_up_lists_looked(struct cairn_up *up, uint64_t conn,
                           const struct cairn_msg_looked *told) {
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_of_locked(up, conn, told->save);
    struct cairn_up_held *held = save ? save->held : NULL;
    if (!held || held->from != told->from || held->to != told->to ||
        strcmp(held->group, told->group) != 0)
        return;
    (void)cairn_text_copy(held->digests, sizeof held->digests, told->digests ? told->digests : "");
    (void)cairn_text_copy(held->tensor, sizeof held->tensor, told->tensor ? told->tensor : "");
    held->looked = true;
    held->next_ms = 0;
    cairn_condition_broadcast(&up->changed);
}

/* ---- asking ---- */

static void make_question(struct cairn_up *up, struct cairn_up_save *save, struct question *ret) {
    struct cairn_up_held *held = save->held;
    CAIRN_AUTO_JSON json_t *look =
        held->looked
            ? CAIRN_PACK(list_look, .group = held->group, .from = held->from, .to = held->to,
                         .digests = held->digests[0] ? held->digests : NULL,
                         .tensor = held->tensor[0] ? held->tensor : NULL)
            : NULL;
    *ret = (struct question){.entry = save->entry,
                             .body = CAIRN_PACK(lists_look, .grant = save->attempt->text,
                                                .node = up->places.node, .rank = save->rank,
                                                .look = look)};
    snprintf(ret->path, sizeof ret->path, "/v1/runs/%s/checkpoints/%s/lists",
             save->attempt->run_text, save->place.id.text);
    (void)cairn_text_copy(ret->grant, sizeof ret->grant, save->attempt->text);
    held->next_ms = cairn_mono_ms() + CAIRN_UP_LISTS_EVERY_MS;
}

/* The save that has waited longest for its turn; those that wait no longer are ended. */
static struct cairn_up_save *choose(struct cairn_up *up, uint64_t now_ms) {
    struct cairn_up_save *chosen = NULL;
    for (size_t i = up->locked.save_count; i-- > 0;) {
        if (i >= up->locked.save_count) continue;
        struct cairn_up_save *save = up->locked.saves[i];
        if (!save->held || save->state.phase == CAIRN_UP_PHASE_OVER) continue;
        if (now_ms >= save->held->until_ms)
            release(up, save, NULL);
        else if (!chosen || save->held->next_ms < chosen->held->next_ms)
            chosen = save;
    }
    return chosen;
}

/* False: the process ends. */
static bool await_question(struct cairn_up *up, struct question *ret) {
    CAIRN_HOLD(&up->lock);
    while (!up->locked.ending) {
        uint64_t now_ms = cairn_mono_ms();
        struct cairn_up_save *save = choose(up, now_ms);
        if (save && now_ms >= save->held->next_ms) {
            make_question(up, save, ret);
            return true;
        }
        uint64_t until_ms = save ? save->held->next_ms : UINT64_MAX;
        (void)cairn_condition_wait(&up->changed, &up->lock, until_ms);
    }
    return false;
}

static void ask_trainer(struct cairn_up *up, struct cairn_up_save *save) {
    struct cairn_up_held *held = save->held;
    held->next_ms = cairn_mono_ms() + TRAINER_MS;
    cairn_up_mail_post(up->mail, save->conn,
                       CAIRN_PACK(look, .save = save->number, .group = held->group,
                                  .from = held->from, .to = held->to));
}

static void take_seen(struct cairn_up *up, struct cairn_up_save *save,
                      const struct cairn_msg_lists_seen *seen) {
    struct cairn_up_held *held = save->held;
    bool party = save->rank == seen->first || save->rank == seen->second;
    bool news =
        held->from != seen->from || held->to != seen->to || strcmp(held->group, seen->group) != 0;
    held->looked = false;
    if (!news) return;
    held->from = (uint32_t)seen->from;
    held->to = (uint32_t)seen->to;
    (void)cairn_text_copy(held->group, sizeof held->group, seen->group);
    held->until_ms = cairn_mono_ms() + CAIRN_UP_LISTS_HOLD_MS;
    if (party) ask_trainer(up, save);
}

static bool is_open(const struct cairn_msg_lists_seen *seen) {
    return !seen->settled && seen->group && seen->from < seen->to && seen->to <= UINT32_MAX;
}

static void ask(struct cairn_up_lists *lists, const struct question *question) {
    struct cairn_up *up = lists->up;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_lists_seen seen = {0};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_rest_set_grant(lists->rest, question->grant, &why);
    if (!code)
        code =
            cairn_rest_call(lists->rest, "POST", question->path, question->body, 0, &reply, &why);
    code = cairn_up_heard(lists->rest, code, &why);
    if (!code) code = cairn_msg_lists_seen_read(reply, "", &seen, &why);
    CAIRN_HOLD(&up->lock);
    struct cairn_up_save *save = cairn_up_save_find_locked(up, question->entry);
    if (!save || !save->held || save->state.phase == CAIRN_UP_PHASE_OVER) return;
    if (code || !save->conn || !is_open(&seen))
        release(up, save, code ? NULL : seen.reason);
    else
        take_seen(up, save, &seen);
}

static void *lists_main(void *argument) {
    struct cairn_up_lists *lists = argument;
    struct question question;
    while (await_question(lists->up, &question)) {
        ask(lists, &question);
        json_decref(question.body);
    }
    return NULL;
}

/* ---- life ---- */

enum cairn_code cairn_up_lists_new(struct cairn_up *up, struct cairn_up_lists **ret,
                                   struct cairn_error *err) {
    struct cairn_up_lists *lists = calloc(1, sizeof *lists);
    if (!lists) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at lists");
    lists->up = up;
    struct cairn_rest_options options = {.url = up->settings.server,
                                         .token = up->token,
                                         .token_file = up->settings.token_file,
                                         .ca_bundle = up->settings.ca_file,
                                         .timeout_ms = CAIRN_UP_LISTS_HOLD_MS,
                                         .seen = &up->servers_seen};
    enum cairn_code code = cairn_rest_new(&options, &lists->rest, err);
    if (code)
        free(lists);
    else
        *ret = lists;
    return code;
}

enum cairn_code cairn_up_lists_start(struct cairn_up_lists *lists, struct cairn_error *err) {
    if (pthread_create(&lists->thread, NULL, lists_main, lists))
        return cairn_fail(err, CAIRN_INTERNAL, "no thread to look at lists");
    CAIRN_HOLD(&lists->up->lock);
    lists->started = true;
    return CAIRN_OK;
}

void cairn_up_lists_stop(struct cairn_up_lists *lists) {
    if (!lists || !lists->started) return;
    pthread_join(lists->thread, NULL);
    CAIRN_HOLD(&lists->up->lock);
    lists->started = false;
}

void cairn_up_lists_free(struct cairn_up_lists *lists) {
    if (!lists) return;
    cairn_rest_free(lists->rest);
    free(lists);
}
