/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address: what other nodes are told of where this one listens.
 *
 * Why:     a node listens on all its networks, or behind a name, and the others must be told one
 *          address that they can reach.
 * Promise: 1   an address of all interfaces is never told; without another one it is refused.
 *          2   a network interface is told by its first address.
 * Limits:  CAIRN_UP_ADDRESS_BYTES.
 * Threads: stateless.
 * Next:    uploader/peers/port.h.
 */
#pragma once

#include "uploader/peers/members.h"

/* listen: HOST:PORT. advertise: "" (as listen), HOST, HOST:PORT or an interface. port: the one that
 * is listened on. */
enum cairn_code cairn_up_address_told(const char *listen, const char *advertise, uint16_t port,
                                      char ret[CAIRN_UP_ADDRESS_BYTES + 1],
                                      struct cairn_error *err) CAIRN_MUST_USE;
