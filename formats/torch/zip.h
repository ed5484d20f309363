/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zip: finds the entries of a zip archive by torch.save, and unpacks deflated ones.
 *
 * Why:     a torch file is a zip of stored entries, so that a tensor's bytes are a range of the
 *          file. A repacked one has compressed tensors, which may exceed memory.
 * Promise: 1   only tail and directory are read; an entry's own header is read when its place is
 *              needed, since only it has the padding that aligns the bytes.
 *          2   entries in any order, zip64 or not, with sizes in the directory only, with a CRC or
 *              none (0 is neither proof nor damage).
 *          3   encrypted entries, methods other than stored and deflate, several disks, duplicate
 *              names and ranges outside of the file are refused by name.
 *          4   a deflated entry (RFC 1951) gives the original bytes, or CAIRN_CORRUPT with the
 *              place; no read passes the packed bytes, no distance the first byte.
 *          5   unpacked entries follow each other in the directory's order, deflated or not. Four
 *              inflaters of 240 KiB suffice for entries of any size; a read that continues at one
 *              of them costs only its own bytes.
 * Limits:  a directory of 256 MiB; names of 1,024 bytes. Reads before all inflaters restart it.
 * Threads: immutable after open; reads of unpacked bytes take turns.
 * Next:    formats/torch/torch.h.
 */
#pragma once

#include "common/buf.h"
#include "formats/input.h"

struct cairn_zip_entry {
    struct cairn_view name; /* in the directory */
    uint64_t header_offset, size_bytes;
    uint64_t packed_bytes; /* in the file; differs from size_bytes if deflated */
    uint32_t crc32;
    bool deflated;
};
struct cairn_zip {
    struct cairn_buf directory;
    struct cairn_zip_entry *entries; /* by name */
    size_t count;
};
/* True if a file with these first bytes may be a zip. */
bool cairn_zip_begins(struct cairn_view first);
enum cairn_code cairn_zip_open(const struct cairn_input *input, struct cairn_zip *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zip_release(struct cairn_zip *zip);
/* NULL: no entry has that name. */
const struct cairn_zip_entry *cairn_zip_find(const struct cairn_zip *zip, struct cairn_view name);
/* Offset in the file of the entry's bytes, packed if deflated; they lie inside the file. */
enum cairn_code cairn_zip_data_at(const struct cairn_input *input,
                                  const struct cairn_zip_entry *entry, uint64_t *ret_offset,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Loads the whole entry and compares its CRC, if any. */
enum cairn_code cairn_zip_load(const struct cairn_input *input, const struct cairn_zip_entry *entry,
                               struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;

/* ---- all entries as one file of their unpacked bytes ---- */

struct cairn_unpacked;
/* input and zip must outlive it. */
enum cairn_code cairn_unpacked_new(const struct cairn_input *input, const struct cairn_zip *zip,
                                   struct cairn_unpacked **ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
void cairn_unpacked_free(struct cairn_unpacked *unpacked);
const struct cairn_input *cairn_unpacked_input(const struct cairn_unpacked *unpacked);
/* Offset of an entry in that input. */
uint64_t cairn_unpacked_at(const struct cairn_unpacked *unpacked,
                           const struct cairn_zip_entry *entry);
