/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_gpu probe
 * bench_gpu stage|convert|restore|restore-host --socket PATH --run PROJECT/RUN --bytes N
 * bench_gpu copy|copy-half --bytes N
 *
 * A rank with tensors on a GPU, against real daemons. stage and convert save N bytes of F32 for
 * each "go", unchanged or as BF16, and time the stall; then they wait for the commit and compare
 * every stored element with the host's own rounding. restore reads into the GPU's memory,
 * restore-host into the host's; both compare. copy and copy-half copy all or half of the bytes from
 * the GPU into page-locked memory. probe exits with 77 without a GPU. CAIRN_BENCH_CUDA names
 * another runtime, for smoke tests.
 */
#include <cairn/cairn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/table/dtype.h"
#include "bench/measure.h"
#include "common/clock.h"
#include "common/memory.h"
#include "formats/convert.h"

#define TENSOR_BYTES (64 * CAIRN_MIB)
#define WAIT_MS 120000
#define NO_GPU 77
enum { TO_DEVICE = 1, TO_HOST = 2 };

static struct {
    int (*GetDeviceCount)(int *), (*Malloc)(void **, size_t);
    int (*HostRegister)(void *, size_t, unsigned), (*StreamCreateWithFlags)(void **, unsigned);
    int (*StreamSynchronize)(void *), (*MemcpyAsync)(void *, const void *, size_t, int, void *);
} cuda;

struct rank {
    struct cairn_session *session;
    struct cairn_restore *restore;
    uint8_t *pattern, *stored, *got; /* the GPU's content; as stored; as restored */
    struct cairn_slab slab;          /* for bare copies */
    uint8_t *memory, *into;          /* on the GPU */
    void *stream;
    uint64_t bytes, stored_bytes, step;
    bool bare, converts, restores, to_host;
};

static bool find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool have_gpu(void) {
    const char *const names[] = {getenv("CAIRN_BENCH_CUDA"), "libcudart.so.13", "libcudart.so.12",
                                 "/usr/local/cuda/lib64/libcudart.so"};
    void *library = NULL;
    int count = 0;
    for (size_t i = 0; i < CAIRN_COUNT(names) && !library; i++)
        if (names[i]) library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    return library && find(library, "cudaGetDeviceCount", &cuda.GetDeviceCount) &&
           find(library, "cudaMalloc", &cuda.Malloc) &&
           find(library, "cudaHostRegister", &cuda.HostRegister) &&
           find(library, "cudaStreamCreateWithFlags", &cuda.StreamCreateWithFlags) &&
           find(library, "cudaStreamSynchronize", &cuda.StreamSynchronize) &&
           find(library, "cudaMemcpyAsync", &cuda.MemcpyAsync) && !cuda.GetDeviceCount(&count) &&
           count > 0;
}

static enum cairn_code checked(int status, const char *what, struct cairn_error *err) {
    if (!status) return CAIRN_OK;
    return cairn_fail(err, CAIRN_IO, "%s: CUDA's error %d", what, status);
}

static enum cairn_code move(struct rank *rank, void *to, const void *from, uint64_t bytes, int kind,
                            struct cairn_error *err) {
    CAIRN_TRY(checked(cuda.MemcpyAsync(to, from, bytes, kind, rank->stream), "copy", err));
    return checked(cuda.StreamSynchronize(rank->stream), "wait", err);
}

static enum cairn_code describe(struct rank *rank, struct cairn_save *save,
                                struct cairn_error *err) {
    for (uint64_t at = 0, index = 0; at < rank->bytes; at += TENSOR_BYTES, index++) {
        char name[64];
        uint64_t bytes = cairn_min_u64(TENSOR_BYTES, rank->bytes - at), count = bytes / 4;
        snprintf(name, sizeof name, "block%llu", (unsigned long long)index);
        const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                                 .name = name,
                                                 .dtype = rank->converts ? "BF16" : "F32",
                                                 .source_dtype = "F32",
                                                 .dimension_count = 1,
                                                 .shape = &count,
                                                 .kind = CAIRN_SHARDED,
                                                 .source = rank->memory + at,
                                                 .source_bytes = bytes,
                                                 .memory = CAIRN_MEMORY_CUDA,
                                                 .stream = rank->stream};
        CAIRN_TRY(cairn_save_tensor(save, &piece, err));
    }
    return CAIRN_OK;
}

