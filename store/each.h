/* SPDX-License-Identifier: Apache-2.0 */
/*
 * each: one request for each item of a list, several under way at once, over one worker.
 *
 * Why:     a loop that ends when no request is under way ends too early where all were answered
 *          within one poll, and an object that it did not ask about looks like one that is missing.
 * Promise: 1   CAIRN_OK: each item was passed over by `ask` or its answer was taken by `answer`.
 *              passed + answered == count and asked == answered; both are asserted.
 *          2   the first error of an answer or of the worker ends the run: no further item is asked
 *              about, requests under way are cancelled, and all have ended before it returns.
 *          3   items are asked about in their order; answers are taken in any order.
 * Limits:  at_once requests and as much memory for them.
 * Threads: one owner of the worker.
 * Next:    store/presence.c.
 */
#pragma once

#include "store/store.h"

struct cairn_store_each {
    size_t count;   /* items */
    size_t at_once; /* requests under way, at least 1 */
    /* Fills the operation, the key and what else the request needs; not its done and owner. False:
     * nothing has to be asked about this item. */
    bool (*ask)(void *owner, size_t item, struct cairn_store_request *request);
    enum cairn_code (*answer)(void *owner, size_t item, const struct cairn_store_request *request,
                              struct cairn_error *err);
    void *owner;
    /* set by the run */
    size_t passed, asked, answered, cancelled;
};
enum cairn_code cairn_store_each_run(struct cairn_store_each *each,
                                     struct cairn_store_worker *worker,
                                     struct cairn_error *err) CAIRN_MUST_USE;
