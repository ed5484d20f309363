/* SPDX-License-Identifier: Apache-2.0 */
/* A lease and the thread that renews it; see held.h. */
#include "cli/held.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/rest.h"
#include "cli/options.h"
#include "cli/output.h"
#include "common/clock.h"
#include "common/process.h"
#include "common/trace.h"

#define TTL_S 300
#define AGAIN_MS 5000

struct cairn_cli_held {
    struct cairn_read_lease lease;
    struct cairn_rest *rest;
    struct cairn_thread thread;
    bool noted;
};

static void note_once(struct cairn_cli_held *held, const struct cairn_error *why) {
    if (!held->noted)
        cairn_cli_note("note: %s is not leased, so it may be deleted while it is read: %s",
                       held->lease.version.text, why->message);
    held->noted = true;
}

static void renew(struct cairn_thread *thread, void *owner) {
    struct cairn_cli_held *held = owner;
    uint64_t wait_ms = held->lease.id[0] ? cairn_read_lease_every_ms(&held->lease) : AGAIN_MS;
    while (cairn_thread_wait(thread, cairn_mono_ms() + wait_ms)) {
        struct cairn_error why = {0};
        enum cairn_code code = cairn_read_lease_keep(&held->lease, held->rest, &why);
        if (code) note_once(held, &why);
        wait_ms = code ? AGAIN_MS : cairn_read_lease_every_ms(&held->lease);
    }
}

/* Of this command alone, so that what is given back is nobody else's. */
static void name_it(struct cairn_cli_held *held) {
    char host[65] = "", uuid[CAIRN_UUID_TEXT_BYTES];
    if (gethostname(host, sizeof host - 1)) host[0] = '\0';
    cairn_uuid_random(uuid);
    snprintf(held->lease.job, sizeof held->lease.job, "cairn on %s, pid %d, %s", host,
             (int)getpid(), uuid);
}

static enum cairn_code begin(struct cairn_cli_held *held, const struct cairn_cli *cli,
                             struct cairn_error *err) {
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_cli_connect(cli, &held->rest, err));
    enum cairn_code code = cairn_read_lease_keep(&held->lease, held->rest, &why);
    if (code == CAIRN_DELETED || code == CAIRN_ABORTED) {
        if (err) *err = why;
        return code;
    }
    if (code) note_once(held, &why);
    held->thread = (struct cairn_thread){.name = "cairn-lease", .run = renew, .owner = held};
    return cairn_thread_start(&held->thread, err);
}

enum cairn_code cairn_cli_held_begin(const struct cairn_cli *cli,
                                     const struct cairn_version_place *place,
                                     struct cairn_cli_held **ret, struct cairn_error *err) {
    struct cairn_cli_held *held = calloc(1, sizeof *held);
    if (!held) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a lease");
    held->lease =
        (struct cairn_read_lease){.name = place->name, .version = place->id, .ttl_s = TTL_S};
    name_it(held);
    enum cairn_code code = begin(held, cli, err);
    if (code)
        cairn_cli_held_end(held);
    else
        *ret = held;
    return code;
}

void cairn_cli_held_end(struct cairn_cli_held *held) {
    if (!held) return;
    if (held->thread.started) cairn_thread_stop(&held->thread);
    /* Where that fails it ends by itself. */
    if (held->rest) (void)!cairn_read_lease_give(&held->lease, held->rest, NULL);
    if (held->rest) cairn_rest_free(held->rest);
    free(held);
}
