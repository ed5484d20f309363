/* SPDX-License-Identifier: Apache-2.0 */
/* A stream has one scratch: its kernel writes a chunk there, its copy takes it, and the next kernel
 * comes after that in the stream's own order. A second scratch would hide a kernel behind a copy;
 * it takes a twentieth of the copy's time. */
#include "client/stage_cuda/convert.h"

#include "api/table.h"
#include "client/stage_cuda/image.h"
#include "client/stage_cuda/kernel.h"

#define SCRATCH_BYTES_MAX (8 * CAIRN_MIB)
#define SCRATCH_BYTES_MIN (64 * CAIRN_KIB)
#define THREADS 256    /* of a block */
#define BLOCKS_MAX 256 /* they keep the link busy, and leave a large device to the trainer */

_Static_assert(CAIRN_KERNEL_DIMENSIONS_MAX == CAIRN_STRIDED_DIMENSIONS_MAX, "dimensions");

void cairn_cuda_converter_init(struct cairn_cuda_converter *converter,
                               const struct cairn_cuda_runtime *cuda) {
    *converter = (struct cairn_cuda_converter){.cuda = cuda};
    cairn_lock_init(&converter->lock, CAIRN_LOCK_client_device);
}

void cairn_cuda_converter_release(struct cairn_cuda_converter *converter) {
    const struct cairn_cuda_runtime *cuda = converter->cuda;
    int status = 0;
    for (size_t i = 0; i < converter->locked.free_count; i++) {
        status |= cuda->SetDevice(converter->locked.free[i].device);
        status |= cuda->Free(converter->locked.free[i].memory);
    }
    for (int i = 0; i < CAIRN_CUDA_DEVICES_MAX; i++) {
        if (!converter->locked.modules[i]) continue;
        status |= cuda->SetDevice(i);
        (void)converter->locked.driver.ModuleUnload(converter->locked.modules[i]);
    }
    if (status) (void)cuda->GetLastError();
    cairn_lock_release(&converter->lock);
}

/* ---- the kernel ---- */

static bool type_of(unsigned dtype, uint32_t *ret, size_t *ret_width) {
    if (dtype != CAIRN_DTYPE_F32 && dtype != CAIRN_DTYPE_BF16 && dtype != CAIRN_DTYPE_F16)
        return false;
    *ret = dtype == CAIRN_DTYPE_F32    ? CAIRN_KERNEL_F32
           : dtype == CAIRN_DTYPE_BF16 ? CAIRN_KERNEL_BF16
                                       : CAIRN_KERNEL_F16;
    *ret_width = dtype == CAIRN_DTYPE_F32 ? 4 : 2;
    return true;
}

/* The lock is held. */
static enum cairn_code load(struct cairn_cuda_converter *converter, int device,
                            struct cairn_error *err) {
    const struct cairn_cuda_driver *driver = &converter->locked.driver;
    void *module = NULL, *kernel = NULL;
    if (!cairn_cuda_image())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "this libcairn_cuda.so was built without nvcc and converts nothing on a "
                          "device: give host memory, or elements of the stored type");
    if (!converter->locked.found) CAIRN_TRY(cairn_cuda_driver_find(&converter->locked.driver, err));
    converter->locked.found = true;
    /* Older runtimes make a context current with the first call that needs it. */
    CAIRN_TRY(CAIRN_CUDA(converter->cuda, Free, (NULL), err));
    enum cairn_code code =
        CAIRN_CUDA_DRIVER(driver, ModuleLoadData, (&module, cairn_cuda_image()), err);
    if (code == CAIRN_NO_MEMORY) return code;
    if (code)
        return cairn_within(err, CAIRN_UNSUPPORTED,
                            "device %d takes no kernel of this libcairn_cuda.so", device);
    code = CAIRN_CUDA_DRIVER(driver, ModuleGetFunction, (&kernel, module, CAIRN_KERNEL_NAME), err);
    if (code) {
        (void)driver->ModuleUnload(module);
        return cairn_within(err, CAIRN_UNSUPPORTED, "the kernels of this libcairn_cuda.so");
    }
    converter->locked.modules[device] = module;
    converter->locked.kernels[device] = kernel;
    return CAIRN_OK;
}

static enum cairn_code kernel_of(struct cairn_cuda_converter *converter, int device, void **ret,
                                 struct cairn_error *err) {
    if (device < 0 || device >= CAIRN_CUDA_DEVICES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "device %d: more than %d devices", device,
                          CAIRN_CUDA_DEVICES_MAX);
    CAIRN_HOLD(&converter->lock);
    if (!converter->locked.kernels[device]) CAIRN_TRY(load(converter, device, err));
    *ret = converter->locked.kernels[device];
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_convertible(struct cairn_cuda_converter *converter, int device,
                                       unsigned source_dtype, unsigned dtype,
                                       struct cairn_error *err) {
    uint32_t type;
    size_t width;
    void *kernel;
    if (!type_of(source_dtype, &type, &width) || !type_of(dtype, &type, &width))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "on a device F32, BF16 and F16 alone are converted");
    return kernel_of(converter, device, &kernel, err);
}

