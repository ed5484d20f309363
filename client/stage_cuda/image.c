/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the file that nvcc made stand in the plug-in, so there is no file to find. */
#include "client/stage_cuda/image.h"

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

const void *cairn_cuda_image(void) {
    return cairn_cuda_image_begin;
}
#else
const void *cairn_cuda_image(void) {
    return NULL;
}
#endif
