/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's modules of the fake: one is any image that begins as nvcc's do, and its kernels are
 * the host's compilation of what nvcc has compiled for a device. */
#include <stdlib.h>
#include <string.h>

#include "client/stage_cuda/kernel.h"
#include "tests/support/fake_cuda.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define IMAGE_MAGIC 0xba55ed50u
#define NOT_FOUND 500
#define INVALID_IMAGE 200
#define INVALID_CONTEXT 201
#define MODULES_MAX 16

/* A launch that is queued; threads run one after the other, each with its own elements. */
struct launch {
    enum cairn_kernel kernel;
    uint64_t threads;
    union {
        struct cairn_kernel_gathering gathering;
        struct cairn_kernel_packing packing;
        struct cairn_kernel_summing summing;
    } all;
};
/* What a module's function is to who launches it. */
static struct function {
    void *module;
    enum cairn_kernel kernel;
} functions[MODULES_MAX][CAIRN_KERNEL_COUNT];

static void sum(const struct cairn_kernel_summing *all) {
    for (uint64_t chunk = 0; chunk < all->count; chunk++) {
        uint32_t ret = all->zeros;
        for (uint32_t lane = 0; lane < CAIRN_KERNEL_SUM_LANES; lane++)
            ret ^= cairn_kernel_sum_lane(all, all->source + chunk * CAIRN_KERNEL_SUM_BYTES, lane,
                                         all->row);
        __atomic_store_n(&all->sums[chunk], (uint64_t)1 << 32 | ret, __ATOMIC_RELEASE);
    }
}

static void run(void *owner) {
    const struct launch *launch = owner;
    if (launch->kernel == CAIRN_KERNEL_sum) sum(&launch->all.summing);
    for (uint64_t thread = 0; thread < launch->threads; thread++) {
        if (launch->kernel == CAIRN_KERNEL_gather)
            cairn_kernel_gather_some(&launch->all.gathering, thread, launch->threads);
        if (launch->kernel == CAIRN_KERNEL_scatter)
            cairn_kernel_scatter_some(&launch->all.gathering, thread, launch->threads);
        for (uint64_t i = 0; launch->kernel == CAIRN_KERNEL_pack && i < launch->all.packing.count;
             i++)
            cairn_kernel_pack_some(&launch->all.packing, i, thread, launch->threads);
    }
}

/* Of a device's memory the fake's own address. */
static void take(struct launch *launch, const void *arguments) {
    if (launch->kernel == CAIRN_KERNEL_gather || launch->kernel == CAIRN_KERNEL_scatter) {
        struct cairn_kernel_gathering *all = &launch->all.gathering;
        memcpy(all, arguments, sizeof *all);
        all->source = fake_cuda_real(all->source);
        all->into = fake_cuda_real(all->into);
    } else if (launch->kernel == CAIRN_KERNEL_pack) {
        struct cairn_kernel_packing *all = &launch->all.packing;
        memcpy(all, arguments, sizeof *all);
        all->into = fake_cuda_real(all->into);
        for (uint64_t i = 0; i < all->count; i++)
            all->ranges[i].from = fake_cuda_real(all->ranges[i].from);
        fake_cuda_count_kernel(CAIRN_KERNEL_pack, all->count);
        return;
    } else {
        struct cairn_kernel_summing *all = &launch->all.summing;
        memcpy(all, arguments, sizeof *all);
        all->source = fake_cuda_real(all->source);
        fake_cuda_count_kernel(CAIRN_KERNEL_sum, all->count);
        return;
    }
    fake_cuda_count_kernel(launch->kernel, 1);
}

EXPORT int cuModuleLoadData(void **ret, const void *image) {
    uint32_t magic;
    int status = fake_cuda_begins("ModuleLoadData");
    memcpy(&magic, image, sizeof magic);
    if (!status && magic != IMAGE_MAGIC) status = INVALID_IMAGE;
    if (!status && !fake_cuda_module()) status = INVALID_CONTEXT;
    if (!status) fake_cuda_count_module(1);
    if (!status) *ret = fake_cuda_module();
    return fake_cuda_ends(status);
}

EXPORT int cuModuleUnload(void *module) {
    int status = fake_cuda_begins("ModuleUnload");
    if (module) fake_cuda_count_module(-1);
    return fake_cuda_ends(status);
}

EXPORT int cuModuleGetFunction(void **ret, void *module, const char *name) {
    static const char *const names[] = {
#define KERNEL_NAME(kernel, about) "cairn_kernel_" #kernel,
        CAIRN_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
    };
    int status = fake_cuda_begins("ModuleGetFunction");
    size_t at = 0, kernel = 0;
    while (kernel < CAIRN_KERNEL_COUNT && strcmp(name, names[kernel]) != 0) kernel++;
    while (at < MODULES_MAX && functions[at][0].module && functions[at][0].module != module) at++;
    if (!status && (kernel == CAIRN_KERNEL_COUNT || at == MODULES_MAX)) status = NOT_FOUND;
    for (size_t k = 0; k < CAIRN_KERNEL_COUNT && !status; k++)
        functions[at][k] = (struct function){module, (enum cairn_kernel)k};
    if (!status) *ret = &functions[at][kernel];
    return fake_cuda_ends(status);
}

EXPORT int cuLaunchKernel(void *kernel, unsigned x, unsigned y, unsigned z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream,
                          void **arguments, void **extra) {
    int status = fake_cuda_begins("LaunchKernel");
    const struct function *function = kernel;
    struct launch launch = {.kernel = function->kernel, .threads = (uint64_t)x * block_x};
    if (!x || y != 1 || z != 1 || block_y != 1 || block_z != 1 || shared || extra || block_x > 1024)
        status = 1;
    if (launch.kernel == CAIRN_KERNEL_pack) launch.threads = block_x; /* a block has a range */
    if (!status) take(&launch, arguments[0]);
    if (!status) status = fake_cuda_launch(function->module, stream, run, &launch, sizeof launch);
    return fake_cuda_ends(status);
}

EXPORT int cuGetErrorName(int status, const char **ret) {
    *ret = status == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
           : status == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
           : status == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                           : "CUDA_ERROR_OTHER";
    return 0;
}
