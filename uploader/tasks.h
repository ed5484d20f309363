/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tasks: helper threads for whatever may take long and is not on the way of a save.
 *
 * Why:     the socket thread never waits: attempts, memory, restores and lists are done here and
 *          their answers posted back.
 * Promise: 1   each task runs once, on some thread, in the order of submission when one is idle.
 *          2   free waits for the running ones and runs none of the waiting ones: their `drop` is
 *              called instead.
 * Limits:  CAIRN_UP_TASK_THREADS_MAX threads, made when needed; 65,536 waiting tasks.
 * Threads: any thread submits; locked by uploader_tasks.
 * Next:    uploader/trainers/session.c for who uses it.
 */
#pragma once

#include "api/wire/rest.h"
#include "uploader/up.h"

#define CAIRN_UP_TASK_THREADS_MAX 48

/* What a helper thread owns, made when first asked for. */
struct cairn_up_helper {
    struct cairn_up *up;
    struct cairn_rest *rest;
    struct cairn_store_worker *store;
};
enum cairn_code cairn_up_helper_rest(struct cairn_up_helper *helper, struct cairn_rest **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* When a trainer that waits for timeout_ms more must have its answer, so that it hears what did not
 * come; 0: it has not said how long it waits. */
uint64_t cairn_up_answer_by_ms(uint64_t timeout_ms);
/* What is left of it for a call to the server that may usually take usual_ms (0: api/wire/rest.h's). */
uint32_t cairn_up_call_ms(uint64_t answer_by_ms, uint32_t usual_ms);
/* The server was not there (it restarts), and whoever is answered by then waits longer: after a
 * pause the call is made again. False: `code` is the answer. */
bool cairn_up_helper_again(struct cairn_up_helper *helper, enum cairn_code code,
                           uint64_t answer_by_ms);
enum cairn_code cairn_up_helper_store(struct cairn_up_helper *helper,
                                      struct cairn_store_worker **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_up_tasks_new(struct cairn_up *up, struct cairn_up_tasks **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* No new task is taken. False when some still run after that time: then the struct must stay. */
bool cairn_up_tasks_stop(struct cairn_up_tasks *tasks, uint64_t wait_ms);
void cairn_up_tasks_free(struct cairn_up_tasks *tasks);
/* owner is handed to run or to drop, and is theirs. */
enum cairn_code cairn_up_tasks_add(struct cairn_up_tasks *tasks,
                                   void (*run)(struct cairn_up_helper *helper, void *owner),
                                   void (*drop)(void *owner), void *owner,
                                   struct cairn_error *err) CAIRN_MUST_USE;
