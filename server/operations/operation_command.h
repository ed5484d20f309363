/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operation_command: the command `cairn` as an operation runs it.
 *
 * Why:     it needs this server's address, a token and the store's settings, and none of them as an
 *          argument, which everybody on the machine can read.
 * Promise: 1   of the server's environment it gets what is listed in operation_command.c, and the
 *              store's settings as they hold here. The variables of AWS go to an import alone,
 *              which sends to the store itself. No profile of the server's user is read.
 *          2   it ends with the thread that started it (CAIRN_PARENT).
 *          3   its address space is bounded by the setting operation-memory (CAIRN_MEMORY).
 * Limits:  the program `cairn` beside cairn-server; 64 arguments.
 * Threads: one owner.
 * Next:    server/operations/child.h, server/operations/operations_job.c.
 */
#pragma once

#include "common/json.h"
#include "server/operations/child.h"
#include "server/operations/folders.h"
#include "server/server.h"

struct cairn_srv_operation_command {
    json_t *arguments; /* owned; the verb first */
    bool sends;        /* to the store itself, by an uploader that it brings */
    struct cairn_srv_place place;
    bool inside;
    char *path; /* owned */
};
void cairn_srv_operation_command_release(struct cairn_srv_operation_command *command);
/* token NULL: none is needed. */
enum cairn_code cairn_srv_operation_command_start(struct cairn_srv *server, uint16_t port,
                                                  const struct cairn_srv_operation_command *command,
                                                  const char *token, struct cairn_srv_child *ret,
                                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The place as the command names it becomes the path that was asked for. */
enum cairn_code cairn_srv_operation_command_say(const struct cairn_srv_operation_command *command,
                                                const char *text, struct cairn_buf *ret,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* As the command is told the place that it does not work in. */
#define CAIRN_SRV_OPERATION_FOLDER "/proc/self/fd/3"
