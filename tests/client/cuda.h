/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda: a runtime without a GPU for tests of libcairn, and saves of what it has.
 *
 * Why:     copies and conversions of a device are tested in files of their own.
 * Promise: 1   from have_runtime on the process's runtime is the fake.
 * Limits:  as tests/support/fake_cuda.h.
 * Threads: one.
 * Next:    tests/client/test_cuda.c, test_cuda_convert.c.
 */
#pragma once

#include "tests/client/rank.h"
#include "tests/support/fake_cuda.h"

struct cairn_cuda_calls {
    int (*set_device)(int), (*get_device)(int *), (*get_last_error)(void);
    int (*make)(void **, size_t), (*release)(void *);
    int (*copy)(void *, const void *, size_t, int, void *);
    int (*make_stream)(void **, unsigned), (*end_stream)(void *);
    fake_cuda_reset_fn *reset;
    fake_cuda_state_fn *state;
    fake_cuda_fail_fn *fail;
    fake_cuda_write_later_fn *write_later;
    fake_cuda_room_fn *room;
    fake_cuda_slow_fn *slow;
    fake_cuda_slow_kernels_fn *slow_kernels;
    fake_cuda_without_read_only_fn *without_read_only;
    fake_cuda_forget_contexts_fn *forget_contexts;
    int (*make_pooled)(void **, size_t, void *);
    int (*make_context)(void **, unsigned, int), (*end_context)(void *);
    int (*current_context)(void **);
    int (*begin_capture)(void *, int), (*end_capture)(void *, void **);
};
extern struct cairn_cuda_calls cairn_cuda;

/* By its path, before anything asks for the soname: from then on it is the process's runtime. */
bool cairn_cuda_have_runtime(void);
/* Memory of a device with these bytes, at once. */
void *cairn_cuda_filled(int device, const void *bytes, size_t size);
/* The checksums that were told of the save's first shard are those of its bytes in the slab. */
bool cairn_cuda_sums_are_right(struct cairn_rank *rank, size_t save);
/* Begin, one piece, stage. */
enum cairn_code cairn_cuda_save_one(struct cairn_session *session, uint64_t step,
                                    const struct cairn_tensor_piece *piece,
                                    struct cairn_error *err);
/* Why nothing is gathered, converted or summed on a device; NULL: it is. */
const char *cairn_cuda_no_kernels(void);
#define NEEDS_KERNELS()                                                                            \
    do {                                                                                           \
        const char *no_kernels = cairn_cuda_no_kernels();                                          \
        if (no_kernels) SKIP(no_kernels);                                                          \
    } while (0)
/* Of streams, events and page-locked memory; what a session keeps goes with it. */
void cairn_cuda_expect_nothing_left(void);
/* Memory of a device with these bytes; the process's runtime is the fake. When the test ends
 * nothing of libcairn's is left there, and it is given back. */
struct cairn_device {
    void *memory;
};
static inline void cairn_device_release(struct cairn_device *device) {
    cairn_cuda_expect_nothing_left();
    cairn_cuda.release(device->memory);
}
#define DEVICE(type, name, ...)                                                                    \
    REQUIRE(cairn_cuda_have_runtime());                                                            \
    CAIRN_AUTO(device) name##_of = {cairn_cuda_filled(__VA_ARGS__)};                               \
    type *name = name##_of.memory
