/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpacked: the entries of a zip one behind the other, as one file of their unpacked bytes.
 *
 * Why:     whoever reads a torch file reads ranges of its entries; where these are deflated, they
 *          are no ranges of the file.
 * Promise: 1   an entry's bytes are at its place in the order of the directory, deflated or not.
 *          2   memory is that of four inflaters, whatever the size of the entries; a read that goes
 *              on where one of them stands costs no more than what is read.
 * Limits:  as formats/zip.h. A read before all inflaters of its entry starts at the entry's begin.
 * Threads: reads take turns.
 * Next:    formats/torch.c.
 */
#pragma once

#include "formats/zip.h"

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
