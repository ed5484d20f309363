/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled by nvcc into the image that the plug-in holds. */
#include "client/stage_cuda/kernel.h"

extern "C" __global__ void cairn_kernel_gather(const cairn_kernel_gathering all) {
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    cairn_kernel_gather_some(&all, (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, threads);
}

extern "C" __global__ void cairn_kernel_scatter(const cairn_kernel_gathering all) {
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    cairn_kernel_scatter_some(&all, (uint64_t)blockIdx.x * blockDim.x + threadIdx.x, threads);
}

extern "C" __global__ void cairn_kernel_pack(const cairn_kernel_packing all) {
    for (uint64_t range = blockIdx.x; range < all.count; range += gridDim.x)
        cairn_kernel_pack_some(&all, range, threadIdx.x, blockDim.x);
}

/* A warp sums a chunk. Sixteen entries a table lie in sixteen banks of the shared memory, so that
 * the lanes of a warp never wait for each other. */
extern "C" __global__ void cairn_kernel_sum(const cairn_kernel_summing all) {
    __shared__ uint32_t row[8][16];
    for (uint32_t i = threadIdx.x; i < 8 * 16; i += blockDim.x)
        row[i / 16][i % 16] = all.row[i / 16][i % 16];
    __syncthreads();
    uint32_t lane = threadIdx.x % CAIRN_KERNEL_SUM_LANES;
    uint32_t warps = blockDim.x / CAIRN_KERNEL_SUM_LANES;
    uint64_t chunk = (uint64_t)blockIdx.x * warps + threadIdx.x / CAIRN_KERNEL_SUM_LANES;
    for (; chunk < all.count; chunk += (uint64_t)gridDim.x * warps) {
        const uint8_t *bytes = all.source + chunk * CAIRN_KERNEL_SUM_BYTES;
        uint32_t sum = cairn_kernel_sum_lane(&all, bytes, lane, row);
        for (int half = CAIRN_KERNEL_SUM_LANES / 2; half; half /= 2)
            sum ^= __shfl_xor_sync(0xffffffffu, sum, half);
        if (lane == 0)
            *(volatile uint64_t *)&all.sums[chunk] = (uint64_t)1 << 32 | (sum ^ all.zeros);
    }
}