/* ---- memory of the device ---- */

static enum cairn_code take_scratch(struct cairn_cuda_converter *converter, int device,
                                    struct cairn_cuda_scratch *ret, struct cairn_error *err) {
    CAIRN_HOLD(&converter->lock);
    for (size_t i = 0; i < converter->locked.free_count; i++) {
        if (converter->locked.free[i].device != device) continue;
        *ret = converter->locked.free[i];
        converter->locked.free[i] = converter->locked.free[--converter->locked.free_count];
        return CAIRN_OK;
    }
    for (size_t bytes = SCRATCH_BYTES_MAX;; bytes /= 2) {
        void *memory = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = CAIRN_CUDA(converter->cuda, Malloc, (&memory, bytes), &why);
        if (code == CAIRN_NO_MEMORY && bytes > SCRATCH_BYTES_MIN) continue;
        if (code && err) *err = why;
        if (code) return cairn_within(err, code, "device %d, %zu bytes to convert", device, bytes);
        *ret = (struct cairn_cuda_scratch){device, memory, bytes};
        return CAIRN_OK;
    }
}

void cairn_cuda_scratch_give(struct cairn_cuda_converter *converter,
                             struct cairn_cuda_scratch *scratch) {
    struct cairn_cuda_scratch given = *scratch;
    *scratch = (struct cairn_cuda_scratch){0};
    if (!given.memory) return;
    cairn_lock_take(&converter->lock);
    bool kept = converter->locked.free_count < CAIRN_CUDA_SCRATCHES_MAX;
    if (kept) converter->locked.free[converter->locked.free_count++] = given;
    cairn_lock_give(&converter->lock);
    if (!kept && converter->cuda->Free(given.memory)) (void)converter->cuda->GetLastError();
}

/* ---- a part ---- */

static struct cairn_kernel_conversion conversion_of(const struct cairn_device_part *part,
                                                    uint8_t *into, size_t *ret_width) {
    struct cairn_kernel_conversion made = {.source = part->memory, .into = into};
    size_t source_width = 0;
    bool known = type_of(part->source_dtype, &made.source_type, &source_width) &&
                 type_of(part->dtype, &made.type, ret_width);
    CAIRN_PROMISE(known, return made);
    made.dimension_count = 1;
    made.count[0] = UINT64_MAX;
    made.stride_bytes[0] = (int64_t)source_width;
    if (!part->strided) return made;
    made.dimension_count = part->strided->dimension_count;
    for (unsigned d = 0; d < part->strided->dimension_count; d++) {
        made.count[d] = part->strided->count[d];
        made.stride_bytes[d] = part->strided->stride_bytes[d];
    }
    return made;
}

enum cairn_code cairn_cuda_convert(struct cairn_cuda_converter *converter, int device,
                                   struct cairn_cuda_scratch *scratch, void *stream,
                                   const struct cairn_device_part *part, struct cairn_error *err) {
    const struct cairn_cuda_driver *driver = &converter->locked.driver; /* found: no more written */
    void *kernel = NULL;
    size_t width = 1;
    CAIRN_TRY(kernel_of(converter, device, &kernel, err));
    if (!scratch->memory) CAIRN_TRY(take_scratch(converter, device, scratch, err));
    struct cairn_kernel_conversion all = conversion_of(part, scratch->memory, &width);
    void *arguments[] = {&all};
    /* A part may begin and end within an element, since blocks do. */
    for (uint64_t done = 0, copied; done < part->bytes; done += copied) {
        size_t skip = (size_t)((part->at + done) % width);
        all.from = (part->at + done) / width;
        all.elements =
            cairn_min_u64(scratch->bytes / width, cairn_div_up(skip + part->bytes - done, width));
        copied = cairn_min_u64(part->bytes - done, all.elements * width - skip);
        unsigned blocks = (unsigned)cairn_min_u64(cairn_div_up(all.elements, THREADS), BLOCKS_MAX);
        CAIRN_TRY(CAIRN_CUDA_DRIVER(
            driver, LaunchKernel, (kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL),
            err));
        CAIRN_TRY(CAIRN_CUDA(converter->cuda, MemcpyAsync,
                             (part->host + done, scratch->memory + skip, (size_t)copied,
                              CAIRN_CUDA_DEVICE_TO_HOST, stream),
                             err));
    }
    return CAIRN_OK;
}
