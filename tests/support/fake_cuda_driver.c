/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions of the fake: its module is any image that begins as nvcc's do, and its
 * kernel is the host's compilation of what nvcc has compiled for a device. */
#include <stdlib.h>
#include <string.h>

#include "client/stage_cuda/kernel.h"
#include "tests/support/fake_cuda.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define IMAGE_MAGIC 0xba55ed50u
#define NOT_FOUND 500
#define INVALID_IMAGE 200

/* A launch that is queued; threads run one after the other, each with its own elements. */
struct launch {
    struct cairn_kernel_conversion all;
    uint64_t threads;
};

static void run(void *owner) {
    const struct launch *launch = owner;
    for (uint64_t thread = 0; thread < launch->threads; thread++)
        cairn_kernel_convert_some(&launch->all, thread, launch->threads);
}

EXPORT int cuModuleLoadData(void **ret, const void *image) {
    uint32_t magic;
    int status = fake_cuda_begins("ModuleLoadData");
    memcpy(&magic, image, sizeof magic);
    if (!status && magic != IMAGE_MAGIC) status = INVALID_IMAGE;
    if (!status) fake_cuda_count_module(1);
    if (!status) *ret = fake_cuda_module();
    return fake_cuda_ends(status);
}

EXPORT int cuModuleUnload(void *module) {
    int status = fake_cuda_begins("ModuleUnload");
    if (!status && module) fake_cuda_count_module(-1);
    return fake_cuda_ends(status);
}

EXPORT int cuModuleGetFunction(void **ret, void *module, const char *name) {
    int status = fake_cuda_begins("ModuleGetFunction");
    if (!status && strcmp(name, CAIRN_KERNEL_NAME) != 0) status = NOT_FOUND;
    if (!status) *ret = module;
    return fake_cuda_ends(status);
}

EXPORT int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream,
                          void **arguments, void **extra) {
    int status = fake_cuda_begins("LaunchKernel");
    struct launch launch = {.threads = (uint64_t)x * block_x};
    memcpy(&launch.all, arguments[0], sizeof launch.all);
    if (y != 1 || z != 1 || block_y != 1 || block_z != 1 || shared || extra || block_x > 1024)
        status = 1;
    launch.all.source = fake_cuda_real(launch.all.source);
    launch.all.into = fake_cuda_real(launch.all.into);
    if (!status) status = fake_cuda_launch(kernel, stream, run, &launch, sizeof launch);
    return fake_cuda_ends(status);
}

EXPORT int cuGetErrorName(int status, const char **ret) {
    *ret = status == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : status == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                           : "CUDA_ERROR_OTHER";
    return 0;
}
