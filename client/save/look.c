/* SPDX-License-Identifier: Apache-2.0 */
/* look: a group of which this save has no list is answered without digests: nobody waits. */
#include "client/save/look.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/save/split.h"

#define VERSION_OF_LOOKS 6 /* of the socket */
#define DIGEST_TEXT 16

bool cairn_client_can_look(struct cairn_session *session) {
    return cairn_client_speaks(session, VERSION_OF_LOOKS, "looks at lists", NULL) == CAIRN_OK;
}

enum cairn_code cairn_client_lists_keep(struct cairn_save *save, struct cairn_error *err) {
    size_t count = save->shares.count;
    save->lists = calloc(count + 1, sizeof(struct cairn_split *));
    if (!save->lists) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the save's splits");
    for (size_t i = 0; i < count; i++) {
        save->lists[i] = save->shares.splits[i];
        atomic_fetch_add(&save->lists[i]->users, 1);
    }
    save->list_count = count;
    return CAIRN_OK;
}

void cairn_client_lists_drop(struct cairn_save *save) {
    for (size_t i = 0; i < save->list_count; i++) cairn_split_free(save->lists[i]);
    free(save->lists);
    save->lists = NULL;
    save->list_count = 0;
}

static const struct cairn_split *find(const struct cairn_save *save, const char *group) {
    for (size_t i = 0; i < save->list_count; i++)
        if (strcmp(save->lists[i]->group, group) == 0) return save->lists[i];
    return NULL;
}

static struct cairn_plan_split_item item_at(const void *owner, size_t place) {
    const struct cairn_split *split = owner;
    return cairn_client_split_item(&split->pieces[split->sorted[place]]);
}

static void put_digests(const struct cairn_split *split, uint32_t from, uint32_t to,
                        char ret[DIGEST_TEXT * CAIRN_PLAN_SPLIT_PARTS + 1]) {
    const struct cairn_plan_split_list list = {split->count, item_at, split};
    uint64_t digests[CAIRN_PLAN_SPLIT_PARTS];
    unsigned count = cairn_plan_split_look(&list, from, to, digests);
    for (unsigned i = 0; i < count; i++)
        snprintf(ret + (size_t)DIGEST_TEXT * i, DIGEST_TEXT + 1, "%016" PRIx64, digests[i]);
}

static void answer(struct cairn_session *session, const json_t *body) {
    struct cairn_client_message *message = NULL;
    if (body && cairn_client_message_new(body, (struct cairn_view){0}, NULL, 0, &message, NULL) ==
                    CAIRN_OK) {
        cairn_client_enqueue(session, message);
        cairn_client_wake(session);
    }
}

void cairn_client_look(struct cairn_save *save, const json_t *message) {
    struct cairn_msg_look told = {0};
    char digests[DIGEST_TEXT * CAIRN_PLAN_SPLIT_PARTS + 1] = "";
    const char *tensor = NULL;
    if (cairn_msg_look_read(message, "", &told, NULL) != CAIRN_OK || told.from >= told.to) return;
    const struct cairn_split *split = find(save, told.group);
    bool one = told.to - told.from == 1;
    if (split && !one) put_digests(split, told.from, told.to, digests);
    if (split && one && told.from < split->count)
        tensor = split->pieces[split->sorted[told.from]].name;
    CAIRN_AUTO_JSON json_t *body =
        CAIRN_PACK(looked, .save = told.save, .group = told.group, .from = told.from, .to = told.to,
                   .digests = digests[0] ? digests : NULL, .tensor = tensor);
    answer(save->session, body);
}
