/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled by nvcc into the image that the plug-in holds. */
#include "client/stage_cuda/kernel.h"

extern "C" __global__ void cairn_kernel_convert(const cairn_kernel_conversion all) {
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    cairn_kernel_convert_some(&all, (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, threads);
}
