/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image: the kernels as nvcc compiled them.
 *
 * Why:     the plug-in is also built where there is no toolkit; it then converts nothing.
 * Promise: 1   machine code for the devices that the toolkit knows, and PTX for newer ones.
 * Limits:  one image.
 * Threads: immutable.
 * Next:    kernel.cu, kernels.c.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>

/* NULL: the plug-in was built without nvcc. */
const void *cairn_cuda_image(void);
