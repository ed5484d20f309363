/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_write: writes a torch.save file except the tensors' bytes.
 *
 * Why:     torch.load needs such a file, and tensors can be copied straight into it.
 * Promise: 1   with the tensors' bytes in place, torch.load(weights_only=True) gives a dict of
 *              them, by name in the order of the entries; an alias shares its tensor's storage.
 *          2   each storage begins at a multiple of 64 bytes; the same entries give the same bytes.
 *          3   consecutive archives too, after zeros; texts and tensors cover every byte.
 *          4   element types that torch's files lack are CAIRN_UNSUPPORTED, by name; so are
 *              quantised ones, which torch writes only with their scale.
 * Limits:  a pickle of 256 MiB. The CRC-32 of storages is 0, torch's "not computed".
 * Threads: stateless.
 * Next:    cli/convert/inside.h; formats/torch/torch.h reads it; formats/torch/dcp.h.
 */
#pragma once

#include "common/buf.h"
#include "formats/safetensors.h"
#include "formats/torch/torch.h"

/* A contiguous piece of `head` in the file. */
struct cairn_torch_text {
    uint64_t offset_bytes; /* in the file */
    size_t begin, size;    /* in head */
};
struct cairn_torch_alias {
    struct cairn_view name;
    size_t of; /* index of an entry */
};
struct cairn_torch_plan {
    struct cairn_buf head;
    struct cairn_torch_text *texts; /* owned, by offset */
    size_t text_count, text_capacity;
    uint64_t file_bytes;
};
/* Fills offset_bytes and size_bytes of the entries and keeps their order. stem: the file name's. */
enum cairn_code cairn_torch_write(struct cairn_safetensors_entry *entries, size_t count,
                                  const struct cairn_torch_alias *aliases, size_t alias_count,
                                  const char *stem, struct cairn_torch_plan *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Appends an archive of one tensor to the plan, beginning at *ret_offset. */
enum cairn_code cairn_torch_write_tensor(struct cairn_safetensors_entry *entry,
                                         struct cairn_torch_plan *plan, uint64_t *ret_offset,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Appends an archive of one value, given by its pickle from the first byte to its STOP. storages:
 * those of the pickle by key, with size_bytes; fills their offset_bytes. */
enum cairn_code cairn_torch_write_value(struct cairn_view pickle,
                                        struct cairn_safetensors_entry *storages, size_t count,
                                        struct cairn_torch_plan *plan, uint64_t *ret_offset,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Appends room for bytes of the caller's. */
enum cairn_code cairn_torch_write_room(uint64_t size_bytes, struct cairn_torch_plan *plan,
                                       uint64_t *ret_offset,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* torch's name of an element type; NULL: none. */
const struct cairn_torch_name *cairn_torch_write_dtype(unsigned dtype);
void cairn_torch_plan_release(struct cairn_torch_plan *plan);

/* ---- writing pickles of protocol 2 ---- */

/* Python's unpickler and formats/torch/pickle.h read back the same value. Shared parts are
 * duplicated. 64 levels. */
enum cairn_code cairn_pickle_put_text(struct cairn_buf *ret, struct cairn_view text,
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_put_number(struct cairn_buf *ret, uint64_t number,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_pickle_put_numbers(struct cairn_buf *ret, const uint64_t *numbers,
                                         unsigned count, struct cairn_error *err) CAIRN_MUST_USE;
/* A storage as a persistent id: ("storage", type, "KEY", "cpu", elements). */
enum cairn_code cairn_pickle_put_storage(struct cairn_buf *ret, const struct cairn_torch_name *type,
                                         size_t key, uint64_t elements,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* The written form of a name of the caller's closed list. */
struct cairn_pickle_global {
    const char *module, *name;
    bool pairs; /* its object holds keys and values */
    bool bare;  /* created without a call; its state follows */
    bool refused;
};
struct cairn_pickle_writing {
    const struct cairn_pickle *from;
    struct cairn_pickle_global (*global_of)(uint32_t global);
    /* Appends a reference outside of the pickle (a storage); NULL: such are refused. */
    enum cairn_code (*put_outside)(void *context, struct cairn_buf *ret, cairn_pickle_ref ref,
                                   struct cairn_error *err);
    void *context;
};
/* CAIRN_UNSUPPORTED: a reference outside of the pickle, a refused or unlisted name, or items in an
 * object that is no map; CAIRN_TOO_LARGE: too deep, or recursive. */
enum cairn_code cairn_pickle_put_value(struct cairn_buf *ret,
                                       const struct cairn_pickle_writing *how,
                                       cairn_pickle_ref value,
                                       struct cairn_error *err) CAIRN_MUST_USE;