static enum cairn_code save(struct rank *rank, uint64_t *ret_us, struct cairn_error *err) {
    struct cairn_save_options options = {.size = sizeof options, .timeout_ms = WAIT_MS};
    struct cairn_save_status status = {0};
    struct cairn_save *made = NULL;
    CAIRN_TRY(cairn_save_begin(rank->session, ++rank->step, &options, &made, err));
    enum cairn_code code = describe(rank, made, err);
    if (!code) code = cairn_save_stage(made, err);
    if (!code) code = cairn_save_wait(made, CAIRN_COMMITTED, WAIT_MS, err);
    cairn_save_status(made, &status);
    *ret_us = status.stall_us;
    cairn_save_free(made);
    return code;
}

static enum cairn_code read_all(struct rank *rank, uint8_t *into, enum cairn_memory memory,
                                struct cairn_error *err) {
    struct cairn_read reads[256];
    char names[CAIRN_COUNT(reads)][32];
    uint64_t step = TENSOR_BYTES / (rank->converts ? 2 : 1);
    size_t count = 0;
    for (uint64_t at = 0; at < rank->stored_bytes; at += step, count++) {
        if (count == CAIRN_COUNT(reads)) return cairn_fail(err, CAIRN_TOO_LARGE, "too many bytes");
        snprintf(names[count], sizeof names[count], "block%zu", count);
        reads[count] =
            (struct cairn_read){.size = sizeof reads[count],
                                .tensor = names[count],
                                .form = CAIRN_WHOLE,
                                .into = into + at,
                                .into_bytes = cairn_min_u64(step, rank->stored_bytes - at),
                                .memory = memory,
                                .stream = rank->stream};
    }
    return cairn_restore_read(rank->restore, reads, count, WAIT_MS, err);
}

static enum cairn_code open_last(struct rank *rank, struct cairn_error *err) {
    char step[24];
    struct cairn_restore_options options = {
        .size = sizeof options, .ref = step, .timeout_ms = WAIT_MS};
    snprintf(step, sizeof step, "%llu", (unsigned long long)rank->step);
    return cairn_restore_open(rank->session, &options, &rank->restore, NULL, err);
}

static enum cairn_code compare(const struct rank *rank, struct cairn_error *err) {
    if (!memcmp(rank->got, rank->stored, rank->stored_bytes)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "what came back is not what was saved");
}

static enum cairn_code restore(struct rank *rank, uint64_t *ret_us, struct cairn_error *err) {
    memset(rank->got, 0, rank->stored_bytes);
    CAIRN_TRY(move(rank, rank->into, rank->got, rank->stored_bytes, TO_DEVICE, err));
    uint64_t start_us = cairn_mono_us();
    CAIRN_TRY(rank->to_host ? read_all(rank, rank->got, CAIRN_MEMORY_HOST, err)
                            : read_all(rank, rank->into, CAIRN_MEMORY_CUDA, err));
    *ret_us = cairn_mono_us() - start_us;
    if (!rank->to_host)
        CAIRN_TRY(move(rank, rank->got, rank->into, rank->stored_bytes, TO_HOST, err));
    return compare(rank, err);
}

static enum cairn_code copy(struct rank *rank, uint64_t *ret_us, struct cairn_error *err) {
    uint64_t start_us = cairn_mono_us();
    CAIRN_TRY(move(rank, rank->slab.data, rank->memory, rank->stored_bytes, TO_HOST, err));
    *ret_us = cairn_mono_us() - start_us;
    if (memcmp(rank->slab.data, rank->pattern, rank->stored_bytes) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "the copy is another");
    return CAIRN_OK;
}

