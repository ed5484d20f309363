/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail: mail to the socket's thread, and tasks for helper threads.
 *
 * Why:     only the socket's thread writes to trainers, and it never waits: other threads post
 *          their messages here, and helpers run slow work that no save depends on.
 * Promise: U08  mail is taken in the order of posting: an earlier answer arrives before an event.
 *          U04  a message for which there is no memory ends its connection: otherwise the trainer
 *               would wait for an answer that never comes, or believe that an event did not happen.
 *          U09  every item runs once, with NULL at the latest when the mail box is freed.
 *          U11  while the socket's thread sleeps, a thread with few messages (cairn_up_mail_begin,
 *               _end) sends them itself, in the mail's order, which saves a sealing trainer that
 *               thread's wake-up. Where it cannot send, it wakes the socket's thread.
 *          1    each task runs once, on some helper, in the order of submission when one is idle;
 *               free waits for running tasks and calls `drop` for waiting ones.
 * Limits:  CAIRN_UP_UNDELIVERED_MAX connections of U04 by number; beyond that, all end.
 *          CAIRN_UP_TASK_THREADS_MAX helpers, started when needed; 65,536 waiting tasks.
 * Threads: post, call, answer, refuse, hang_up, begin, end: any, locked by uploader_mail. take,
 *          undelivered, sleeps, is_awake: the socket's. One thread at a time uses the connections:
 *          the socket's or, while it sleeps, one in cairn_up_mail_end. Tasks: any, locked by
 *          uploader_tasks.
 * Next:    uploader/trainers/socket.c carries it out.
 */
#pragma once

#include "api/wire/rest.h"
#include "common/error.h"
#include "common/json.h"
#include "common/net.h"
#include "uploader/up.h"

#define CAIRN_UP_UNDELIVERED_MAX 64
#define CAIRN_UP_SPOKEN_MAX 4 /* more would delay the journal's thread */

struct cairn_up_mail;
struct cairn_up_session;

enum cairn_code cairn_up_mail_new(struct cairn_up_mail **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Runs every item with NULL, also items posted meanwhile; the socket's thread has ended. */
void cairn_up_mail_drop(struct cairn_up_mail *mail);
/* Drops all items. NULL is allowed. */
void cairn_up_mail_free(struct cairn_up_mail *mail);

/* Posts an event (api/messages.def). take_message NULL: no memory to encode it (U04). */
void cairn_up_mail_post(struct cairn_up_mail *mail, uint64_t conn, json_t *take_message);
/* Calls run(owner, session) on the socket's thread; session is NULL when that connection ended. The
 * caller owns the item until run begins, so posting it cannot fail for want of memory. */
struct cairn_up_mail_item {
    struct cairn_up_mail_item *next;
    uint64_t conn;
    void (*run)(void *owner, struct cairn_up_session *session);
    void *owner;
};
void cairn_up_mail_call(struct cairn_up_mail *mail, uint64_t conn,
                        void (*run)(void *owner, struct cairn_up_session *session), void *owner,
                        struct cairn_up_mail_item *item);
/* Answers; the call sets their `id`. take_fds are sent without dup and then closed. */
void cairn_up_mail_answer(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          json_t *take_message);
void cairn_up_mail_answer_fds(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                              json_t *take_message, const int *take_fds, size_t fd_count);
void cairn_up_mail_refuse(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          const struct cairn_error *why);
/* Ends the connection after all mail posted before. */
void cairn_up_mail_hang_up(struct cairn_up_mail *mail, uint64_t conn);
/* Between begin and end, mail of any thread wakes nobody. The last end sends it all here or wakes
 * the socket's thread, so the section must be short. The caller of end holds no lock. */
void cairn_up_mail_begin(struct cairn_up_mail *mail);
void cairn_up_mail_end(struct cairn_up_mail *mail);

/* ---- the socket's thread ---- */

/* Sets the function that sends for another thread: speak sends at most CAIRN_UP_SPOKEN_MAX messages
 * of cairn_up_mail_take_spoken (NULL: more wait). False: wake the socket's thread. */
void cairn_up_mail_speaker(struct cairn_up_mail *mail, bool (*speak)(void *owner), void *owner);
struct cairn_up_mail_item *cairn_up_mail_take_spoken(struct cairn_up_mail *mail);
/* Called before and after epoll; is_awake waits until no other thread sends. */
void cairn_up_mail_sleeps(struct cairn_up_mail *mail);
void cairn_up_mail_is_awake(struct cairn_up_mail *mail);
/* mail_end on the socket's own thread; returns what cairn_up_mail_take would. */
struct cairn_up_mail_item *cairn_up_mail_end_own(struct cairn_up_mail *mail);

/* An item without run: a message, or the request to end the connection. */
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
/* Wakes the socket's thread without mail: a session changed, or the thread must end. */
void cairn_up_mail_wake(struct cairn_up_mail *mail);
/* True when cairn_up_mail_wake was called since the last call. */
bool cairn_up_mail_was_woken(struct cairn_up_mail *mail);
/* Takes all items, oldest first; the caller runs or frees each. */
struct cairn_up_mail_item *cairn_up_mail_take(struct cairn_up_mail *mail);
/* Connections that lost a message (U04) since the last call. */
struct cairn_up_undelivered {
    uint64_t conns[CAIRN_UP_UNDELIVERED_MAX];
    size_t count;
    bool all; /* more than CAIRN_UP_UNDELIVERED_MAX */
};
void cairn_up_mail_undelivered(struct cairn_up_mail *mail, struct cairn_up_undelivered *ret);

/* ---- tasks ---- */

#define CAIRN_UP_TASK_THREADS_MAX 48

/* Each helper thread's own resources, made on first use. */
struct cairn_up_helper {
    struct cairn_up *up;
    struct cairn_rest *rest;
    struct cairn_store_worker *store;
};
enum cairn_code cairn_up_helper_rest(struct cairn_up_helper *helper, struct cairn_rest **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The deadline of an answer to a trainer that waits timeout_ms more, early enough for the trainer
 * to receive the reason; 0: the trainer set no timeout. */
uint64_t cairn_up_answer_by_ms(uint64_t timeout_ms);
/* Time for a call to the server before then; usual_ms: its bound (0: api/wire/rest.h's). */
uint32_t cairn_up_call_ms(uint64_t answer_by_ms, uint32_t usual_ms);
/* True, after a pause: call again, as the server was unreachable (it restarts) and the trainer's
 * deadline allows a retry. False: `code` is the answer. */
bool cairn_up_helper_again(struct cairn_up_helper *helper, enum cairn_code code,
                           uint64_t answer_by_ms);
enum cairn_code cairn_up_helper_store(struct cairn_up_helper *helper,
                                      struct cairn_store_worker **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

enum cairn_code cairn_up_tasks_new(struct cairn_up *up, struct cairn_up_tasks **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Refuses new tasks. False when tasks still run after wait_ms: then the struct must stay. */
bool cairn_up_tasks_stop(struct cairn_up_tasks *tasks, uint64_t wait_ms);
void cairn_up_tasks_free(struct cairn_up_tasks *tasks);
/* Moves the ownership of owner to run or to drop. */
enum cairn_code cairn_up_tasks_add(struct cairn_up_tasks *tasks,
                                   void (*run)(struct cairn_up_helper *helper, void *owner),
                                   void (*drop)(void *owner), void *owner,
                                   struct cairn_error *err) CAIRN_MUST_USE;
