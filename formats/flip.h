/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flip: numbers whose sign is changed, of every element type that has one.
 *
 * Why:     torch saves a lazily conjugated or negated tensor as the bytes of the other one, and a
 *          flag.
 * Promise: 1   floats have their sign bit changed, also of zeros and of what is not a number, as
 *              torch does it; integers are subtracted from 0 and wrap.
 *          2   of complex numbers the parts that are asked for are changed.
 * Limits:  whole elements.
 * Threads: stateless.
 * Next:    formats/assembly.h.
 */
#pragma once

#include "common/base.h"

/* parts: CAIRN_ASSEMBLY_FLIP_*; 0 changes nothing. False: elements of this type have no sign, and
 * nothing was changed. */
bool cairn_flip(unsigned dtype, void *bytes, size_t size, unsigned parts);
