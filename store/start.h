/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: how a daemon comes to its store, and what it says of it in its log.
 *
 * Why:     server and uploader open the same store by the same settings; an operator who reads
 *          the log of one must find the same events, in the same words, in that of the other.
 * Promise: 1   cairn_store_start opens the store, asks for its keys, tests it where the settings
 *              say so, and logs what was found: keys, exposed keys, where the profile is known
 *              from, its note.
 *          2   with must_work a store whose keys or test fail ends the start; without it that is
 *              logged, and the daemon goes on with what is safe to assume.
 *          3   what the store turns out not to do is logged once, and corrected in profile.json.
 * Limits:  the one file of store/ that logs: it is part of the daemons' start.
 * Threads: one owner, before other threads use the store; the watch has one owner.
 * Next:    store/s3/capabilities.c; server/main.c, uploader/daemon.c.
 */
#pragma once

#include "store/s3/settings.h"

struct cairn_store_start {
    const char *url;
    const struct cairn_store_s3_settings *s3;
    const char *file_mode; /* of a folder's files, as cairn_file_mode_parse takes it */
    const char *by; /* "server", "uploader" */
    bool may_list;  /* its keys should be able to list */
    bool must_work;
    uint32_t probe_ms; /* of each request of a test; 0 = 30 s */
};
enum cairn_code cairn_store_start(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Writes profile.json where it says anything else, for those who may find out less, or come later.
 * Without it they find out for themselves. */
void cairn_store_start_keep(struct cairn_store *store);

struct cairn_store_watch {
    bool logged;
};
/* To be called now and then. keeps: profile.json is corrected. */
void cairn_store_watch_look(struct cairn_store_watch *watch, struct cairn_store *store, bool keeps);
