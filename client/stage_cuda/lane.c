/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels have their own stream, so that one runs during a copy. A copy out of a scratch waits for
 * its `filled` event, and the next kernel that fills it for its `emptied` event; into a device it
 * is the other way round. Few blocks keep the link busy and leave most of the device to the
 * trainer.
 */

#include <limits.h>

#include "api/table/table.h"
#include "client/stage_cuda/inside.h"
#include "common/crc.h"

#define THREADS 256 /* per block */
#define BLOCKS_MAX 256
#define ELEMENTS_WIDE ((uint64_t)1 << 31)
#define PITCH_MAX INT_MAX /* of a 2D copy; wider pitches are copied row by row */
/* The unit of one copy request (client/save/copy.c). With 8 MiB an H200 converted at 0.88 of a bare
 * copy's speed: a copy that waits for an event starts about 20 us late. */
#define SCRATCH_BYTES_MAX (16 * CAIRN_MIB)
#define SCRATCH_BYTES_MIN (64 * CAIRN_KIB)
#define PACKED_BYTES_MAX (64 * CAIRN_KIB) /* takes as long as one copy call */
#define ROW_BYTES_MIN (16 * CAIRN_KIB)    /* from here on rows are copied directly */

/* ---- the image ---- */

/* nvcc's output is embedded in the plug-in: machine code for the devices the toolkit knew, and PTX
 * for newer ones. NULL: built without nvcc. */
#ifdef CAIRN_CUDA_IMAGE_FILE
__asm__(".section .rodata\n"
        ".balign 64\n"
        ".local cairn_cuda_image_begin\n"
        "cairn_cuda_image_begin:\n"
        ".incbin \"" CAIRN_CUDA_IMAGE_FILE "\"\n"
        ".balign 8\n"
        ".quad 0\n"
        ".previous\n");
extern const uint8_t cairn_cuda_image_begin[] __attribute__((visibility("hidden")));

static const void *kernel_image(void) {
    return cairn_cuda_image_begin;
}
#else
static const void *kernel_image(void) {
    return NULL;
}
#endif

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
        CAIRN_CUDA_DRIVER(&cuda->driver, ModuleLoadData, (&module, kernel_image()), err);
    if (code == CAIRN_NO_MEMORY) return code;
    if (code)
        return cairn_within(err, CAIRN_UNSUPPORTED,
                            "device %d takes no kernel of this libcairn_cuda.so", place->device);
    for (size_t i = 0; i < CAIRN_KERNEL_COUNT && !code; i++)
        code = CAIRN_CUDA_DRIVER(&cuda->driver, ModuleGetFunction, (&kernels[i], module, names[i]),
                                 err);
    if (code) {
        (void)cuda->driver.ModuleUnload(module);
        return cairn_within(err, CAIRN_UNSUPPORTED, "the kernels of this libcairn_cuda.so");
    }
    memcpy(place->kernels, kernels, sizeof kernels);
    place->module = module;
    return CAIRN_OK;
}

/* Tables that do not depend on the data. */
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
    if (!kernel_image())
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "this libcairn_cuda.so was built without nvcc and converts nothing on a "
                          "device: give host memory, or elements of the stored type");
    CAIRN_HOLD(&cuda->lock);
    if (place->module) return CAIRN_OK;
    place->summing = summing();
    return load(cuda, place, err);
}

/* ---- elements ---- */

/* A part's elements for a kernel, without `into`, `from` and `elements`. */
struct elements {
    struct cairn_kernel_gathering all;
    size_t width; /* of a stored element */
};

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

/* Merges pairs of elements into elements of twice the width while alignment allows, and while
 * `parts` (sizes, ored) consist of whole ones. */
static void widen(struct cairn_kernel_gathering *all, uint64_t parts, size_t *width) {
    unsigned last = all->dimension_count - 1;
    while (*width < 16) {
        uint64_t ends = (uintptr_t)all->source | all->count[last] * *width | parts;
        for (unsigned d = 0; d < last; d++) ends |= (uint64_t)all->stride_bytes[d];
        if (all->stride_bytes[last] != (int64_t)*width || ends % (2 * *width)) return;
        *width *= 2;
        all->count[last] /= 2;
        all->stride_bytes[last] *= 2;
    }
}

