/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_assembly: the tensors of one torch file as an assembly.
 *
 * Why:     a file that is exported or imported is tensors by name, with their ranges.
 * Promise: 1   tensors that are the same elements of the same storage are one and its aliases.
 *          2   what is strided, conjugated or negated is read as what it stands for
 *              (assembly.h#8); metadata of a tensor that says anything else is CAIRN_UNSUPPORTED.
 *          3   what is no tensor is not looked at; formats/torch_plain.h is.
 * Limits:  as formats/torch_tree.h.
 * Threads: one owner.
 * Next:    formats/assembly.h.
 */
#pragma once

#include "formats/assembly.h"
#include "formats/torch_tree.h"

/* Its tensors are added; cairn_assembly_check comes after the last file.
 * prefix: of the names that are wanted, "" for all; it is not part of what they are called. */
enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;
