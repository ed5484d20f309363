/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_view: events and progress as lines, as JSON, or as a view that is drawn again and again.
 *
 * Why:     who watches on a terminal wants one picture, a log wants whole lines, a program objects.
 * Promise: 1   only a terminal is sent anything but whole lines; what it shows is never wider than
 *              it, nor higher.
 *          2   without a terminal a save has a line when something of it has changed, and one a
 *              minute while nothing does.
 *          3   no colours: shapes and words say it (NO_COLOR needs nothing).
 * Limits:  as cli/verbs/watched.h.
 * Threads: main thread.
 * Next:    cli/verbs/watch.c.
 */
#pragma once

#include "cli/verbs/watched.h"

struct cairn_cli_watch_view {
    const struct cairn_cli *cli;
    bool terminal;
    int drawn; /* lines of the picture that stand on the terminal */
    struct {
        char version[CAIRN_VERSION_ID_BYTES];
        char said[160];     /* what changes of its last line */
        char errors[600];   /* of its nodes, as they were told last */
        uint64_t shown_ms;
    } told[CAIRN_CLI_WATCHED_SAVES];
    size_t told_next; /* the place that is used next */
};
void cairn_cli_watch_view_init(struct cairn_cli_watch_view *view, const struct cairn_cli *cli);
enum cairn_code cairn_cli_watch_view_event(struct cairn_cli_watch_view *view, const json_t *item,
                                           struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_watch_view_saves(struct cairn_cli_watch_view *view,
                                           const struct cairn_cli_watched *watched,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* A note on standard error, above the picture. */
void cairn_cli_watch_view_note(struct cairn_cli_watch_view *view, const char *text);
