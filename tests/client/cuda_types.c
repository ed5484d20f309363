/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled where a CUDA toolkit is installed, and never run: what client/stage_cuda/runtime.h
 * declares of the runtime is what the toolkit's headers do. */
#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "client/stage_cuda/driver.h"
#include "client/stage_cuda/runtime.h"

static_assert((int)CAIRN_CUDA_OK == cudaSuccess, "status");
static_assert((int)CAIRN_CUDA_INVALID_VALUE == cudaErrorInvalidValue, "status");
static_assert((int)CAIRN_CUDA_OUT_OF_MEMORY == cudaErrorMemoryAllocation, "status");
static_assert((int)CAIRN_CUDA_ALREADY_REGISTERED == cudaErrorHostMemoryAlreadyRegistered, "status");
static_assert((int)CAIRN_CUDA_MEMORY_OF_DEVICE == cudaMemoryTypeDevice, "kind of memory");
static_assert((int)CAIRN_CUDA_MEMORY_MANAGED == cudaMemoryTypeManaged, "kind of memory");
static_assert((int)CAIRN_CUDA_DEVICE_TO_HOST == cudaMemcpyDeviceToHost, "direction");
static_assert((int)CAIRN_CUDA_HOST_TO_DEVICE == cudaMemcpyHostToDevice, "direction");
static_assert(CAIRN_CUDA_HOST_READ_ONLY == cudaHostRegisterReadOnly, "flag");
static_assert(CAIRN_CUDA_HOST_PORTABLE == cudaHostRegisterPortable, "flag");
static_assert(CAIRN_CUDA_STREAM_NON_BLOCKING == cudaStreamNonBlocking, "flag");
static_assert(CAIRN_CUDA_EVENT_BLOCKING == cudaEventBlockingSync, "flag");
static_assert(CAIRN_CUDA_EVENT_NO_TIMING == cudaEventDisableTiming, "flag");
static_assert(sizeof(struct cudaPointerAttributes) <= sizeof(struct cairn_cuda_pointer), "room");
static_assert(offsetof(struct cudaPointerAttributes, type) ==
                  offsetof(struct cairn_cuda_pointer, type),
              "place");
static_assert(offsetof(struct cudaPointerAttributes, device) ==
                  offsetof(struct cairn_cuda_pointer, device),
              "place");
static_assert(sizeof(cudaError_t) == sizeof(int), "status");
static_assert(sizeof(cudaStream_t) == sizeof(void *), "stream");
static_assert(sizeof(cudaEvent_t) == sizeof(void *), "event");
static_assert(sizeof(enum cudaMemcpyKind) == sizeof(int), "direction");

static_assert((int)CAIRN_CUDA_DRIVER_OUT_OF_MEMORY == CUDA_ERROR_OUT_OF_MEMORY, "status");
static_assert(sizeof(CUresult) == sizeof(int), "status");
static_assert(sizeof(CUmodule) == sizeof(void *), "module");
static_assert(sizeof(CUfunction) == sizeof(void *), "function");

/* A call with arguments of the kinds that runtime.h declares is one of the toolkit's function. */
cudaError_t cairn_cuda_types(void *memory, size_t size, unsigned flags, int number);
cudaError_t cairn_cuda_types(void *memory, size_t size, unsigned flags, int number) {
    struct cudaPointerAttributes found;
    cudaStream_t stream = memory;
    cudaEvent_t event = memory;
    enum cudaMemcpyKind kind = (enum cudaMemcpyKind)number;
    cudaError_t status = cudaGetDevice(&number) | cudaSetDevice(number) | cudaGetLastError();
    status |= cudaPointerGetAttributes(&found, memory);
    status |= cudaMalloc(&memory, size) | cudaFree(memory);
    status |= cudaHostRegister(memory, size, flags) | cudaHostUnregister(memory);
    status |= cudaStreamCreateWithFlags(&stream, flags) | cudaStreamDestroy(stream);
    status |= cudaStreamSynchronize(stream) | cudaStreamWaitEvent(stream, event, flags);
    status |= cudaEventCreateWithFlags(&event, flags) | cudaEventDestroy(event);
    status |= cudaEventRecord(event, stream) | cudaEventSynchronize(event);
    status |= cudaMemcpyAsync(memory, memory, size, kind, stream);
    status |= cudaMemcpy2DAsync(memory, size, memory, size, size, size, kind, stream);
    return status;
}

CUresult cairn_cuda_driver_types(void *memory, void **arguments, unsigned count);
CUresult cairn_cuda_driver_types(void *memory, void **arguments, unsigned count) {
    CUmodule module = memory;
    CUfunction function = memory;
    const char *name = NULL;
    CUresult status = cuModuleLoadData(&module, memory) | cuModuleUnload(module);
    status |= cuModuleGetFunction(&function, module, "name") | cuGetErrorName(status, &name);
    status |= cuLaunchKernel(function, count, count, count, count, count, count, count, memory,
                             arguments, arguments);
    return status;
}
