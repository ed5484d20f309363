/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging: what a trainer hands over for a save that was begun: memory, files, checksums, seal.
 *
 * Why:     descriptions and checksums come from another process and are believed only as far as
 *          they fit the slab, the file and what was said before.
 * Promise: U05  what is refused leaves the save as it was.
 *          U10  files of one trainer leave descriptors to the others and to the uploader itself:
 *               beyond FILES_HELD of all trainers a file is closed and opened again when it is
 *               read, where this process may, and where it may not the limit decides.
 *          Q15  the checksums of all blocks are in the journal with the seal.
 * Limits:  see uploader/saves/save.h.
 * Threads: the socket's; uploader_state is taken.
 * Next:    uploader/saves/save.h, uploader/shards/shard.h; docs/socket.md.
 */
#pragma once

#include "uploader/saves/save.h"

enum cairn_code cairn_up_save_stage(struct cairn_up *up, uint64_t conn, const json_t *message,
                                    struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_file(struct cairn_up *up, uint64_t conn, const json_t *message,
                                   int take_fd, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_staged(struct cairn_up *up, uint64_t conn, const json_t *message,
                                     struct cairn_view crcs,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Both answer the request themselves when the journal has it (uploader/saves/save.h#1), unless they
 * fail at once. in_known: the last table that a seal of the session brought, or NULL. */
enum cairn_code cairn_up_save_seal(struct cairn_up *up, const json_t *message,
                                   struct cairn_view table, struct cairn_up_table **in_known,
                                   struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_up_save_fail(struct cairn_up *up, uint32_t number,
                                   const struct cairn_error *why, struct cairn_up_reply reply,
                                   struct cairn_error *err) CAIRN_MUST_USE;
