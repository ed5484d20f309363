/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_script: an S3 store that talks to a server which follows a script.
 *
 * Why:     one wrong answer at a time, and a look at what was sent, is all that most rules of the
 *          1  store need for a test.
 * Promise: the n-th request gets the n-th line, the last line is repeated; heads[] keeps what came.
 * Limits:  64 requests are kept.
 * Threads: heads[] is read after the request it belongs to was answered.
 * Next:    tests/s3/test_s3.c.
 */
#pragma once

#include "store/s3/s3.h"
#include "tests/harness.h"
#include "tests/support/http_responder.h"

#define HEADS_MAX 64

struct cairn_s3_line {
    int status; /* 0: close without a word; -1: hang */
    const char *headers, *body;
};
struct cairn_rig {
    struct cairn_responder *server;
    struct cairn_store *store;
    struct cairn_store_worker *worker;
    const struct cairn_s3_line *script;
    size_t script_size;
    char heads[HEADS_MAX][2048]; /* of the requests that came */
    struct cairn_error error;
};
void cairn_rig_release(struct cairn_rig *rig);
enum cairn_code cairn_rig_open(struct cairn_rig *rig, const struct cairn_s3_line *script,
                               size_t size, struct cairn_store_s3_options options);

static CAIRN_UNUSED const struct cairn_store_s3_options plain;

static CAIRN_UNUSED uint32_t requests(const struct cairn_rig *rig) {
    return cairn_responder_requests(rig->server);
}
#define PUT_REQUEST                                                                                \
    {                                                                                              \
        .op = CAIRN_STORE_PUT, .key = "k", .body = CAIRN_VIEW("123456789"), .has_crc32c = true,    \
        .crc32c = 0xe3069283, .create = true, .token = "tok"                                       \
    }
#define STORED "ETag: \"e\"\r\n"
#define ERROR_BODY(code) "<Error><Code>" code "</Code><RequestId>req-1</RequestId></Error>"

#define err (rig.error)
#define RIG(options, ...)                                                                          \
    static const struct cairn_s3_line script[] = {__VA_ARGS__};                                    \
    CAIRN_AUTO(rig) rig = {0};                                                                     \
    REQUIRE_OK(cairn_rig_open(&rig, script, CAIRN_COUNT(script), options))
