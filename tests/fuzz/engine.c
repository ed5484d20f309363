/* SPDX-License-Identifier: Apache-2.0 */
/* What libFuzzer calls; CAIRN_FUZZ_TARGET is one of targets.def, given by the build. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size <= 64 * CAIRN_KIB) CAIRN_FUZZ_TARGET((struct cairn_view){data, size});
    return 0;
}
