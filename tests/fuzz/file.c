/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of parsers that open a path: memory that looks like a file, no disk. */
#include <sys/mman.h>

#include "tests/fuzz/fuzz.h"

void cairn_fuzz_file_begin(struct cairn_view input, struct cairn_fuzz_file *ret) {
    ret->fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_HOLDS(ret->fd >= 0 && fchmod(ret->fd, 0600) == 0);
    FUZZ_HOLDS(!input.size || write(ret->fd, input.data, input.size) == (ssize_t)input.size);
    snprintf(ret->path, sizeof ret->path, "/proc/self/fd/%d", ret->fd);
}

void cairn_fuzz_file_end(struct cairn_fuzz_file *file) {
    close(file->fd);
}