/* Uses the widest element that the part's rows allow. */
static struct elements elements_of(const struct cairn_device_part *part) {
    struct elements ret = {.all = {.source = part->memory, .dimension_count = 1}};
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
    /* A gathered part may begin and end inside an element. */
    uint64_t parts = part->into_device ? part->at | part->bytes : 0;
    if (part->strided && all->dimension_count) widen(all, parts, &ret.width);
    all->type = CAIRN_KERNEL_1;
    for (size_t width = ret.width; width > 1; width /= 2) all->type++;
    all->source_type = all->type;
    return ret;
}

/* Bytes of a contiguous row; UINT64_MAX: no rows. */
static uint64_t contiguous_row_bytes(const struct elements *elements) {
    const struct cairn_kernel_gathering *all = &elements->all;
    unsigned last = all->dimension_count - 1;
    if (!all->dimension_count) return UINT64_MAX;
    if (all->stride_bytes[last] != (int64_t)elements->width) return elements->width;
    return all->dimension_count == 1 ? UINT64_MAX : all->count[last] * elements->width;
}

/* ---- launching ---- */

static enum cairn_code start(const struct cairn_cuda_lane *lane, enum cairn_kernel kernel,
                             uint64_t blocks, const void *arguments, struct cairn_error *err) {
    void *values[] = {(void *)(uintptr_t)arguments};
    return CAIRN_CUDA_DRIVER(&lane->cuda->driver, LaunchKernel,
                             (lane->place->kernels[kernel], (unsigned)blocks, 1, 1, THREADS, 1, 1,
                              0, lane->streams.kernels, values, NULL),
                             err);
}

static enum cairn_code start_elements(const struct cairn_cuda_lane *lane, enum cairn_kernel kernel,
                                      const struct elements *elements, uint64_t from,
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
    return start(lane, kernel, blocks, &all, err);
}

/* ---- rows: a strided part is cut into planes; joinable planes wait to be copied together ---- */

struct copying {
    const struct cairn_cuda_runtime *cuda;
    const struct cairn_device_part *part;
    void *stream;
    struct cairn_strided_rows plane; /* the first waiting plane */
    size_t planes;                   /* number of waiting planes */
    int64_t plane_bytes;             /* distance between them */
    enum cairn_code code;
    struct cairn_error *err;
};

/* Copies rows of `bytes`, `step` apart on the device and contiguous in host memory. */
static enum cairn_code copy_rows(const struct copying *copying, int64_t place, uint64_t dense,
                                 size_t bytes, uint64_t rows, int64_t step) {
    const struct cairn_cuda_runtime *cuda = copying->cuda;
    const struct cairn_device_part *part = copying->part;
    char *memory = (char *)(uintptr_t)part->memory + place;
    char *host = (char *)part->host + dense;
    bool in = part->into_device;
    int kind = in ? CAIRN_CUDA_HOST_TO_DEVICE : CAIRN_CUDA_DEVICE_TO_HOST;
    if (rows > 1 && step >= (int64_t)bytes && step <= PITCH_MAX) {
        size_t apart = (size_t)step;
        return CAIRN_CUDA(cuda, Memcpy2DAsync,
                          (in ? memory : host, in ? apart : bytes, in ? host : memory,
                           in ? bytes : apart, bytes, (size_t)rows, kind, copying->stream),
                          copying->err);
    }
    for (uint64_t row = 0; row < rows; row++, memory += step, host += bytes)
        CAIRN_TRY(CAIRN_CUDA(cuda, MemcpyAsync,
                             (in ? memory : host, in ? host : memory, bytes, kind, copying->stream),
                             copying->err));
    return CAIRN_OK;
}

static size_t width_of(const struct copying *copying) {
    return copying->part->strided->element_bytes;
}

static enum cairn_code copy_plane(const struct copying *copying) {
    const struct cairn_strided_rows *plane = &copying->plane;
    size_t width = width_of(copying);
    if (plane->column_bytes == (int64_t)width)
        return copy_rows(copying, plane->place, plane->dense, plane->columns * width, plane->rows,
                         plane->row_bytes);
    for (uint64_t row = 0; row < plane->rows; row++)
        CAIRN_TRY(copy_rows(copying, plane->place + (int64_t)row * plane->row_bytes,
                            plane->dense + row * plane->columns * width, width, plane->columns,
                            plane->column_bytes));
    return CAIRN_OK;
}

