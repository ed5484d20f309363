/* SPDX-License-Identifier: Apache-2.0 */
/* A strided part is cut into planes; those that join wait until one comes that does not. */
#include "client/stage_cuda/rows.h"

#include <limits.h>

#define PITCH_MAX INT_MAX /* of a copy in rows; more is copied row by row */

struct copying {
    const struct cairn_cuda_runtime *cuda;
    const struct cairn_device_part *part;
    void *stream;
    struct cairn_strided_rows plane; /* the first of those that wait to be copied at once */
    size_t planes;                   /* how many do */
    int64_t plane_bytes;             /* from one to the next */
    enum cairn_code code;
    struct cairn_error *err;
};

/* Rows of `bytes` each, `step` apart at the device and one behind the other in host memory. */
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

/* Is it as the planes that wait, as far behind the last of them as that behind the one before it,
 * and by whole rows? */
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

enum cairn_code cairn_cuda_rows_copy(const struct cairn_cuda_runtime *runtime, void *stream,
                                     const struct cairn_device_part *part,
                                     struct cairn_error *err) {
    struct copying copying = {.cuda = runtime, .part = part, .stream = stream, .err = err};
    if (!part->strided) return copy_rows(&copying, (int64_t)part->at, 0, part->bytes, 1, 0);
    (void)cairn_strided_cut(part->strided, part->at, part->bytes, copy_cut, &copying);
    copy_waiting(&copying);
    return copying.code;
}
