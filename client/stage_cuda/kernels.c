/* SPDX-License-Identifier: Apache-2.0 */
/* Few blocks keep the link busy, and leave a large device to the trainer. */
#include "client/stage_cuda/kernels.h"

#include "api/table/table.h"
#include "client/stage_cuda/image.h"
#include "common/crc.h"

#define THREADS 256 /* of a block */
#define BLOCKS_MAX 256
#define ELEMENTS_WIDE ((uint64_t)1 << 31)

_Static_assert(CAIRN_KERNEL_DIMENSIONS_MAX == CAIRN_STRIDED_DIMENSIONS_MAX, "dimensions");
_Static_assert(CAIRN_KERNEL_SUM_BYTES == CAIRN_DEVICE_SUM_BYTES, "chunks");
_Static_assert(THREADS % CAIRN_KERNEL_SUM_LANES == 0, "whole warps");

/* ---- loading ---- */

/* The lock is held. */
static enum cairn_code load(const struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                            struct cairn_error *err) {
    static const char *const names[] = {
#define KERNEL_NAME(name, about) "cairn_kernel_" #name,
        CAIRN_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
    };
    void *module = NULL, *kernels[CAIRN_KERNEL_COUNT] = {0};
    enum cairn_code code =
        CAIRN_CUDA_DRIVER(&cuda->driver, ModuleLoadData, (&module, cairn_cuda_image()), err);
    if (code == CAIRN_NO_MEMORY) return code;
    if (code)
        return cairn_within(err, CAIRN_UNSUPPORTED,
                            "device %d takes no kernel of this libcairn_cuda.so", place->device);
    for (size_t i = 0; i < CAIRN_KERNEL_COUNT && !code; i++)
        code = CAIRN_CUDA_DRIVER(&cuda->driver, ModuleGetFunction,
                                 (&kernels[i], module, names[i]), err);
    if (code) {
        (void)cuda->driver.ModuleUnload(module);
        return cairn_within(err, CAIRN_UNSUPPORTED, "the kernels of this libcairn_cuda.so");
    }
    memcpy(place->kernels, kernels, sizeof kernels);
    place->module = module;
    return CAIRN_OK;
}

/* What does not depend on the bytes. */
static struct cairn_kernel_summing summing(void) {
    static const uint8_t zeros[CAIRN_KERNEL_SUM_BYTES];
    struct cairn_kernel_summing ret = {.polynomial = cairn_crc32c_power_of_x(32)};
    uint32_t over_row = cairn_crc32c_power_of_x(32 * CAIRN_KERNEL_SUM_LANES);
    for (uint32_t lane = 0; lane < CAIRN_KERNEL_SUM_LANES; lane++)
        ret.factor[lane] = cairn_crc32c_power_of_x(32 * (CAIRN_KERNEL_SUM_LANES - lane));
    for (uint32_t place = 0; place < 8; place++)
        for (uint32_t half = 0; half < 16; half++)
            ret.row[place][half] =
                cairn_kernel_multiply(half << (4 * place), over_row, ret.polynomial);
    ret.zeros = cairn_crc32c(0, zeros, sizeof zeros);
    return ret;
}

enum cairn_code cairn_cuda_kernels_load(struct cairn_cuda *cuda, struct cairn_cuda_place *place,
                                        struct cairn_error *err) {
    if (!cairn_cuda_image())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "this libcairn_cuda.so was built without nvcc and converts nothing on a "
                          "device: give host memory, or elements of the stored type");
    CAIRN_HOLD(&cuda->lock);
    if (place->module) return CAIRN_OK;
    place->summing = summing();
    return load(cuda, place, err);
}

/* ---- elements ---- */

static bool type_of(unsigned dtype, uint32_t *ret, size_t *ret_width) {
    if (dtype != CAIRN_DTYPE_F32 && dtype != CAIRN_DTYPE_BF16 && dtype != CAIRN_DTYPE_F16)
        return false;
    *ret = dtype == CAIRN_DTYPE_F32    ? CAIRN_KERNEL_F32
           : dtype == CAIRN_DTYPE_BF16 ? CAIRN_KERNEL_BF16
                                       : CAIRN_KERNEL_F16;
    *ret_width = dtype == CAIRN_DTYPE_F32 ? 4 : 2;
    return true;
}

enum cairn_code cairn_cuda_kernels_convert(unsigned source_dtype, unsigned dtype,
                                           struct cairn_error *err) {
    uint32_t type;
    size_t width;
    if (type_of(source_dtype, &type, &width) && type_of(dtype, &type, &width)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED, "on a device F32, BF16 and F16 alone are converted");
}