static enum cairn_code copy_planes(const struct copying *copying) {
    const struct cairn_device_part *part = copying->part;
    const struct cairn_strided_rows *plane = &copying->plane;
    size_t bytes = plane->columns * width_of(copying), pitch = (size_t)plane->row_bytes;
    struct cairn_cuda_pitched memory = {(char *)(uintptr_t)part->memory + plane->place, pitch,
                                        pitch, (size_t)copying->plane_bytes / pitch};
    struct cairn_cuda_pitched host = {part->host + plane->dense, bytes, bytes, plane->rows};
    const struct cairn_cuda_planes planes = {.from = part->into_device ? host : memory,
                                             .to = part->into_device ? memory : host,
                                             .row_bytes = bytes,
                                             .rows = plane->rows,
                                             .planes = copying->planes,
                                             .kind = part->into_device ? CAIRN_CUDA_HOST_TO_DEVICE
                                                                       : CAIRN_CUDA_DEVICE_TO_HOST};
    return CAIRN_CUDA(copying->cuda, Memcpy3DAsync, (&planes, copying->stream), copying->err);
}

/* True: next has the shape of the waiting planes and follows at their distance, in whole rows. */
static bool joins(const struct copying *copying, const struct cairn_strided_rows *next,
                  int64_t *ret_step) {
    const struct cairn_strided_rows *plane = &copying->plane;
    int64_t width = (int64_t)width_of(copying), pitch = plane->row_bytes;
    if (!copying->planes || plane->rows < 2 || next->rows != plane->rows ||
        next->columns != plane->columns || next->row_bytes != pitch)
        return false;
    if (plane->column_bytes != width || next->column_bytes != width ||
        pitch < (int64_t)plane->columns * width || pitch > PITCH_MAX)
        return false;
    *ret_step = next->place - plane->place - (int64_t)(copying->planes - 1) * copying->plane_bytes;
    if (copying->planes > 1) return *ret_step == copying->plane_bytes;
    return *ret_step % pitch == 0 && *ret_step / pitch >= (int64_t)plane->rows;
}

static void copy_waiting(struct copying *copying) {
    if (!copying->code && copying->planes)
        copying->code = copying->planes > 1 ? copy_planes(copying) : copy_plane(copying);
    copying->planes = 0;
}

static bool copy_cut(void *owner, const struct cairn_strided_rows *rows) {
    struct copying *copying = owner;
    int64_t step = 0;
    if (joins(copying, rows, &step)) {
        copying->plane_bytes = step;
        copying->planes++;
        return true;
    }
    copy_waiting(copying);
    copying->plane = *rows;
    copying->planes = 1;
    copying->plane_bytes = 0;
    return copying->code == CAIRN_OK;
}

/* Queues an unconverted part on the copy engines only. */
static enum cairn_code copy_in_rows(const struct cairn_cuda_runtime *runtime, void *stream,
                                    const struct cairn_device_part *part, struct cairn_error *err) {
    struct copying copying = {.cuda = runtime, .part = part, .stream = stream, .err = err};
    if (!part->strided) return copy_rows(&copying, (int64_t)part->at, 0, part->bytes, 1, 0);
    (void)cairn_strided_cut(part->strided, part->at, part->bytes, copy_cut, &copying);
    copy_waiting(&copying);
    return copying.code;
}

/* ---- lanes ---- */

enum cairn_code cairn_cuda_lane_init(struct cairn_cuda_lane *lane, struct cairn_cuda *cuda,
                                     struct cairn_cuda_place *place,
                                     struct cairn_cuda_summed *summed, struct cairn_error *err) {
    *lane = (struct cairn_cuda_lane){.cuda = cuda, .place = place, .summed = summed};
    CAIRN_TRY(cairn_cuda_streams_take(cuda, place, &lane->streams, err));
    lane->has_kernels = !cairn_cuda_kernels_load(cuda, place, NULL);
    return CAIRN_OK;
}

enum cairn_code cairn_cuda_lane_wait(struct cairn_cuda_lane *lane, void *event,
                                     struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    CAIRN_TRY(CAIRN_CUDA(runtime, StreamWaitEvent, (lane->streams.kernels, event, 0), err));
    return CAIRN_CUDA(runtime, StreamWaitEvent, (lane->streams.copies, event, 0), err);
}

