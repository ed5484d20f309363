/* SPDX-License-Identifier: Apache-2.0 */
/* Mail: a list under a lock, and an eventfd. Tasks: a list, and threads on demand. */
#include "uploader/mail.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/wire/messages.h"

struct cairn_up_mail {
    int wake_fd;
    bool (*speak)(void *owner);
    void *speak_owner;
    struct cairn_lock lock; /* uploader_mail */
    struct cairn_condition spoken;
    struct {
        bool asleep, speaking;
        uint32_t quiet; /* threads between begin and end; the last end handles all mail */
        bool woken;     /* by cairn_up_mail_wake */
        struct cairn_up_mail_item *first, **last;
        struct cairn_up_undelivered undelivered; /* connections that lost a message */
    } locked;
};

enum cairn_code cairn_up_mail_new(struct cairn_up_mail **ret, struct cairn_error *err) {
    struct cairn_up_mail *mail = calloc(1, sizeof(*mail));
    if (!mail) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the mail box");
    cairn_lock_init(&mail->lock, CAIRN_LOCK_uploader_mail);
    cairn_condition_init(&mail->spoken);
    mail->locked.last = &mail->locked.first;
    mail->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (mail->wake_fd < 0) {
        enum cairn_code code = cairn_fail_errno(err, "eventfd");
        cairn_up_mail_free(mail);
        return code;
    }
    *ret = mail;
    return CAIRN_OK;
}

void cairn_up_message_free(struct cairn_up_message *message) {
    json_decref(message->message);
    for (size_t i = 0; i < message->fd_count; i++) close(message->fds[i]);
    free(message);
}

/* Dropping a message may post another one. */
void cairn_up_mail_drop(struct cairn_up_mail *mail) {
    for (struct cairn_up_mail_item *item; (item = cairn_up_mail_take(mail));) {
        for (struct cairn_up_mail_item *next; item; item = next) {
            next = item->next;
            if (item->run)
                item->run(item->owner, NULL);
            else
                cairn_up_message_free((struct cairn_up_message *)item);
        }
    }
}

void cairn_up_mail_free(struct cairn_up_mail *mail) {
    if (!mail) return;
    cairn_up_mail_drop(mail);
    if (mail->wake_fd >= 0) close(mail->wake_fd);
    cairn_condition_release(&mail->spoken);
    cairn_lock_release(&mail->lock);
    free(mail);
}

static void ring(struct cairn_up_mail *mail) {
    uint64_t one = 1;
    ssize_t ignored = write(mail->wake_fd, &one, sizeof(one));
    (void)ignored; /* EAGAIN: the counter is full, so the thread is awake */
}

void cairn_up_mail_wake(struct cairn_up_mail *mail) {
    cairn_lock_take(&mail->lock);
    mail->locked.woken = true;
    cairn_lock_give(&mail->lock);
    ring(mail);
}

static void deliver_later(struct cairn_up_mail *mail, struct cairn_up_mail_item *item) {
    cairn_lock_take(&mail->lock);
    item->next = NULL;
    *mail->locked.last = item;
    mail->locked.last = &item->next;
    bool quiet = mail->locked.quiet > 0;
    cairn_lock_give(&mail->lock);
    if (!quiet) ring(mail);
}

/* U04: needs no memory, unlike the message that it replaces. */
static void leave_undelivered(struct cairn_up_mail *mail, uint64_t conn) {
    if (!conn) return;
    cairn_lock_take(&mail->lock);
    struct cairn_up_undelivered *undelivered = &mail->locked.undelivered;
    if (undelivered->count < CAIRN_UP_UNDELIVERED_MAX)
        undelivered->conns[undelivered->count++] = conn;
    else
        undelivered->all = true;
    cairn_lock_give(&mail->lock);
    ring(mail);
}

/* NULL: no memory, and the connection will end. */
static struct cairn_up_message *message_new(struct cairn_up_mail *mail, uint64_t conn) {
    struct cairn_up_message *message = calloc(1, sizeof(*message));
    if (message)
        message->item.conn = conn;
    else
        leave_undelivered(mail, conn);
    return message;
}

