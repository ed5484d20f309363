/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, and the thread that listens; see notify.h. */
#include "server/db/notify.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/process.h"
#include "server/db/engine.h"

#define AGAIN_MS 500    /* after a session that was lost, or could not be made */
#define SILENCE_MS 5000 /* after which the session is asked whether it is still there */
#define RUN_TEXT_BYTES (2 * CAIRN_NAME_BYTES_MAX + 2)

struct cairn_srv_listener {
    const struct cairn_srv_engine *engine;
    void *place;
    void (*changed)(void *owner, uint64_t key);
    void *owner;
    int wake_fd; /* readable from the stop on */
    atomic_bool hears;
    struct cairn_thread thread;
};

uint64_t cairn_srv_key_of(const char *text) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return hash;
}

uint64_t cairn_srv_key_of_run(const struct cairn_run_name *name) {
    char text[RUN_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s/%s", name->project, name->run);
    return cairn_srv_key_of(text);
}

void cairn_srv_notify_events(struct cairn_srv_tx *tx) {
    if (tx->engine->notify) tx->engine->notify(tx, CAIRN_SRV_NOTIFY_EVENTS);
}

void cairn_srv_notify_text(struct cairn_srv_tx *tx, const char *text) {
    if (tx->engine->notify) tx->engine->notify(tx, cairn_srv_key_of(text));
}

void cairn_srv_notify_run(struct cairn_srv_tx *tx, const struct cairn_run_name *name) {
    CAIRN_ASSERT(name->run[0]);
    if (tx->engine->notify) tx->engine->notify(tx, cairn_srv_key_of_run(name));
}

void cairn_srv_notify_version(struct cairn_srv_tx *tx, const struct cairn_version_id *id,
                              const struct cairn_run_name *name) {
    cairn_srv_notify_text(tx, id->text);
    cairn_srv_notify_run(tx, name);
}

/* ---- listening ---- */

/* Until the session is lost (that failure) or a stop (CAIRN_OK). */
static enum cairn_code hear_all(struct cairn_srv_listener *listener, struct cairn_srv_tx *tx,
                                struct cairn_error *err) {
    const struct cairn_srv_engine *engine = listener->engine;
    enum cairn_code code = CAIRN_OK;
    listener->hears = true;
    listener->changed(listener->owner, CAIRN_SRV_NOTIFY_ALL);
    while (!code && cairn_thread_wait(&listener->thread, 0))
        code = engine->listen_for(tx, listener->wake_fd, SILENCE_MS, listener->changed,
                                  listener->owner, err);
    listener->hears = false;
    listener->changed(listener->owner, CAIRN_SRV_NOTIFY_ALL);
    return code;
}

static void listen_loop(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_listener *listener = owner;
    bool said = false;
    do {
        struct cairn_srv_tx *tx = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = listener->engine->listen(listener->place, &tx, &why);
        if (!code) {
            if (said)
                cairn_log(INFO, "catalog.heard", "server=%s",
                          listener->engine->server(listener->place));
            said = false;
            code = hear_all(listener, tx, &why);
            listener->engine->disconnect(tx);
        }
        if (code && !said)
            cairn_log(WARN, "catalog.unheard",
                      "cause=\"%s\" effect=\"requests that wait for another server's change look "
                      "for it themselves, more often\"",
                      why.message);
        said |= code != CAIRN_OK;
    } while (cairn_thread_wait(thread, cairn_mono_ms() + AGAIN_MS));
}

enum cairn_code cairn_srv_listener_new(const struct cairn_srv_engine *engine, void *place,
                                       void (*changed)(void *owner, uint64_t key), void *owner,
                                       struct cairn_srv_listener **ret, struct cairn_error *err) {
    if (!engine->listen) return CAIRN_OK;
    struct cairn_srv_listener *listener = calloc(1, sizeof(*listener));
    if (!listener) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for listening");
    listener->engine = engine;
    listener->place = place;
    listener->changed = changed;
    listener->owner = owner;
    listener->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener->thread =
        (struct cairn_thread){.name = "cairn-listen", .run = listen_loop, .owner = listener};
    enum cairn_code code = listener->wake_fd < 0 ? cairn_fail_errno(err, "eventfd")
                                                 : cairn_thread_start(&listener->thread, err);
    if (code)
        cairn_srv_listener_free(listener);
    else
        *ret = listener;
    return code;
}

void cairn_srv_listener_stop(struct cairn_srv_listener *listener) {
    if (!listener) return;
    if (listener->wake_fd >= 0) (void)eventfd_write(listener->wake_fd, 1);
    cairn_thread_stop(&listener->thread);
}

void cairn_srv_listener_free(struct cairn_srv_listener *listener) {
    if (!listener) return;
    cairn_srv_listener_stop(listener);
    if (listener->wake_fd >= 0) close(listener->wake_fd);
    free(listener);
}

bool cairn_srv_listener_hears(const struct cairn_srv_listener *listener) {
    return listener && listener->hears;
}