/* ---- sums ---- */

static bool is_there(const struct cairn_cuda_summed *summed, uint64_t asked) {
    return !asked || __atomic_load_n(&summed->sums.at[asked - 1], __ATOMIC_ACQUIRE);
}

bool cairn_cuda_is_late(struct cairn_cuda_summed *summed, uint64_t asked) {
    if (!summed->sums.at || is_there(summed, asked)) return false;
    atomic_store(&summed->late, true);
    return true;
}

/* Checksums the whole chunks among the bytes for `host`, which the device has at `bytes`. */
static enum cairn_code sum(struct cairn_cuda_lane *lane, const uint8_t *bytes, const uint8_t *host,
                           uint64_t size, struct cairn_error *err) {
    struct cairn_cuda_summed *summed = lane->summed;
    if (!lane->has_kernels || !summed || !summed->sums.at) return CAIRN_OK;
    uint64_t at = (uint64_t)(host - summed->host);
    uint64_t first = cairn_div_up(at, CAIRN_DEVICE_SUM_BYTES);
    uint64_t end = (at + size) / CAIRN_DEVICE_SUM_BYTES;
    if (end <= first) return CAIRN_OK;
    if (atomic_load(&summed->late)) {
        if (!is_there(summed, summed->asked)) return CAIRN_OK;
        atomic_store(&summed->late, false);
    }
    summed->asked = end;
    struct cairn_kernel_summing all = lane->place->summing;
    all.source = bytes + (first * CAIRN_DEVICE_SUM_BYTES - at);
    all.sums = summed->sums.at + first;
    all.count = end - first;
    uint64_t blocks = cairn_div_up(all.count, THREADS / CAIRN_KERNEL_SUM_LANES);
    return start(lane, CAIRN_KERNEL_sum, cairn_min_u64(blocks, BLOCKS_MAX), &all, err);
}

/* ---- copies through a scratch ---- */

static enum cairn_code make_scratch(struct cairn_cuda_lane *lane,
                                    struct cairn_cuda_scratch *scratch, struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    if (!scratch->filled)
        CAIRN_TRY(cairn_cuda_event_take(lane->cuda, lane->place, &scratch->filled, err));
    if (!scratch->emptied)
        CAIRN_TRY(cairn_cuda_event_take(lane->cuda, lane->place, &scratch->emptied, err));
    for (size_t bytes = SCRATCH_BYTES_MAX;; bytes /= 2) {
        void *memory = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = CAIRN_CUDA(runtime, Malloc, (&memory, bytes), &why);
        if (code == CAIRN_NO_MEMORY && bytes > SCRATCH_BYTES_MIN) continue;
        if (code && err) *err = why;
        if (code)
            return cairn_within(err, code, "device %d, %zu bytes to convert", lane->place->device,
                                bytes);
        scratch->memory = memory;
        scratch->bytes = bytes;
        return CAIRN_OK;
    }
}

/* The next scratch, ready to be filled by this stream. */
static enum cairn_code begin_scratch(struct cairn_cuda_lane *lane, void *filler,
                                     struct cairn_cuda_scratch **ret, struct cairn_error *err) {
    struct cairn_cuda_scratch *scratches = lane->streams.scratches;
    struct cairn_cuda_scratch *scratch = &scratches[lane->single ? 0 : lane->turn];
    if (!scratch->memory) {
        enum cairn_code code = make_scratch(lane, scratch, err);
        lane->single = code == CAIRN_NO_MEMORY && scratches[0].memory;
        if (lane->single) return begin_scratch(lane, filler, ret, err);
        CAIRN_TRY(code);
    }
    *ret = scratch;
    if (!scratch->used) return CAIRN_OK;
    return CAIRN_CUDA(&lane->cuda->runtime, StreamWaitEvent, (filler, scratch->emptied, 0), err);
}

