/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers: what a setting that names the server says: one, or a list of those over one catalog.
 *
 * Why:     the command, the uploader and the settings' check must take and refuse the same texts.
 * Promise: 1   a list is http(s)://HOST[:PORT][/PATH] entries, commas between, of one scheme and
 *              one path, none twice; unix:PATH stands alone, since a path may hold commas.
 *          2   a text that is refused is told which entry is wrong and why, without the entry: it
 *              may hold a password.
 * Limits:  CAIRN_SERVERS_MAX entries.
 * Threads: immutable after parse.
 * Next:    api/rest.h.
 */
#pragma once

#include "common/error.h"

#define CAIRN_SERVERS_MAX 16

struct cairn_server_place {
    char *name;        /* as it was written */
    char *base;        /* "http://host:port", no slash at the end */
    char *unix_socket; /* or NULL */
};
struct cairn_servers {
    struct cairn_server_place places[CAIRN_SERVERS_MAX];
    uint32_t count; /* at least 1 once parsed */
};
enum cairn_code cairn_servers_parse(const char *text, struct cairn_servers *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
void cairn_servers_release(struct cairn_servers *servers);