static void post(struct cairn_up_mail *mail, uint64_t conn, json_t *take_message,
                 const int *take_fds, size_t fd_count) {
    CAIRN_ASSERT(fd_count <= CAIRN_NET_FDS_MAX);
    struct cairn_up_message *message = conn && take_message ? message_new(mail, conn) : NULL;
    if (!take_message) leave_undelivered(mail, conn);
    if (!message) {
        json_decref(take_message);
        for (size_t i = 0; i < fd_count; i++) close(take_fds[i]);
        return;
    }
    message->message = take_message;
    message->fd_count = fd_count;
    if (fd_count) memcpy(message->fds, take_fds, fd_count * sizeof(*take_fds));
    deliver_later(mail, &message->item);
}

void cairn_up_mail_post(struct cairn_up_mail *mail, uint64_t conn, json_t *take_message) {
    post(mail, conn, take_message, NULL, 0);
}

void cairn_up_mail_call(struct cairn_up_mail *mail, uint64_t conn,
                        void (*run)(void *owner, struct cairn_up_session *session), void *owner,
                        struct cairn_up_mail_item *item) {
    *item = (struct cairn_up_mail_item){.conn = conn, .run = run, .owner = owner};
    deliver_later(mail, item);
}

void cairn_up_mail_hang_up(struct cairn_up_mail *mail, uint64_t conn) {
    struct cairn_up_message *message = message_new(mail, conn);
    if (!message) return;
    message->hang_up = true;
    deliver_later(mail, &message->item);
}

void cairn_up_mail_answer_fds(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                              json_t *take_message, const int *take_fds, size_t fd_count) {
    if (take_message && json_object_set_new(take_message, "id", json_integer(request)))
        json_decref(CAIRN_TAKE(take_message));
    post(mail, conn, take_message, take_fds, fd_count);
}

void cairn_up_mail_answer(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          json_t *take_message) {
    cairn_up_mail_answer_fds(mail, conn, request, take_message, NULL, 0);
}

void cairn_up_mail_refuse(struct cairn_up_mail *mail, uint64_t conn, int64_t request,
                          const struct cairn_error *why) {
    cairn_up_mail_answer(mail, conn, request,
                         CAIRN_PACK(error, CAIRN_PACK_WHY(why, message),
                                    .retryable = cairn_code_info(why->code)->retryable));
}

void cairn_up_mail_speaker(struct cairn_up_mail *mail, bool (*speak)(void *owner), void *owner) {
    mail->speak = speak;
    mail->speak_owner = owner;
}

void cairn_up_mail_begin(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    mail->locked.quiet++;
}

/* True for at most CAIRN_UP_SPOKEN_MAX messages and no function to run. The lock is held. */
static bool is_little(const struct cairn_up_mail *mail) {
    size_t count = 0;
    const struct cairn_up_mail_item *item = mail->locked.first;
    for (; item && !item->run && count <= CAIRN_UP_SPOKEN_MAX; item = item->next) count++;
    return !item && count;
}

/* The lock is held. */
static struct cairn_up_mail_item *take_all(struct cairn_up_mail *mail) {
    struct cairn_up_mail_item *first = mail->locked.first;
    mail->locked.first = NULL;
    mail->locked.last = &mail->locked.first;
    return first;
}

void cairn_up_mail_end(struct cairn_up_mail *mail) {
    cairn_lock_take(&mail->lock);
    CAIRN_ASSERT(mail->locked.quiet > 0);
    bool some = --mail->locked.quiet == 0 && mail->locked.first;
    bool mine =
        some && mail->speak && mail->locked.asleep && !mail->locked.speaking && is_little(mail);
    mail->locked.speaking |= mine;
    cairn_lock_give(&mail->lock);
    bool fine = mine && mail->speak(mail->speak_owner);
    if (some && !fine) ring(mail);
    if (!mine) return;
    cairn_lock_take(&mail->lock);
    mail->locked.speaking = false;
    bool waited = !mail->locked.asleep;
    cairn_lock_give(&mail->lock);
    if (waited) cairn_condition_signal(&mail->spoken);
}

struct cairn_up_mail_item *cairn_up_mail_take_spoken(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    CAIRN_ASSERT(mail->locked.speaking);
    return is_little(mail) ? take_all(mail) : NULL; /* mail was posted meanwhile */
}

