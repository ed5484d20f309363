/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled where a CUDA toolkit is installed, and never run: what client/stage_cuda/runtime.h
 * declares of the runtime is what the toolkit's headers do. */
#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

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
static_assert((int)CAIRN_CUDA_READ_ONLY_SUPPORTED == cudaDevAttrHostRegisterReadOnlySupported,
              "attribute");
#if CUDART_VERSION >= 12020 /* an enumerator, which the preprocessor does not see */
static_assert((int)CAIRN_CUDA_HOST_NUMA_NODE == cudaDevAttrHostNumaId, "attribute");
#endif
static_assert((int)CAIRN_CUDA_CAPTURE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED, "mode");
static_assert((int)CAIRN_CUDA_CONTEXT_OF == CU_POINTER_ATTRIBUTE_CONTEXT, "attribute");
static_assert((int)CAIRN_CUDA_BEGIN_OF == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "attribute");
static_assert((int)CAIRN_CUDA_BYTES_OF == CU_POINTER_ATTRIBUTE_RANGE_SIZE, "attribute");
static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t), "pointer");
static_assert(sizeof(CUcontext) == sizeof(void *), "context");
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
#define SAME_PLACE(ours, theirs)                                                                   \
    static_assert(offsetof(struct cairn_cuda_planes, ours) ==                                      \
                      offsetof(struct cudaMemcpy3DParms, theirs),                                  \
                  "place")
static_assert(sizeof(struct cudaMemcpy3DParms) == sizeof(struct cairn_cuda_planes), "room");
SAME_PLACE(from_array, srcArray);
SAME_PLACE(from_place, srcPos);
SAME_PLACE(from.memory, srcPtr.ptr);
SAME_PLACE(from.pitch, srcPtr.pitch);
SAME_PLACE(from.width, srcPtr.xsize);
SAME_PLACE(from.height, srcPtr.ysize);
SAME_PLACE(to_array, dstArray);
SAME_PLACE(to_place, dstPos);
SAME_PLACE(to.memory, dstPtr.ptr);
SAME_PLACE(to.pitch, dstPtr.pitch);
SAME_PLACE(to.width, dstPtr.xsize);
SAME_PLACE(to.height, dstPtr.ysize);
SAME_PLACE(row_bytes, extent.width);
SAME_PLACE(rows, extent.height);
SAME_PLACE(planes, extent.depth);
SAME_PLACE(kind, kind);
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
    struct cudaMemcpy3DParms planes = {0};
    cudaStream_t stream = memory;
    cudaEvent_t event = memory;
    enum cudaMemcpyKind kind = (enum cudaMemcpyKind)number;
    cudaError_t status = cudaGetDevice(&number) | cudaGetLastError();
    status |= cudaDeviceGetAttribute(&number, (enum cudaDeviceAttr)number, number);
    status |= cudaHostAlloc(&memory, size, flags) | cudaFreeHost(memory);
    status |= cudaPointerGetAttributes(&found, memory);
    status |= cudaMalloc(&memory, size) | cudaFree(memory);
    status |= cudaHostRegister(memory, size, flags) | cudaHostUnregister(memory);
    status |= cudaDeviceGetStreamPriorityRange(&number, &number);
    status |= cudaStreamCreateWithPriority(&stream, flags, number) | cudaStreamDestroy(stream);
    status |= cudaStreamSynchronize(stream) | cudaStreamWaitEvent(stream, event, flags);
    status |= cudaEventCreateWithFlags(&event, flags) | cudaEventDestroy(event);
    status |= cudaEventRecord(event, stream) | cudaEventSynchronize(event);
    status |= cudaMemcpyAsync(memory, memory, size, kind, stream);
    status |= cudaMemcpy2DAsync(memory, size, memory, size, size, size, kind, stream);
    status |= cudaMemcpy3DAsync(&planes, stream);
    return status;
}

CUresult cairn_cuda_driver_types(void *memory, void **arguments, unsigned count);
CUresult cairn_cuda_driver_types(void *memory, void **arguments, unsigned count) {
    CUmodule module = memory;
    CUcontext context = memory;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdevice device = (CUdevice)count;
    int number = 0;
    CUfunction function = memory;
    const char *name = NULL;
    CUresult status = cuModuleLoadData(&module, memory) | cuModuleUnload(module);
    status |= cuPointerGetAttribute(memory, (CUpointer_attribute)count, (CUdeviceptr)memory);
    status |= cuCtxGetCurrent(&context) | cuCtxGetDevice(&device);
    status |= cuCtxPushCurrent(context) | cuCtxPopCurrent(&context);
    status |= cuDevicePrimaryCtxGetState(device, &count, &number);
    status |= cuDevicePrimaryCtxRetain(&context, device) | cuDevicePrimaryCtxRelease(device);
    status |= cuThreadExchangeStreamCaptureMode(&mode);
    status |= cuModuleGetFunction(&function, module, "name") | cuGetErrorName(status, &name);
    status |= cuLaunchKernel(function, count, count, count, count, count, count, count, memory,
                             arguments, arguments);
    return status;
}