static enum cairn_code once(void *owner, struct bench_result *ret, struct cairn_error *err) {
    struct rank *rank = owner;
    ret->bytes = rank->bytes;
    if (rank->bare) return copy(rank, &ret->took_us, err);
    if (rank->restores) return restore(rank, &ret->took_us, err);
    CAIRN_TRY(save(rank, &ret->took_us, err));
    memset(rank->got, 0, rank->stored_bytes);
    CAIRN_TRY(open_last(rank, err));
    enum cairn_code code = read_all(rank, rank->got, CAIRN_MEMORY_HOST, err);
    cairn_restore_free(rank->restore);
    return code ? code : compare(rank, err);
}

static enum cairn_code prepare(struct rank *rank, const char *socket, const char *run,
                               struct cairn_error *err) {
    uint64_t ignored;
    void *made = NULL;
    rank->pattern = bench_memory(rank->bytes);
    rank->stored = bench_memory(rank->stored_bytes);
    rank->got = bench_memory(rank->stored_bytes);
    if (!rank->pattern || !rank->stored || !rank->got)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    cairn_convert(CAIRN_DTYPE_F32, rank->pattern,
                  rank->converts ? CAIRN_DTYPE_BF16 : CAIRN_DTYPE_F32, rank->stored,
                  rank->stored_bytes / (rank->converts ? 2 : 4));
    CAIRN_TRY(checked(cuda.StreamCreateWithFlags(&rank->stream, 1), "stream", err));
    CAIRN_TRY(checked(cuda.Malloc(&made, rank->bytes), "memory", err));
    rank->memory = made;
    CAIRN_TRY(move(rank, rank->memory, rank->pattern, rank->bytes, TO_DEVICE, err));
    if (rank->bare) {
        CAIRN_TRY(cairn_slab_create("bench-gpu", rank->stored_bytes, false, &rank->slab, err));
        return checked(cuda.HostRegister(rank->slab.data, rank->stored_bytes, 1), "lock", err);
    }
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = run,
                                         .job = "bench",
                                         .bytes = rank->stored_bytes + 4 * CAIRN_MIB,
                                         .socket = socket};
    CAIRN_TRY(cairn_open(&options, &rank->session, NULL, err));
    if (!rank->restores) return CAIRN_OK;
    CAIRN_TRY(checked(cuda.Malloc(&made, rank->stored_bytes), "memory", err));
    rank->into = made;
    CAIRN_TRY(save(rank, &ignored, err));
    return open_last(rank, err);
}

int main(int count, char **values) {
    static struct rank rank;
    struct cairn_error error = {0};
    const char *what = count > 1 ? values[1] : "";
    if (!have_gpu()) {
        fprintf(stderr, "bench_gpu: no CUDA device\n");
        return NO_GPU;
    }
    if (!strcmp(what, "probe")) return 0;
    rank.bytes = bench_flag_number(count, values, "--bytes", CAIRN_GIB) / 4 * 4;
    rank.bare = !strncmp(what, "copy", 4);
    rank.converts = !strcmp(what, "convert");
    rank.restores = !strncmp(what, "restore", 7);
    rank.to_host = !strcmp(what, "restore-host");
    rank.stored_bytes = rank.converts || !strcmp(what, "copy-half") ? rank.bytes / 2 : rank.bytes;
    if (prepare(&rank, bench_flag(count, values, "--socket", NULL),
                bench_flag(count, values, "--run", "bench/gpu"), &error) != CAIRN_OK) {
        fprintf(stderr, "bench_gpu: %s\n", error.message);
        return 2;
    }
    int status = bench_loop(once, &rank);
    cairn_restore_free(rank.restores ? rank.restore : NULL);
    (void)cairn_close(rank.session, NULL);
    return status;
}
