/* SPDX-License-Identifier: Apache-2.0 */
/*
 * webhook_file: who is told of events, as the file of the setting webhooks-file says.
 *
 * Why:     a receiver has a secret, a filter and a name; a flag would show the secret to everybody
 *          who lists processes.
 * Promise: 1   a member, an event or a secret that is none is named with its place; the server does
 *              not start with such a file.
 *          P16 a file with secrets that everybody can read is refused.
 *          2   what is told of a webhook is its host, never its path or query: they may be secret.
 * Limits:  CAIRN_SRV_WEBHOOKS_MAX webhooks; secrets of 16 to 128 bytes.
 * Threads: stateless; what was loaded is not changed.
 * Next:    server/events/webhooks_job.h; docs/webhooks.md.
 */
#pragma once

#include "common/json.h"
#include "server/ledger/events.h"

#define CAIRN_SRV_WEBHOOKS_MAX 32
#define CAIRN_SRV_WEBHOOK_NAME_MAX 64
#define CAIRN_SRV_WEBHOOK_SECRET_MAX 128

struct cairn_srv_webhook {
    char name[CAIRN_SRV_WEBHOOK_NAME_MAX + 1];
    char url[1024];
    char host[256];                         /* "https://hooks.example.org", for people */
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* a pattern as of fnmatch; "*": all */
    bool events[CAIRN_SRV_EVENT_COUNT];
    uint8_t secret[CAIRN_SRV_WEBHOOK_SECRET_MAX];
    size_t secret_size;
};
struct cairn_srv_webhook_file {
    struct cairn_srv_webhook hooks[CAIRN_SRV_WEBHOOKS_MAX];
    size_t count;
};
/* path "": none. The caller frees. */
enum cairn_code cairn_srv_webhook_file_load(const char *path, struct cairn_srv_webhook_file **ret,
                                            struct cairn_error *err) CAIRN_MUST_USE;
/* Does it want to hear of this? event: the name. project "": of all. */
bool cairn_srv_webhook_wants(const struct cairn_srv_webhook *hook, const char *event,
                             const char *project);
