/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail: how rooms reach each other's threads: mail to the socket's thread, tasks for helpers.
 *
 * Why:     the socket's thread alone speaks to trainers and never waits: other threads leave here
 *          what is to be said, and helpers do what may take long and is not on the way of a save.
 * Promise: U08  mail is taken in the order in which it was posted, so an answer that is posted
 *               before an event arrives before it.
 *          U04  a message for which there is no memory ends its connection: nobody may wait for an
 *               answer that does not come, and an event that is missing would be believed not to
 *               have happened.
 *          U09  every item is run once, with NULL at the latest when the mail box is freed.
 *          U11  a thread that has little to say (cairn_up_mail_begin, _end) says it itself while
 *               the socket's thread sleeps, in its place and in the mail's order: a trainer that
 *               waits for its seal need not wait for that thread to wake up. Where it cannot, it
 *               wakes it.
 *          1    each task runs once, on some thread, in the order of submission when one is idle;
 *               free waits for the running ones and calls `drop` of the waiting ones.
 * Limits:  CAIRN_UP_UNDELIVERED_MAX connections of U04 by number; with more of them, all end.
 *          CAIRN_UP_TASK_THREADS_MAX helpers, made when needed; 65,536 waiting tasks.
 * Threads: post, call, answer, refuse, hang_up, begin, end: any, locked by uploader_mail. take,
 *          undelivered, sleeps, is_awake: the socket's. One thread at a time has the connections:
 *          the socket's while it is awake, or one in cairn_up_mail_end. Tasks are added by any
 *          thread, locked by uploader_tasks.
 * Next:    uploader/trainers/socket.c carries it out.
 */
#pragma once

#include "api/wire/rest.h"
#include "common/error.h"
#include "common/json.h"
#include "common/net.h"
#include "uploader/up.h"

#define CAIRN_UP_UNDELIVERED_MAX 64
#define CAIRN_UP_SPOKEN_MAX 4 /* the thread of the journal has more to do than to speak */

struct cairn_up_mail;
struct cairn_up_session;

enum cairn_code cairn_up_mail_new(struct cairn_up_mail **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Runs every item with NULL, and those that are posted meanwhile; the socket's thread has ended. */
void cairn_up_mail_drop(struct cairn_up_mail *mail);
/* Drops what is left. NULL is allowed. */
void cairn_up_mail_free(struct cairn_up_mail *mail);

/* An event (api/messages.def). take_message NULL: there was no memory to make it (U04). */
void cairn_up_mail_post(struct cairn_up_mail *mail, uint64_t conn, json_t *take_message);
/* On the socket thread: run(owner, session), session NULL when that connection ended. The item is
 * the caller's until run begins: what somebody waits for must not fail for want of memory. */
struct cairn_up_mail_item {
    struct cairn_up_mail_item *next;
    uint64_t conn;
    void (*run)(void *owner, struct cairn_up_session *session);
    void *owner;
};
void cairn_up_mail_call(struct cairn_up_mail *mail, uint64_t conn,
                        void (*run)(void *owner, struct cairn_up_session *session), void *owner,
                        struct cairn_up_mail_item *item);
/* Answers; their `id` is set here. take_fds are duplicated by nobody: they are closed after they
 * were sent. */
void cairn_up_mail_answer(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          json_t *take_message);
void cairn_up_mail_answer_fds(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                              json_t *take_message, const int *take_fds, size_t fd_count);
void cairn_up_mail_refuse(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          const struct cairn_error *why);
/* Ends the connection after all that was posted before. */
void cairn_up_mail_hang_up(struct cairn_up_mail *mail, uint64_t conn);
/* In between mail wakes nobody, also that of other threads. At the end of the last that began, all
 * is carried out here, or the socket's thread is woken: so it is short. No lock may be held at the
 * end. */
void cairn_up_mail_begin(struct cairn_up_mail *mail);
void cairn_up_mail_end(struct cairn_up_mail *mail);

/* ---- the socket's thread ---- */

/* speak carries messages out for another thread: those of cairn_up_mail_take_spoken, at most
 * CAIRN_UP_SPOKEN_MAX; NULL: there is more. False: the socket's thread must be woken. */
void cairn_up_mail_speaker(struct cairn_up_mail *mail, bool (*speak)(void *owner), void *owner);
struct cairn_up_mail_item *cairn_up_mail_take_spoken(struct cairn_up_mail *mail);
/* Called before and after epoll; is_awake waits until no other thread speaks. */
void cairn_up_mail_sleeps(struct cairn_up_mail *mail);
void cairn_up_mail_is_awake(struct cairn_up_mail *mail);
/* Ends begin on the socket's own thread; returns what cairn_up_mail_take would. */
struct cairn_up_mail_item *cairn_up_mail_end_own(struct cairn_up_mail *mail);

/* An item without run: a message, or the end of the connection. */
struct cairn_up_message {
    struct cairn_up_mail_item item;
    json_t *message;
    int fds[CAIRN_NET_FDS_MAX];
    size_t fd_count;
    bool hang_up;
};
void cairn_up_message_free(struct cairn_up_message *message);
/* A descriptor that is readable while there is mail. */
int cairn_up_mail_fd(const struct cairn_up_mail *mail);
/* Wakes the thread without mail: a session has news, or the thread must end. */
void cairn_up_mail_wake(struct cairn_up_mail *mail);
/* True when cairn_up_mail_wake was called since the last call. */
bool cairn_up_mail_was_woken(struct cairn_up_mail *mail);
/* All items, oldest first; the caller runs or frees each. */
struct cairn_up_mail_item *cairn_up_mail_take(struct cairn_up_mail *mail);
/* Connections of U04 since the last call. */
struct cairn_up_undelivered {
    uint64_t conns[CAIRN_UP_UNDELIVERED_MAX];
    size_t count;
    bool all; /* more than fit */
};
void cairn_up_mail_undelivered(struct cairn_up_mail *mail, struct cairn_up_undelivered *ret);

/* ---- tasks ---- */

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
/* What is left of it for a call to the server that may usually take usual_ms (0:
 * api/wire/rest.h's). */
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
/* Passes the ownership of owner to run or to drop. */
enum cairn_code cairn_up_tasks_add(struct cairn_up_tasks *tasks,
                                   void (*run)(struct cairn_up_helper *helper, void *owner),
                                   void (*drop)(void *owner), void *owner,
                                   struct cairn_error *err) CAIRN_MUST_USE;
