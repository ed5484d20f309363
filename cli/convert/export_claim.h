/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_claim: that one cairn export alone writes to a place in a bucket.
 *
 * Why:     two that run the same command share uploads and log: what fails or is interrupted in
 *          one takes back what the other has written, and calls whole.
 * Promise: 1   of two on one machine the second is refused at once (CAIRN_CONFLICT), and one that
 *              comes after the end of the first, however it ended, is not.
 *          2   a log that was written elsewhere is another export's as long as it changes: its
 *              writer renews it every CAIRN_CLI_CLAIM_BEAT_MS. Who comes is refused when it
 *              does, and takes over after CAIRN_CLI_CLAIM_SILENT_MS without a change.
 *          3   whose claim was taken over hears so at its next renewal, and removes nothing.
 * Limits:  what a machine is: its boot and its folder for temporary files, of one user. A bucket
 *          has no locks: two that take over in the same moment are parted at a renewal.
 * Threads: _is_due any; the others one owner.
 * Next:    cli/convert/export_bucket.c.
 */
#pragma once

#include <stdatomic.h>

#include "common/id.h"

#define CAIRN_CLI_CLAIM_BEAT_MS 5000
#define CAIRN_CLI_CLAIM_SILENT_MS 30000

struct cairn_cli_export_claim {
    int folder_fd, fd; /* of the lock's file; -1: there is none */
    char name[80];
    char here[128];                     /* names the machine; "": it cannot be told */
    char writer[CAIRN_UUID_TEXT_BYTES]; /* this export */
    atomic_uint_fast64_t next_ms;       /* mono clock: the log is to be renewed */
};
/* token: of the place's log, a UUID. False: another export holds it on this machine. Where no lock
 * can be made, nothing is known of others there. */
bool cairn_cli_export_claim_take(struct cairn_cli_export_claim *claim, const char *token);
void cairn_cli_export_claim_init(struct cairn_cli_export_claim *claim);
void cairn_cli_export_claim_release(struct cairn_cli_export_claim *claim);
/* A log with this `where` was written on this machine: as the claim is held, its writer is gone. */
bool cairn_cli_export_claim_is_here(const struct cairn_cli_export_claim *claim, const char *where);
/* True for one caller each time that the log is to be renewed. */
bool cairn_cli_export_claim_is_due(struct cairn_cli_export_claim *claim);
