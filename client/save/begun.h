/* SPDX-License-Identifier: Apache-2.0 */
/*
 * begun: the message `begin` of a save, and its answer.
 *
 * Why:     a save may be begun while the uploader is away, and an uploader may come back without
 *          its journal: `begin` is then sent again, with the same content.
 * Promise: Q8  the same n is the same begin, however often it is sent.
 * Limits:  labels and meta as api/wire/messages.h.
 * Threads: the handle's caller; the session's thread for a save that was handed over to it.
 * Next:    client/save/begin.c.
 */
#pragma once

#include "client/save/save.h"

/* save->begin, from the options. */
enum cairn_code cairn_client_begin_body(struct cairn_save *save,
                                        const struct cairn_save_options *options,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Send `begin` to an uploader that does not know the save; on success save->id is new. alone:
 * over a link that only this thread uses. epoch 0: any link. */
enum cairn_code cairn_client_save_begin_again(struct cairn_save *save, uint32_t epoch, bool alone,
                                              uint64_t deadline_ms,
                                              struct cairn_error *err) CAIRN_MUST_USE;
