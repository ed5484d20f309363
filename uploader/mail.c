/* SPDX-License-Identifier: Apache-2.0 */
/* A list under a lock, and an eventfd for whoever empties it. */
#include "uploader/mail.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/lock.h"

struct cairn_up_mail {
    int wake_fd;
    bool (*speak)(void *owner);
    void *speak_owner;
    struct cairn_lock lock; /* uploader_mail */
    struct cairn_condition spoken;
    struct {
        bool asleep, speaking;
        uint32_t quiet; /* threads between begin and end: the last one sees to all mail */
        bool woken;     /* by cairn_up_mail_wake */
        struct cairn_up_mail_item *first, **last;
        struct cairn_up_undelivered undelivered; /* there was no memory for a message */
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

/* ---- posting ---- */

static void ring(struct cairn_up_mail *mail) {
    uint64_t one = 1;
    ssize_t ignored = write(mail->wake_fd, &one, sizeof(one));
    (void)ignored; /* full means that it is awake already */
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

/* U04: the end of the connection says that much, and needs no memory. */
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

/* ---- speaking in the place of the socket's thread ---- */

void cairn_up_mail_speaker(struct cairn_up_mail *mail, bool (*speak)(void *owner), void *owner) {
    mail->speak = speak;
    mail->speak_owner = owner;
}

void cairn_up_mail_begin(struct cairn_up_mail *mail) {
    CAIRN_HOLD(&mail->lock);
    mail->locked.quiet++;
}

/* Few messages, and nothing to run. The lock is held. */
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
    return is_little(mail) ? take_all(mail) : NULL; /* more may have come */
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

/* ---- the socket's thread ---- */

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