void cairn_up_mail_sleeps(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    mail->locked.asleep = true;
}

void cairn_up_mail_is_awake(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    mail->locked.asleep = false;
    while (mail->locked.speaking)
        (void)cairn_condition_wait(&mail->spoken, &mail->lock, UINT64_MAX);
}

struct cairn_up_mail_item *cairn_up_mail_end_own(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    CAIRN_ASSERT(mail->locked.quiet > 0);
    mail->locked.quiet--;
    return take_all(mail);
}

int cairn_up_mail_fd(const struct cairn_up_mail *mail) {
    return mail->wake_fd;
}

struct cairn_up_mail_item *cairn_up_mail_take(struct cairn_up_mail *mail) {
    uint64_t count;
    ssize_t ignored = read(mail->wake_fd, &count, sizeof(count));
    (void)ignored;
    CAIRN_HOLD(&mail->lock);
    return take_all(mail);
}

void cairn_up_mail_undelivered(struct cairn_up_mail *mail, struct cairn_up_undelivered *ret) {
    CAIRN_HOLD(&mail->lock);
    *ret = mail->locked.undelivered;
    mail->locked.undelivered.count = 0;
    mail->locked.undelivered.all = false;
}

bool cairn_up_mail_was_woken(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    bool woken = mail->locked.woken;
    mail->locked.woken = false;
    return woken;
}

/* ---- tasks ---- */

#define WAITING_MAX 65536
#define AGAIN_MS 100
#define ANSWER_MARGIN_MS 1000 /* reserve for the answer's way and a busy socket thread */

struct task {
    struct task *next;
    void (*run)(struct cairn_up_helper *helper, void *owner);
    void (*drop)(void *owner);
    void *owner;
};
struct cairn_up_tasks {
    struct cairn_up *up;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct task *first, **last;
        size_t waiting, idle, busy, thread_count;
        pthread_t threads[CAIRN_UP_TASK_THREADS_MAX];
        bool stopping;
    } locked;
};

enum cairn_code cairn_up_helper_rest(struct cairn_up_helper *helper, struct cairn_rest **ret,
                                     struct cairn_error *err) {
    if (!helper->rest) {
        CAIRN_TRY(cairn_up_rest_new(helper->up, 0, &helper->rest, err));
    }
    *ret = helper->rest;
    return CAIRN_OK;
}

uint64_t cairn_up_answer_by_ms(uint64_t timeout_ms) {
    if (!timeout_ms) return 0;
    return cairn_mono_ms() + timeout_ms - cairn_min_u64(timeout_ms / 4, ANSWER_MARGIN_MS);
}

uint32_t cairn_up_call_ms(uint64_t answer_by_ms, uint32_t usual_ms) {
    if (!answer_by_ms) return usual_ms;
    uint64_t left_ms = cairn_max_u64(cairn_deadline_left_ms(&cairn_clock_real, answer_by_ms), 1);
    return (uint32_t)cairn_min_u64(left_ms, usual_ms ? usual_ms : CAIRN_REST_TIMEOUT_MS);
}

bool cairn_up_helper_again(struct cairn_up_helper *helper, enum cairn_code code,
                           uint64_t answer_by_ms) {
    struct cairn_up *up = helper->up;
    uint64_t until_ms = cairn_mono_ms() + AGAIN_MS;
    if (code != CAIRN_UNAVAILABLE || until_ms >= answer_by_ms) return false;
    CAIRN_HOLD(&up->lock);
    while (!up->locked.draining && cairn_condition_wait(&up->changed, &up->lock, until_ms))
        continue;
    return !up->locked.draining;
}

enum cairn_code cairn_up_helper_store(struct cairn_up_helper *helper,
                                      struct cairn_store_worker **ret, struct cairn_error *err) {
    if (!helper->store) CAIRN_TRY(cairn_store_worker_new(helper->up->store, &helper->store, err));
    *ret = helper->store;
    return CAIRN_OK;
}

