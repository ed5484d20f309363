/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside: the struct that watch.c and heartbeat.c share.
 *
 * Why:     the heartbeat's request and the long polls are a page each.
 * Promise: 1   a watcher polls for one version at a time; which one, uploader_state says.
 * Limits:  see uploader/server/watch.h.
 * Threads: `locked` by uploader_watch; a watcher's version and run by uploader_state; rest and
 *          generation belong to the thread that uses them.
 * Next:    uploader/server/watch.c, uploader/server/heartbeat.c.
 */
#pragma once

#include "api/wire/rest.h"
#include "api/wire/rights.h"
#include "uploader/server/abandoned.h"
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
