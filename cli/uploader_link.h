/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uploader_link: what an operator asks this node's uploader over its socket.
 *
 * Why:     status and drain are asked of the process itself, also while no server is there.
 * Promise: 1   a call ends at its deadline; CAIRN_UPLOADER_GONE when nobody listens, or the process
 *              ended meanwhile.
 * Limits:  one call at a time.
 * Threads: one owner.
 * Next:    docs/socket.md, cli/verbs/uploader.c.
 */
#pragma once

#include "api/wire/frame.h"
#include "api/wire/messages.h"

struct cairn_cli_uploader {
    int fd; /* -1: none */
    uint64_t numbered;
    struct cairn_frame_reader reader;
};
enum cairn_code cairn_cli_uploader_open(const char *socket_path, struct cairn_cli_uploader *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_uploader_close(struct cairn_cli_uploader *uploader);
/* take_request: a form of the group REQUEST, as CAIRN_PACK makes it. *ret: its answer. */
enum cairn_code cairn_cli_uploader_ask(struct cairn_cli_uploader *uploader, json_t *take_request,
                                       uint64_t deadline_ms, json_t **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
