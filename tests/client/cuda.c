/* SPDX-License-Identifier: Apache-2.0 */
/* The fake is opened by its path; who asks for the soname later gets it, too. */
#include "tests/client/cuda.h"

#include <dlfcn.h>

struct cairn_cuda_calls cairn_cuda;

static bool find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    memcpy(ret, &symbol, sizeof symbol);
    return EXPECT(symbol != NULL);
}

/* By its path, before anything asks for the soname: from then on it is the process's runtime. */
bool cairn_cuda_have_runtime(void) {
    const char *folder = getenv("CAIRN_BIN_DIR");
    const char *path = TEXT("%s/fake_cuda/libcudart.so.13", folder ? folder : ".");
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!EXPECT(library != NULL)) return false;
    if (!find(library, "cudaSetDevice", &cairn_cuda.set_device) ||
        !find(library, "cudaGetDevice", &cairn_cuda.get_device) ||
        !find(library, "cudaGetLastError", &cairn_cuda.get_last_error) ||
        !find(library, "cudaMalloc", &cairn_cuda.make) ||
        !find(library, "cudaFree", &cairn_cuda.release) ||
        !find(library, "cudaMemcpyAsync", &cairn_cuda.copy) ||
        !find(library, "cudaStreamCreateWithFlags", &cairn_cuda.make_stream) ||
        !find(library, "cudaStreamDestroy", &cairn_cuda.end_stream) ||
        !find(library, "fake_cuda_reset", &cairn_cuda.reset) ||
        !find(library, "fake_cuda_state", &cairn_cuda.state) ||
        !find(library, "fake_cuda_fail", &cairn_cuda.fail) ||
        !find(library, "fake_cuda_write_later", &cairn_cuda.write_later) ||
        !find(library, "fake_cuda_room", &cairn_cuda.room) ||
        !find(library, "fake_cuda_slow", &cairn_cuda.slow) ||
        !find(library, "fake_cuda_slow_kernels", &cairn_cuda.slow_kernels) ||
        !find(library, "fake_cuda_without_read_only", &cairn_cuda.without_read_only) ||
        !find(library, "fake_cuda_forget_contexts", &cairn_cuda.forget_contexts) ||
        !find(library, "cudaMallocAsync", &cairn_cuda.make_pooled) ||
        !find(library, "cuCtxCreate_v2", &cairn_cuda.make_context) ||
        !find(library, "cuCtxDestroy_v2", &cairn_cuda.end_context) ||
        !find(library, "cuCtxGetCurrent", &cairn_cuda.current_context) ||
        !find(library, "cudaStreamBeginCapture", &cairn_cuda.begin_capture) ||
        !find(library, "cudaStreamEndCapture", &cairn_cuda.end_capture))
        return false;
    cairn_cuda.reset();
    return cairn_cuda.set_device(0) == 0;
}

/* Memory of a device with these bytes, at once. */
void *cairn_cuda_filled(int device, const void *bytes, size_t size) {
    void *ret = NULL, *stream = NULL;
    EXPECT_EQ_U64(cairn_cuda.set_device(device), 0);
    EXPECT_EQ_U64(cairn_cuda.make(&ret, size), 0);
    EXPECT_EQ_U64(cairn_cuda.make_stream(&stream, 1), 0);
    cairn_cuda.write_later(stream, ret, bytes, size, 0);
    EXPECT_EQ_U64(cairn_cuda.end_stream(stream), 0);
    EXPECT_EQ_U64(cairn_cuda.set_device(0), 0);
    return ret;
}

/* The checksums that were told of the save's first shard are those of its bytes in the slab. */
bool cairn_cuda_sums_are_right(struct cairn_rank *rank, size_t save) {
    struct cairn_fake_message stage, staged;
    if (!cairn_fake_uploader_saw(rank->fake, "stage", save, &stage)) return false;
    const json_t *shard = json_array_get(json_object_get(stage.message, "shards"), 0);
    uint32_t slab = (uint32_t)json_integer_value(json_object_get(stage.message, "slab"));
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(shard, "bytes")), at = 0;
    const uint8_t *data = cairn_fake_uploader_slab(rank->fake, slab);
    size_t count = cairn_fake_uploader_count(rank->fake, "staged");
    for (size_t i = 0; i < count; i++) {
        if (!cairn_fake_uploader_at(rank->fake, "staged", i, &staged)) return false;
        for (size_t b = 0; b < staged.blob.size / 4; b++, at += CAIRN_BLOCK_BYTES)
            if (cairn_load_u32le((const uint8_t *)staged.blob.data + 4 * b) !=
                cairn_crc32c(0, data + at, (size_t)cairn_min_u64(CAIRN_BLOCK_BYTES, bytes - at)))
                return false;
    }
    return at >= bytes;
}

/* Begin, one piece, stage. */
enum cairn_code cairn_cuda_save_one(struct cairn_session *session, uint64_t step,
                                    const struct cairn_tensor_piece *piece,
                                    struct cairn_error *err) {
    struct cairn_save *save = NULL;
    CAIRN_TRY(cairn_save_begin(session, step, NULL, &save, err));
    enum cairn_code code = cairn_save_tensor(save, piece, err);
    if (!code) code = cairn_save_stage(save, err);
    cairn_save_free(save);
    return code;
}

/* Also where the plug-in has no kernels: then that is what it says. */
const char *cairn_cuda_no_kernels(void) {
    static const uint64_t one[1] = {1};
    struct cairn_error err = {0};
    CAIRN_AUTO(rank) rank = {0};
    uint32_t number = 0;
    if (!cairn_cuda_have_runtime() || !EXPECT(rank_open(&rank, 1, &err) == CAIRN_OK))
        return "the fake cannot be used";
    void *memory = cairn_cuda_filled(0, &number, sizeof number);
    const struct cairn_tensor_piece piece =
        SIZED(cairn_tensor_piece, .name = "w", .dtype = "BF16", .source_dtype = "F32",
              .dimension_count = 1, .shape = one, .kind = CAIRN_LOCAL, .source = memory,
              .source_bytes = 4, .memory = CAIRN_MEMORY_CUDA);
    enum cairn_code code = cairn_cuda_save_one(rank.session, 1, &piece, &err);
    cairn_cuda.release(memory);
    if (code == CAIRN_OK) return NULL;
    EXPECT_FAILS(code, CAIRN_UNSUPPORTED, "tensor w: this libcairn_cuda.so was built without nvcc");
    return "libcairn_cuda.so was built without nvcc";
}

void cairn_cuda_expect_nothing_left(void) {
    struct fake_cuda_state state;
    cairn_cuda.state(&state);
    EXPECT_ALL_U64(state.streams, 0, state.events, 0, state.registered, 0, state.modules, 0,
                   state.pinned, 0, state.primaries, 0);
}
