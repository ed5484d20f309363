/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's only condition is the number of items that are left; see each.h. */
#include "store/each.h"

#include <stdlib.h>

struct slot {
    struct cairn_store_request request;
    size_t item;
    bool busy, ended;
};
struct run {
    struct cairn_store_each *each;
    struct cairn_store_worker *worker;
    struct slot *slots;
    size_t next; /* the first item that was neither passed over nor asked about */
};

static size_t left(const struct cairn_store_each *each) {
    return each->count - each->passed - each->answered;
}

static void request_done(struct cairn_store_request *request) {
    struct slot *slot = request->owner;
    CAIRN_ASSERT(slot->busy && !slot->ended);
    slot->ended = true;
}

/* False: every item was passed over or asked about. */
static bool ask_next(struct run *run, struct slot *slot) {
    struct cairn_store_each *each = run->each;
    while (run->next < each->count) {
        *slot = (struct slot){.item = run->next++};
        if (!each->ask(each->owner, slot->item, &slot->request)) {
            each->passed++;
            continue;
        }
        slot->busy = true;
        slot->request.done = request_done;
        slot->request.owner = slot;
        each->asked++;
        cairn_store_submit(run->worker, &slot->request);
        return true;
    }
    return false;
}

static enum cairn_code take_answers(struct run *run, struct cairn_error *err) {
    struct cairn_store_each *each = run->each;
    for (size_t i = 0; i < each->at_once; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->busy || !slot->ended) continue;
        slot->busy = false;
        each->answered++;
        CAIRN_TRY(each->answer(each->owner, slot->item, &slot->request, err));
    }
    return CAIRN_OK;
}

static enum cairn_code run_all(struct run *run, struct cairn_error *err) {
    struct cairn_store_each *each = run->each;
    while (left(each)) {
        for (size_t i = 0; i < each->at_once; i++)
            if (!run->slots[i].busy && !ask_next(run, &run->slots[i])) break;
        if (!left(each)) break;
        CAIRN_ASSERT(each->asked > each->answered);
        CAIRN_TRY(cairn_store_poll(run->worker, 1000, err));
        CAIRN_TRY(take_answers(run, err));
    }
    CAIRN_ASSERT(run->next == each->count && each->asked == each->answered);
    return CAIRN_OK;
}

static void cancel_rest(struct run *run) {
    struct cairn_store_each *each = run->each;
    for (size_t i = 0; i < each->at_once; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->busy) continue;
        if (!slot->ended) cairn_store_cancel(run->worker, &slot->request);
        CAIRN_ASSERT(slot->ended);
        each->cancelled++;
    }
    CAIRN_ASSERT(each->asked == each->answered + each->cancelled);
}

enum cairn_code cairn_store_each_run(struct cairn_store_each *each,
                                     struct cairn_store_worker *worker, struct cairn_error *err) {
    CAIRN_ASSERT(each->at_once > 0);
    CAIRN_AUTO_HEAP struct slot *slots = calloc(each->at_once, sizeof *slots);
    if (!slots) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to ask about objects");
    struct run run = {.each = each, .worker = worker, .slots = slots};
    each->passed = each->asked = each->answered = each->cancelled = 0;
    enum cairn_code code = run_all(&run, err);
    cancel_rest(&run);
    return code;
}