/* Pairs of elements are elements of twice the width where all of them stand at whole ones. */
static void widen(struct cairn_kernel_gathering *all, size_t *width) {
    unsigned last = all->dimension_count - 1;
    while (*width < 16) {
        uint64_t ends = (uintptr_t)all->source | all->count[last] * *width;
        for (unsigned d = 0; d < last; d++) ends |= (uint64_t)all->stride_bytes[d];
        if (all->stride_bytes[last] != (int64_t)*width || ends % (2 * *width)) return;
        *width *= 2;
        all->count[last] /= 2;
        all->stride_bytes[last] *= 2;
    }
}

static uint32_t type_of_width(size_t width) {
    uint32_t type = CAIRN_KERNEL_1;
    for (; width > 1; width /= 2) type++;
    return type;
}

struct cairn_cuda_elements cairn_cuda_elements_of(const struct cairn_device_part *part) {
    struct cairn_cuda_elements ret = {.all = {.source = part->memory, .dimension_count = 1}};
    struct cairn_kernel_gathering *all = &ret.all;
    size_t source_width = 1;
    bool converted = part->source_dtype != part->dtype;
    if (converted) {
        bool known = type_of(part->source_dtype, &all->source_type, &source_width) &&
                     type_of(part->dtype, &all->type, &ret.width);
        CAIRN_PROMISE(known, return ret);
    }
    all->count[0] = UINT64_MAX;
    all->stride_bytes[0] = (int64_t)source_width;
    if (part->strided) {
        all->dimension_count = part->strided->dimension_count;
        for (unsigned d = 0; d < part->strided->dimension_count; d++) {
            all->count[d] = part->strided->count[d];
            all->stride_bytes[d] = part->strided->stride_bytes[d];
        }
    }
    if (converted) return ret;
    ret.width = part->strided ? part->strided->element_bytes : 1;
    if (part->strided && all->dimension_count) widen(all, &ret.width);
    all->source_type = all->type = type_of_width(ret.width);
    return ret;
}

uint64_t cairn_cuda_row_bytes(const struct cairn_cuda_elements *elements) {
    const struct cairn_kernel_gathering *all = &elements->all;
    unsigned last = all->dimension_count - 1;
    if (!all->dimension_count) return UINT64_MAX;
    if (all->stride_bytes[last] != (int64_t)elements->width) return elements->width;
    return all->dimension_count == 1 ? UINT64_MAX : all->count[last] * elements->width;
}

/* ---- starting ---- */

static enum cairn_code start(const struct cairn_cuda *cuda, const struct cairn_cuda_place *place,
                             enum cairn_kernel kernel, void *stream, uint64_t blocks,
                             const void *arguments, struct cairn_error *err) {
    void *values[] = {(void *)(uintptr_t)arguments};
    return CAIRN_CUDA_DRIVER(&cuda->driver, LaunchKernel,
                             (place->kernels[kernel], (unsigned)blocks, 1, 1, THREADS, 1, 1, 0,
                              stream, values, NULL),
                             err);
}

enum cairn_code cairn_cuda_gather(const struct cairn_cuda *cuda,
                                  const struct cairn_cuda_place *place, void *stream,
                                  const struct cairn_cuda_elements *elements, uint64_t from,
                                  uint64_t count, uint8_t *into, struct cairn_error *err) {
    struct cairn_kernel_gathering all = elements->all;
    uint64_t left = from;
    all.into = into;
    all.from = from;
    all.elements = count;
    all.wide = count >= ELEMENTS_WIDE;
    for (uint32_t d = 1; d < all.dimension_count; d++) all.wide |= all.count[d] >= ELEMENTS_WIDE;
    for (uint32_t d = all.dimension_count; d > 1 && !all.wide; d--) {
        all.first[d - 1] = (uint32_t)(left % all.count[d - 1]);
        left /= all.count[d - 1];
    }
    if (all.dimension_count && !all.wide) all.source += (int64_t)left * all.stride_bytes[0];
    uint64_t blocks = cairn_min_u64(cairn_div_up(count, THREADS), BLOCKS_MAX);
    return start(cuda, place, CAIRN_KERNEL_gather, stream, blocks, &all, err);
}

enum cairn_code cairn_cuda_pack(const struct cairn_cuda *cuda,
                                const struct cairn_cuda_place *place, void *stream,
                                const struct cairn_kernel_packing *packing,
                                struct cairn_error *err) {
    return start(cuda, place, CAIRN_KERNEL_pack, stream, packing->count, packing, err);
}

enum cairn_code cairn_cuda_sum(const struct cairn_cuda *cuda, const struct cairn_cuda_place *place,
                               void *stream, const void *chunks, uint64_t count, uint64_t *sums,
                               struct cairn_error *err) {
    struct cairn_kernel_summing all = place->summing;
    all.source = chunks;
    all.sums = sums;
    all.count = count;
    uint64_t blocks = cairn_div_up(count, THREADS / CAIRN_KERNEL_SUM_LANES);
    return start(cuda, place, CAIRN_KERNEL_sum, stream, cairn_min_u64(blocks, BLOCKS_MAX), &all,
                 err);
}
