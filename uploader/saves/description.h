/* SPDX-License-Identifier: Apache-2.0 */
/*
 * description: all that another node needs to send a save in this node's stead, or to restore from
 * it, but its bytes.
 *
 * Why:     a partner compares what it keeps with the checksums of the staging, and may have to tell
 *          begin and seal and to send under the same tokens (Q57).
 * Promise: 1   it is `copy` of api/messages.def, with everything of the save: begin, seal, table,
 *              tokens and checksums.
 * Limits:  CAIRN_UP_DESCRIPTION_BYTES_MAX.
 * Threads: uploader_state is held.
 * Next:    uploader/partner/copy.c reads it; docs/partner.md.
 */
#pragma once

#include "uploader/saves/save.h"

#define CAIRN_UP_DESCRIPTION_BYTES_MAX (16 * CAIRN_MIB)

/* CAIRN_NOT_FOUND: not all of it is staged here, or it has files. */
enum cairn_code cairn_up_save_describe_locked(struct cairn_up *up, const struct cairn_up_save *save,
                                              struct cairn_buf *ret,
                                              struct cairn_error *err) CAIRN_MUST_USE;
