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
 * Next:    cli/convert/inside.h; formats/torch/torch.h reads it; formats/torch/dcp.h.
 */
#pragma once

#include "common/buf.h"
#include "formats/safetensors.h"
#include "formats/torch/torch.h"

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

/* ---- opcodes of a pickle of protocol 2 ---- */

/* Python's unpickler and formats/torch/pickle.h read back the same value. One that was read is
 * written as it was, but that parts which two of its places share are written at each; nothing that
 * lies outside of its pickle is. Values of 64 levels. */
enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* A tuple of them. */
enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) CAIRN_MUST_USE;

/* What a name of the caller's closed list is written as. */
struct cairn_pickle_global {
    const char *module, *name;
    bool pairs; /* what it makes holds keys and values */
    bool bare;  /* it is made without being called: its state comes after */
    bool refused;
};
typedef struct cairn_pickle_global cairn_pickle_global_of(uint32_t global);
/* CAIRN_UNSUPPORTED: it holds what lies outside of its pickle (a storage), a name that is refused
 * or that the caller's list lacks, or items that are put into an object which is no map;
 * CAIRN_TOO_LARGE: it is too deep, or holds itself. */
enum cairn_code cairn_pickle_put_value(struct cairn_buf *ret, const struct cairn_pickle *from,
                                       cairn_pickle_ref value, cairn_pickle_global_of *global_of,
                                       struct cairn_error *err) CAIRN_MUST_USE;
