/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the struct that watch.c and heartbeat.c share, and saves that the server answers with a
 *         failure of its own, or a proxy does not let through, again and again (trouble).
 *
 * Why:     one save that the server cannot digest must neither hold up the others nor be tried in
 *          silence for ever; and it must not be failed either, since that is no word of the API
 *          about it (Q6, Q48).
 * Promise: Q3   `unsent` of an attempt counts the saves whose begin, seal or fail the server has
 *               not answered.
 *          1    a watcher polls for one version at a time; which one, uploader_state says.
 *          2    a request that ends in trouble is split until each save was told alone; the ones
 *               that the server takes go on, the others are tried again after pauses of their own,
 *               200 ms to 30 s.
 *          3    from CAIRN_UP_TROUBLE_TRIES failures in a row on, the log has said it once, its
 *               rank is told (docs/socket.md, `problem`), and later saves of other steps of its
 *               rank no longer wait for it.
 * Limits:  502, 503 and 504 say that a server is away: they count as no answer.
 * Threads: `locked` by uploader_watch; a watcher's version and run, and trouble, by uploader_state;
 *          rest and generation belong to the thread that uses them.
 * Next:    uploader/server/watch.c, uploader/server/heartbeat.c, uploader/server/outbox.c.
 */
#pragma once

#include <stdbool.h>

#include "api/grant.h"
#include "api/rest.h"
#include "uploader/saves/save.h"
#include "uploader/server/watch.h"

#define CAIRN_UP_HURRY_MS 100

struct cairn_up_watcher {
    struct cairn_up_watch *watch;
    pthread_t thread;
    bool started;
    struct cairn_rest *rest;
    char version[CAIRN_VERSION_ID_BYTES]; /* "": none */
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char grant[CAIRN_GRANT_BYTES_MAX];
    struct cairn_trace trace;
    bool is_new; /* no watcher has polled this version before */
    bool decides; /* a save of it awaits the seal of rank 0 */
};
struct cairn_up_watch {
    struct cairn_up *up;
    struct cairn_rest *rest; /* the heartbeat's */
    pthread_t thread;
    bool started;
    struct cairn_up_watcher watchers[CAIRN_UP_WATCHERS];
    struct {
        bool known;
        char catalog[CAIRN_UUID_TEXT_BYTES];
        uint64_t generation;
        bool complained;
    } heard;                       /* the heartbeat's thread */
    struct cairn_up_rate { /* the same: how fast this node uploads */
        uint64_t beat_ms, bytes; /* of the last heartbeat */
        bool busy;               /* there was something to send */
        uint64_t per_second, told;
    } rate;
    struct { /* the same: of slabs and queue, as they were told last */
        uint64_t slab_held_bytes, queue_depth;
    } told;
    struct cairn_up_missed missed; /* the same */
    struct cairn_late_bell bell;
    struct cairn_lock lock; /* uploader_watch */
    struct cairn_condition stop;
    struct {
        bool stopping, beat_now;
        uint32_t hurrying;
        uint64_t pokes;
    } locked;
};

struct cairn_up_watch;
/* last: the uploader stops; says so when it has nothing to report, and is waited for no more. */
void cairn_up_heartbeat(struct cairn_up_watch *watch, bool last);
