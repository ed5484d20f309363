/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip: where the entries of a zip archive lie, as torch.save writes it, and their unpacked bytes.
 *
 * Why:     a torch file is a zip whose entries are stored as they are, so that a tensor's bytes are
 *          a range of the file. One that was packed again by a zip program has its tensors
 *          compressed, and the largest may not fit into memory.
 * Promise: 1   tail and directory are read, nothing else; an entry's own header is read when its
 *              place is asked for, since the padding that aligns its bytes stands there alone.
 *          2   entries in any order, zip64 or not, with sizes in the directory only, with a CRC or
 *              none (0 is neither proof nor damage).
 *          3   entries that are encrypted or compressed by another method than deflate, several
 *              disks, two entries of one name, ranges that leave the file: refused by name.
 *          4   of a deflated entry (RFC 1951) what is given is what was packed, or CAIRN_CORRUPT
 *              with the place; no byte beyond the packed ones is read, no distance reaches before
 *              the first byte.
 *          5   unpacked, an entry's bytes are at its place in the order of the directory, deflated
 *              or not. Memory is that of four inflaters of 240 KiB, whatever the size of the
 *              entries; a read that goes on where one of them stands costs no more than what is
 *              read.
 * Limits:  a directory of 256 MiB; names of 1,024 bytes. A read before all inflaters of its entry
 *          starts at the entry's begin.
 * Threads: immutable after open; reads of what is unpacked take turns.
 * Next:    formats/torch/torch.h.
 */
#pragma once

#include "common/buf.h"
#include "formats/input.h"

struct cairn_zip_entry {
    struct cairn_view name; /* in the directory */
    uint64_t header_offset, size_bytes;
    uint64_t packed_bytes; /* in the file; of a deflated one others than size_bytes */
    uint32_t crc32;
    bool deflated;
};
struct cairn_zip {
    struct cairn_buf directory;
    struct cairn_zip_entry *entries; /* by name */
    size_t count;
};
/* Whether a file that begins with these bytes is one. */
bool cairn_zip_begins(struct cairn_view first);
enum cairn_code cairn_zip_open(const struct cairn_input *input, struct cairn_zip *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zip_release(struct cairn_zip *zip);
/* NULL: no entry has that name. */
const struct cairn_zip_entry *cairn_zip_find(const struct cairn_zip *zip, struct cairn_view name);
/* Where in the file its bytes begin, packed ones of a deflated entry; they lie inside the file. */
enum cairn_code cairn_zip_data_at(const struct cairn_input *input,
                                  const struct cairn_zip_entry *entry, uint64_t *ret_offset,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The whole entry; its CRC is compared where it has one. */
enum cairn_code cairn_zip_load(const struct cairn_input *input, const struct cairn_zip_entry *entry,
                               struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the entries one behind the other, as one file of their unpacked bytes ---- */

struct cairn_unpacked;
/* input and zip must outlive it. */
enum cairn_code cairn_unpacked_new(const struct cairn_input *input, const struct cairn_zip *zip,
                                   struct cairn_unpacked **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_unpacked_free(struct cairn_unpacked *unpacked);
const struct cairn_input *cairn_unpacked_input(const struct cairn_unpacked *unpacked);
/* Where in that input an entry of the zip begins. */
uint64_t cairn_unpacked_at(const struct cairn_unpacked *unpacked,
                           const struct cairn_zip_entry *entry);
