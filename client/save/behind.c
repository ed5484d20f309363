/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind: saves that a thread of the library copies and seals while the trainer goes on.
 *
 * Why:     a copy takes as long as the memory is large; a trainer that does not change its sources
 *          until its next step need not stand still for it.
 * Promise: P4   after the fence no thread of the library reads a source.
 *          1    one save of a session is copied at a time, so that no more threads copy than
 *               `copy_threads`; its seal may wait for the uploader while the next one is copied.
 *          2    the threads are nicer than the trainer's: what it needs of the cores comes first.
 *          3    each is a call of its session: cairn_close ends and awaits it.
 *          4    where no thread can be started, cairn_save_stage_begin does it all itself.
 * Limits:  a thread for each save from its begin to its seal: at most as many as a session has
 *          generations, and one more for each save without staged bytes.
 * Threads: the fields of struct cairn_client_behind by the session's lock.
 * Next:    client/save/stage.c, which the thread runs; fences are in client/save/wait.c, ends in
 *          client/save/sweep.c.
 */
#include <sys/resource.h>
#include <unistd.h>

#include <cairn/stage.h>

#include "client/save/stage.h"
#include "client/save/stager.h"
#include "client/save/sweep.h"
#include "client/session/detached.h"

#define NICER 5

/* ---- the thread ---- */

static void be_nicer(void) {
    id_t self = (id_t)gettid();
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + NICER);
}

/* A save that is over has its turn at once: nothing of it is copied. */
static void take_turn(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    CAIRN_HOLD(&session->lock);
    while (session->saves->copier && !cairn_client_save_over(save))
        (void)cairn_condition_wait(&session->changed, &session->lock, UINT64_MAX);
    if (!session->saves->copier) session->saves->copier = save;
}

static void leave(struct cairn_save *save) {
    struct cairn_session *session = save->session;
    cairn_lock_take(&session->lock);
    struct cairn_client_saves *saves = session->saves;
    if (saves->copier == save) saves->copier = NULL;
    save->behind.busy = save->behind.reads = false;
    save->behind.stager = NULL;
    saves->behind_count--;
    cairn_client_save_changed(save);
    cairn_client_changed(session);
    cairn_client_saves_sweep(session);
    cairn_lock_give(&session->lock);
}

static void work(struct cairn_save *save) {
    take_turn(save);
    cairn_client_stage_behind(save->behind.stager);
    leave(save);
}

static void *run(void *owner) {
    struct cairn_session *session = ((struct cairn_save *)owner)->session;
    be_nicer();
    work(owner);
    cairn_client_leave(session);
    return NULL;
}

static void enter(struct cairn_save *save, struct cairn_client_stager *stager) {
    struct cairn_session *session = save->session;
    CAIRN_HOLD(&session->lock);
    session->saves->behind_count++;
    save->behind = (struct cairn_client_behind){.busy = true, .reads = true, .stager = stager};
}

enum cairn_code cairn_save_stage_begin(struct cairn_save *save, struct cairn_error *err) {
    struct cairn_client_stager *stager = NULL;
    uint64_t started_us = cairn_mono_us();
    struct cairn_error own = {0};
    CAIRN_CLIENT_SAVE_OWN_CALL(save, err);
    CAIRN_TRY(cairn_client_stage_ready(save, &stager, err ? err : &own));
    enter(save, stager);
    if (!cairn_client_detached(save->session, run, save)) work(save);
    save->stall_us += cairn_mono_us() - started_us;
    return CAIRN_OK;
}