static void *helper_main(void *argument) {
    struct cairn_up_tasks *tasks = argument;
    struct cairn_up_helper helper = {.up = tasks->up};
    cairn_lock_take(&tasks->lock);
    for (;;) {
        while (!tasks->locked.first && !tasks->locked.stopping) {
            tasks->locked.idle++;
            (void)cairn_condition_wait(&tasks->work, &tasks->lock, UINT64_MAX);
            tasks->locked.idle--;
        }
        if (tasks->locked.stopping) break;
        struct task *task = tasks->locked.first;
        tasks->locked.first = task->next;
        if (!tasks->locked.first) tasks->locked.last = &tasks->locked.first;
        tasks->locked.waiting--;
        tasks->locked.busy++;
        cairn_lock_give(&tasks->lock);
        task->run(&helper, task->owner);
        free(task);
        cairn_lock_take(&tasks->lock);
        tasks->locked.busy--;
        if (tasks->locked.stopping) cairn_condition_broadcast(&tasks->work);
    }
    cairn_lock_give(&tasks->lock);
    if (helper.rest) cairn_rest_free(helper.rest);
    if (helper.store) cairn_store_worker_free(helper.store);
    return NULL;
}

enum cairn_code cairn_up_tasks_new(struct cairn_up *up, struct cairn_up_tasks **ret,
                                   struct cairn_error *err) {
    struct cairn_up_tasks *tasks = calloc(1, sizeof(*tasks));
    if (!tasks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for helper threads");
    tasks->up = up;
    cairn_lock_init(&tasks->lock, CAIRN_LOCK_uploader_tasks);
    cairn_condition_init(&tasks->work);
    tasks->locked.last = &tasks->locked.first;
    *ret = tasks;
    return CAIRN_OK;
}

bool cairn_up_tasks_stop(struct cairn_up_tasks *tasks, uint64_t wait_ms) {
    if (!tasks) return true;
    uint64_t until_ms = cairn_mono_ms() + wait_ms;
    CAIRN_HOLD(&tasks->lock);
    tasks->locked.stopping = true;
    cairn_condition_broadcast(&tasks->work);
    while (tasks->locked.busy && cairn_condition_wait(&tasks->work, &tasks->lock, until_ms))
        continue;
    return !tasks->locked.busy;
}

void cairn_up_tasks_free(struct cairn_up_tasks *tasks) {
    if (!tasks) return;
    cairn_lock_take(&tasks->lock);
    tasks->locked.stopping = true;
    cairn_condition_broadcast(&tasks->work);
    size_t count = tasks->locked.thread_count;
    cairn_lock_give(&tasks->lock);
    for (size_t i = 0; i < count; i++) pthread_join(tasks->locked.threads[i], NULL);
    for (struct task *task = tasks->locked.first, *next; task; task = next) {
        next = task->next;
        if (task->drop) task->drop(task->owner);
        free(task);
    }
    cairn_condition_release(&tasks->work);
    cairn_lock_release(&tasks->lock);
    free(tasks);
}

enum cairn_code cairn_up_tasks_add(struct cairn_up_tasks *tasks,
                                   void (*run)(struct cairn_up_helper *helper, void *owner),
                                   void (*drop)(void *owner), void *owner,
                                   struct cairn_error *err) {
    struct task *task = calloc(1, sizeof(*task));
    if (!task) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a task");
    *task = (struct task){.run = run, .drop = drop, .owner = owner};
    CAIRN_HOLD(&tasks->lock);
    if (tasks->locked.waiting >= WAITING_MAX || tasks->locked.stopping) {
        free(task);
        return cairn_fail(err, CAIRN_BUSY, "%zu tasks are waiting already", tasks->locked.waiting);
    }
    bool wanted = tasks->locked.idle <= tasks->locked.waiting &&
                  tasks->locked.thread_count < CAIRN_UP_TASK_THREADS_MAX;
    if (wanted && pthread_create(&tasks->locked.threads[tasks->locked.thread_count], NULL,
                                 helper_main, tasks) == 0)
        tasks->locked.thread_count++;
    if (!tasks->locked.thread_count) {
        free(task);
        return cairn_fail(err, CAIRN_BUSY, "no thread for a task");
    }
    *tasks->locked.last = task;
    tasks->locked.last = &task->next;
    tasks->locked.waiting++;
    cairn_condition_signal(&tasks->work);
    return CAIRN_OK;
}
