/* SPDX-License-Identifier: Apache-2.0 */
/*
 * describe: what a caller says of a piece of a tensor, checked.
 *
 * Why:     saves and splits are told of tensors by the same struct, and refuse the same things.
 * Promise: 1   what was read lies within its tensor and fills whole bytes.
 * Limits:  as include/cairn/cairn.h.
 * Threads: stateless.
 * Next:    client/save/pieces.c, client/save/share.h.
 */
#pragma once

#include "client/save/save.h"

enum cairn_code cairn_client_piece_name(const char *name, struct cairn_error *err) CAIRN_MUST_USE;
/* dtype, shape and the tensor's bytes; then form, place and the piece's bytes. */
enum cairn_code cairn_client_piece_shape(const struct cairn_tensor_piece *from,
                                         struct cairn_client_piece *ret, uint64_t *ret_elements,
                                         struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_client_piece_form(const struct cairn_tensor_piece *from, uint64_t elements,
                                        struct cairn_client_piece *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All of these; neither kind nor source, and ret->name is not set. */
enum cairn_code cairn_client_piece_read(const struct cairn_tensor_piece *from,
                                        struct cairn_client_piece *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
