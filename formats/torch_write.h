/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_write: all of a torch.save file but the tensors' bytes.
 *
 * Why:     who loads with torch.load wants such a file, and its tensors go straight from where they
 *          lie to their place in it.
 * Promise: 1   once the tensors' bytes are at their places, torch.load(weights_only=True) gives a
 *              dict of them, by name in the order of the entries; an alias shares the storage of
 *              what it stands for.
 *          2   each storage begins at a multiple of 64 bytes; the same entries give the same bytes.
 *          3   of archives one behind the other each begins at such a multiple, with zeros before
 *              it; a plan leaves no byte between its texts that is no tensor's.
 *          4   element types that torch's files lack are CAIRN_UNSUPPORTED, by name; so are
 *              quantised ones, which torch writes with their scale alone.
 * Limits:  a pickle of 256 MiB. The CRC-32 of storages is 0, as torch writes it where it is told
 *          not to compute it.
 * Threads: stateless.
 * Next:    cli/convert/inside.h; formats/torch.h reads it; formats/dcp_write.h.
 */
#pragma once

#include "formats/safetensors.h"
#include "formats/torch.h"

/* Bytes of `head` that lie together in the file. */
struct cairn_torch_text {
    uint64_t offset_bytes; /* in the file */
    size_t begin, size;    /* in head */
};
struct cairn_torch_alias {
    struct cairn_view name;
    size_t of; /* number of an entry */
};
struct cairn_torch_plan {
    struct cairn_buf head;
    struct cairn_torch_text *texts; /* owned, by offset */
    size_t text_count, text_capacity;
    uint64_t file_bytes;
};
/* Fills offset_bytes and size_bytes of the entries, whose order stays. stem: of the file's name. */
enum cairn_code cairn_torch_write(struct cairn_safetensors_entry *entries, size_t count,
                                  const struct cairn_torch_alias *aliases, size_t alias_count,
                                  const char *stem, struct cairn_torch_plan *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The same of one tensor alone, behind what the plan has; its archive begins at *ret_offset. */
enum cairn_code cairn_torch_write_tensor(struct cairn_safetensors_entry *entry,
                                         struct cairn_torch_plan *plan, uint64_t *ret_offset,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The same of a value alone, by its pickle from the first byte to its STOP. */
enum cairn_code cairn_torch_write_value(struct cairn_view pickle, struct cairn_torch_plan *plan,
                                        uint64_t *ret_offset,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Room behind what the plan has, for bytes that the caller puts there. */
enum cairn_code cairn_torch_write_room(uint64_t size_bytes, struct cairn_torch_plan *plan,
                                       uint64_t *ret_offset,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* torch's name of an element type; NULL: it has none. */
const struct cairn_torch_name *cairn_torch_write_dtype(unsigned dtype);
void cairn_torch_plan_release(struct cairn_torch_plan *plan);