/* Queues the copy of its bytes [skip, skip + size) to host. */
static enum cairn_code end_scratch(struct cairn_cuda_lane *lane, struct cairn_cuda_scratch *scratch,
                                   size_t skip, uint8_t *host, uint64_t size,
                                   struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    const struct cairn_cuda_streams *streams = &lane->streams;
    CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->filled, streams->kernels), err));
    CAIRN_TRY(CAIRN_CUDA(runtime, StreamWaitEvent, (streams->copies, scratch->filled, 0), err));
    CAIRN_TRY(CAIRN_CUDA(
        runtime, MemcpyAsync,
        (host, scratch->memory + skip, (size_t)size, CAIRN_CUDA_DEVICE_TO_HOST, streams->copies),
        err));
    CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->emptied, streams->copies), err));
    scratch->used = true;
    lane->turn = (lane->turn + 1) % CAIRN_CUDA_SCRATCHES;
    return sum(lane, scratch->memory + skip, host, size, err);
}

/* A part may begin and end inside an element, because blocks do. Without memory for a scratch an
 * unconverted part is copied in rows. */
static enum cairn_code gather(struct cairn_cuda_lane *lane, const struct cairn_device_part *part,
                              const struct elements *elements, struct cairn_error *err) {
    size_t width = elements->width;
    struct cairn_cuda_scratch *ignored = NULL;
    if (part->source_dtype == part->dtype &&
        begin_scratch(lane, lane->streams.kernels, &ignored, NULL) == CAIRN_NO_MEMORY)
        return copy_in_rows(&lane->cuda->runtime, lane->streams.copies, part, err);
    for (uint64_t done = 0, copied; done < part->bytes; done += copied) {
        struct cairn_cuda_scratch *scratch = NULL;
        size_t skip = (size_t)((part->at + done) % width);
        uint64_t from = (part->at + done) / width;
        CAIRN_TRY(begin_scratch(lane, lane->streams.kernels, &scratch, err));
        uint64_t count =
            cairn_min_u64(scratch->bytes / width, cairn_div_up(skip + part->bytes - done, width));
        copied = cairn_min_u64(part->bytes - done, count * width - skip);
        CAIRN_TRY(
            start_elements(lane, CAIRN_KERNEL_gather, elements, from, count, scratch->memory, err));
        CAIRN_TRY(end_scratch(lane, scratch, skip, part->host + done, copied, err));
    }
    return CAIRN_OK;
}

/* The other way: a copy fills the scratch, and a kernel empties it. A mark behind the copy is
 * enough for the host, whose memory is then free; the kernel is awaited when the job ends. */
static enum cairn_code scatter(struct cairn_cuda_lane *lane, const struct cairn_device_part *part,
                               const struct elements *elements, struct cairn_error *err) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    const struct cairn_cuda_streams *streams = &lane->streams;
    size_t width = elements->width;
    struct cairn_cuda_scratch *ignored = NULL;
    CAIRN_PROMISE(part->at % width == 0 && part->bytes % width == 0,
                  return cairn_fail(err, CAIRN_BROKEN, "a part of an element for a device"));
    if (part->source_dtype == part->dtype &&
        begin_scratch(lane, streams->copies, &ignored, NULL) == CAIRN_NO_MEMORY)
        return copy_in_rows(runtime, streams->copies, part, err);
    for (uint64_t done = 0, count; done < part->bytes; done += count * width) {
        struct cairn_cuda_scratch *scratch = NULL;
        CAIRN_TRY(begin_scratch(lane, streams->copies, &scratch, err));
        count = cairn_min_u64(scratch->bytes / width, (part->bytes - done) / width);
        CAIRN_TRY(CAIRN_CUDA(runtime, MemcpyAsync,
                             (scratch->memory, part->host + done, (size_t)(count * width),
                              CAIRN_CUDA_HOST_TO_DEVICE, streams->copies),
                             err));
        CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->filled, streams->copies), err));
        CAIRN_TRY(
            CAIRN_CUDA(runtime, StreamWaitEvent, (streams->kernels, scratch->filled, 0), err));
        CAIRN_TRY(start_elements(lane, CAIRN_KERNEL_scatter, elements, (part->at + done) / width,
                                 count, scratch->memory, err));
        CAIRN_TRY(CAIRN_CUDA(runtime, EventRecord, (scratch->emptied, streams->kernels), err));
        scratch->used = true;
        lane->turn = (lane->turn + 1) % CAIRN_CUDA_SCRATCHES;
    }
    return CAIRN_OK;
}

/* ---- small ranges ---- */

