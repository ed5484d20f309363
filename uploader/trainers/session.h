/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session: one trainer's connection and what it has opened.
 *
 * Why:     a rank's attempt, memory (slabs) and saves depend on each other and end together.
 * Promise: 1   hello comes first and once; an early, repeated or malformed message is answered with
 *              an error, and a broken order ends the session.
 *          2   the end of the connection fails unsealed saves and lets sealed ones continue.
 *          3   events carry the save's number in this session, never one of an older session.
 * Limits:  see docs/socket.md.
 * Threads: the socket's thread alone; helpers answer through cairn_up_mail_call.
 * Next:    attempts.c, staging.c, requests.c.
 */
#pragma once

#include "api/wire/frame.h"
#include "uploader/mail.h"
#include "uploader/saves/ranks.h"
#include "uploader/saves/save.h"

#define CAIRN_UP_RESTORES_MAX 16
#define CAIRN_UP_WAIT_STAGED_MS 30000 /* when a trainer sets no timeout (docs/socket.md) */

struct cairn_up_window;
struct cairn_up_version;

struct cairn_up_session {
    struct cairn_up *up;
    uint64_t conn;
    uid_t uid;
    pid_t pid;
    int process; /* process descriptor or -1; the kernel's until hello */
    char process_name[CAIRN_UP_PROCESS_BYTES];
    char uuid[CAIRN_UUID_TEXT_BYTES];
    bool greeted, leaving, said_bye, read_only;
    uint32_t version;                               /* of the socket protocol; 0: before hello */
    bool store_wait_reported, server_away_reported; /* `problem` was sent for these */
    struct cairn_run_name name;                     /* empty: read-only, of no run */
    char run_text[2 * CAIRN_NAME_BYTES_MAX + 2];
    char proc[CAIRN_UUID_TEXT_BYTES];
    char trace[CAIRN_TRACE_TEXT_BYTES]; /* traceparent of its saves; "": none */
    uint32_t rank, world_size, local_world_size;
    uint64_t bytes, node_bytes;
    int numa_node; /* of its trainer; -1: several, or unknown */
    bool attempting, reserving, reserved;
    struct cairn_up_attempt *attempt; /* holds one use; NULL: none yet */
    uint64_t entry;                   /* in the journal; 0: none */
    char resume_version[CAIRN_VERSION_ID_BYTES];
    uint64_t resume_step;
    bool resume_found;
    uint32_t save_last;
    struct cairn_up_table *table; /* of its last seal, which the next may name */
    struct cairn_up_window *window;
    struct {
        uint32_t number; /* 0: free */
        struct cairn_up_version *version;
        uint64_t asked_us; /* mono clock */
    } restores[CAIRN_UP_RESTORES_MAX];
    uint32_t restore_last;
};

enum cairn_code cairn_up_session_new(struct cairn_up *up, uint64_t conn, uid_t uid, pid_t pid,
                                     struct cairn_up_session **ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* NULL is allowed. */
void cairn_up_session_end(struct cairn_up_session *session);
/* CAIRN_OK, or the connection ends. */
enum cairn_code cairn_up_session_frame(struct cairn_up_session *session, struct cairn_frame *frame,
                                       struct cairn_error *err) CAIRN_MUST_USE;
