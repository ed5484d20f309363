/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of a file, of memory or of a caller's context; bounds are checked here once. */
#include "formats/input.h"

#include <inttypes.h>

#include "common/file.h"

#define FILE_BYTES_MIN 10 /* of safetensors; any torch.save pickle is longer */

enum cairn_code cairn_input_read(const struct cairn_input *input, uint64_t offset, void *into,
                                 size_t size, struct cairn_error *err) {
    if (offset > input->size_bytes || size > input->size_bytes - offset)
        return cairn_fail(err, CAIRN_INVALID,
                          "%zu bytes from byte %" PRIu64 " do not lie in a file of %" PRIu64
                          " bytes: it is cut short, or what points there is wrong",
                          size, offset, input->size_bytes);
    return size ? input->read(input->context, offset, into, size, err) : CAIRN_OK;
}

/* How the files of programs that pack other files begin. */
static const struct {
    size_t offset, size;
    const char *bytes, *what, *unpack;
} packers[] = {
    {0, 2, "\x1f\x8b", "packed by gzip", "gunzip, or tar -xf where it is a .tar.gz"},
    {0, 6,
     "\xfd"
     "7zXZ\0",
     "packed by xz", "unxz, or tar -xf where it is a .tar.xz"},
    {0, 4, "\x28\xb5\x2f\xfd", "packed by zstd", "unzstd, or tar -xf where it is a .tar.zst"},
    {0, 3, "BZh", "packed by bzip2", "bunzip2, or tar -xf where it is a .tar.bz2"},
    {0, 4, "\x04\x22\x4d\x18", "packed by lz4", "unlz4"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "an archive of 7-Zip", "7z x"},
    {257, 5, "ustar", "a tar archive", "tar -xf"},
};

enum cairn_code cairn_input_packed(const struct cairn_input *input, struct cairn_error *err) {
    char first[262] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first);
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    for (size_t i = 0; i < CAIRN_COUNT(packers); i++) {
        if (memcmp(first + packers[i].offset, packers[i].bytes, packers[i].size) != 0) continue;
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "it is %s, and no tensor can be read from it: unpack it first (%s)",
                          packers[i].what, packers[i].unpack);
    }
    return CAIRN_OK;
}

enum cairn_code cairn_input_lost(const struct cairn_input *input, struct cairn_error *err) {
    static const char pointer[] = "version https://git-lfs.github.com/spec/";
    char first[64] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first), zeros = 0;
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    while (zeros < size && !first[zeros]) zeros++;
    if (!size) return cairn_fail(err, CAIRN_CORRUPT, "an empty file");
    if (zeros == size)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "it begins with zeros: its bytes were never written, or were lost");
    if (size >= sizeof pointer - 1 && memcmp(first, pointer, sizeof pointer - 1) == 0)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "a pointer of git-lfs, not the file that it stands for: `git lfs pull` "
                          "fetches that");
    return cairn_input_packed(input, err);
}

enum cairn_code cairn_input_refuse(const struct cairn_input *input, bool of_model,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_input_lost(input, err));
    if (of_model && input->size_bytes < FILE_BYTES_MIN)
        return cairn_fail(err, CAIRN_CORRUPT, "%" PRIu64 " bytes: it is cut short",
                          input->size_bytes);
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "neither a file of torch.save nor a safetensors file, by how it begins");
}

static enum cairn_code read_view(void *context, uint64_t offset, void *into, size_t size,
                                 struct cairn_error *err) {
    const struct cairn_view *view = context;
    (void)err;
    memcpy(into, (const char *)view->data + offset, size);
    return CAIRN_OK;
}

struct cairn_input cairn_input_of_view(struct cairn_view *view) {
    return (struct cairn_input){.size_bytes = view->size, .context = view, .read = read_view};
}

static enum cairn_code read_file(void *context, uint64_t offset, void *into, size_t size,
                                 struct cairn_error *err) {
    return cairn_file_read_at(context, into, size, offset, err);
}

enum cairn_code cairn_input_of_file(struct cairn_file *file, struct cairn_input *ret,
                                    struct cairn_error *err) {
    *ret = (struct cairn_input){.context = file, .read = read_file};
    return cairn_file_size(file, &ret->size_bytes, err);
}