bool cairn_cuda_lane_joins(const struct cairn_cuda_lane *lane,
                           const struct cairn_device_part *part) {
    if (!lane->has_kernels || part->into_device || part->strided ||
        part->source_dtype != part->dtype || part->bytes > PACKED_BYTES_MAX)
        return false;
    if (!lane->packing.count) return true;
    return part->host == lane->packed_host + lane->packed_bytes &&
           lane->packing.count < CAIRN_KERNEL_PACKED_MAX &&
           lane->packed_bytes + part->bytes <= SCRATCH_BYTES_MAX;
}

void cairn_cuda_lane_join(struct cairn_cuda_lane *lane, const struct cairn_device_part *part) {
    if (!lane->packing.count) {
        lane->packed_host = part->host;
        lane->packed_bytes = 0;
    }
    lane->packing.ranges[lane->packing.count++] =
        (struct cairn_kernel_packed){.from = (const uint8_t *)part->memory + part->at,
                                     .at = (uint32_t)lane->packed_bytes,
                                     .bytes = (uint32_t)part->bytes};
    lane->packed_bytes += part->bytes;
    lane->queued = true;
}

/* Copies each range alone: there is only one, or too little memory to pack them. */
static enum cairn_code copy_ranges(const struct cairn_cuda_lane *lane, struct cairn_error *err) {
    for (uint64_t i = 0; i < lane->packing.count; i++) {
        const struct cairn_kernel_packed *range = &lane->packing.ranges[i];
        CAIRN_TRY(CAIRN_CUDA(&lane->cuda->runtime, MemcpyAsync,
                             (lane->packed_host + range->at, range->from, range->bytes,
                              CAIRN_CUDA_DEVICE_TO_HOST, lane->streams.copies),
                             err));
    }
    return CAIRN_OK;
}

static enum cairn_code pack(struct cairn_cuda_lane *lane, struct cairn_error *err) {
    struct cairn_cuda_scratch *scratch = NULL;
    enum cairn_code code = CAIRN_NO_MEMORY;
    if (lane->packing.count > 1) code = begin_scratch(lane, lane->streams.kernels, &scratch, err);
    if (code == CAIRN_NO_MEMORY || (!code && scratch->bytes < lane->packed_bytes))
        return copy_ranges(lane, err);
    CAIRN_TRY(code);
    lane->packing.into = scratch->memory;
    CAIRN_TRY(start(lane, CAIRN_KERNEL_pack, lane->packing.count, &lane->packing, err));
    return end_scratch(lane, scratch, 0, lane->packed_host, lane->packed_bytes, err);
}

enum cairn_code cairn_cuda_lane_flush(struct cairn_cuda_lane *lane, struct cairn_error *err) {
    if (!lane->packing.count) return CAIRN_OK;
    enum cairn_code code = pack(lane, err);
    lane->packing.count = 0;
    return code;
}

/* ---- a part ---- */

enum cairn_code cairn_cuda_lane_put(struct cairn_cuda_lane *lane,
                                    const struct cairn_device_part *part, struct cairn_error *err) {
    bool converted = part->source_dtype != part->dtype;
    lane->queued = true;
    CAIRN_TRY(cairn_cuda_lane_flush(lane, err));
    if (converted) CAIRN_TRY(cairn_cuda_kernels_load(lane->cuda, lane->place, err));
    if (converted || (part->strided && lane->has_kernels)) {
        const struct elements elements = elements_of(part);
        if (converted || contiguous_row_bytes(&elements) < ROW_BYTES_MIN)
            return part->into_device ? scatter(lane, part, &elements, err)
                                     : gather(lane, part, &elements, err);
    }
    const uint8_t *from = (const uint8_t *)part->memory + part->at;
    if (!part->strided && !part->into_device)
        CAIRN_TRY(sum(lane, from, part->host, part->bytes, err));
    return copy_in_rows(&lane->cuda->runtime, lane->streams.copies, part, err);
}

void cairn_cuda_lane_release(struct cairn_cuda_lane *lane, bool failed) {
    const struct cairn_cuda_runtime *runtime = &lane->cuda->runtime;
    int status = runtime->StreamSynchronize(lane->streams.kernels);
    status |= runtime->StreamSynchronize(lane->streams.copies);
    if (status) (void)runtime->GetLastError();
    for (size_t i = 0; i < CAIRN_CUDA_SCRATCHES; i++) lane->streams.scratches[i].used = false;
    cairn_cuda_streams_give(lane->cuda, lane->place, &lane->streams, failed || status);
}
