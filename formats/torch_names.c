/* SPDX-License-Identifier: Apache-2.0 */
/* Every name of Python that a torch file may ask for, and what it stands for here. What is no row
 * is refused by its name; nothing is ever run. */
#include <stdlib.h>

#include "api/dtype.h"
#include "common/array.h"
#include "formats/torch_inside.h"
#include "formats/torch_legacy.h"

/* module, name, enum cairn_torch_meaning, enum cairn_table_dtype */
#define NAME(module, name, meaning, dtype)                                                         \
    { #module, #name, CAIRN_TORCH_##meaning, CAIRN_DTYPE_##dtype }

static const struct cairn_torch_name names[] = {
    NAME(torch._utils, _rebuild_tensor_v2, TENSOR_V2, NONE),
    NAME(torch._utils, _rebuild_tensor, TENSOR_V2, NONE),
    NAME(torch._utils, _rebuild_tensor_v3, TENSOR_V3, NONE),
    NAME(torch._utils, _rebuild_parameter, PARAMETER, NONE),
    NAME(torch._utils, _rebuild_parameter_with_state, PARAMETER, NONE),
    NAME(torch._tensor, _rebuild_from_type_v2, FROM_TYPE, NONE),
    NAME(torch._utils, _rebuild_sparse_tensor, OPAQUE, NONE),
    NAME(torch._utils, _rebuild_sparse_csr_tensor, OPAQUE, NONE),
    NAME(torch._utils, _rebuild_qtensor, OPAQUE, NONE),
    NAME(torch._utils, _rebuild_meta_tensor_no_storage, OPAQUE, NONE),
    NAME(torch._utils, _rebuild_wrapper_subclass, OPAQUE, NONE),
    NAME(torch.serialization, _get_layout, OPAQUE, NONE),
    NAME(torch, Tensor, OPAQUE, NONE),
    NAME(torch.nn.parameter, Parameter, OPAQUE, NONE),
    NAME(torch.nn.parameter, Buffer, OPAQUE, NONE),

    NAME(torch, FloatStorage, STORAGE, F32),
    NAME(torch, DoubleStorage, STORAGE, F64),
    NAME(torch, HalfStorage, STORAGE, F16),
    NAME(torch, BFloat16Storage, STORAGE, BF16),
    NAME(torch, LongStorage, STORAGE, I64),
    NAME(torch, IntStorage, STORAGE, I32),
    NAME(torch, ShortStorage, STORAGE, I16),
    NAME(torch, CharStorage, STORAGE, I8),
    NAME(torch, ByteStorage, STORAGE, U8),
    NAME(torch, BoolStorage, STORAGE, BOOL),
    NAME(torch, ComplexFloatStorage, STORAGE, C64),
    NAME(torch, ComplexDoubleStorage, STORAGE, C128),
    NAME(torch, UntypedStorage, STORAGE, NONE),
    NAME(torch.storage, UntypedStorage, STORAGE, NONE),

    NAME(torch, float32, DTYPE, F32),
    NAME(torch, float64, DTYPE, F64),
    NAME(torch, float16, DTYPE, F16),
    NAME(torch, bfloat16, DTYPE, BF16),
    NAME(torch, int64, DTYPE, I64),
    NAME(torch, int32, DTYPE, I32),
    NAME(torch, int16, DTYPE, I16),
    NAME(torch, int8, DTYPE, I8),
    NAME(torch, uint8, DTYPE, U8),
    NAME(torch, uint16, DTYPE, U16),
    NAME(torch, uint32, DTYPE, U32),
    NAME(torch, uint64, DTYPE, U64),
    NAME(torch, bool, DTYPE, BOOL),
    NAME(torch, complex32, DTYPE, C32),
    NAME(torch, complex64, DTYPE, C64),
    NAME(torch, complex128, DTYPE, C128),
    NAME(torch, float8_e5m2, DTYPE, F8_E5M2),
    NAME(torch, float8_e4m3fn, DTYPE, F8_E4M3),
    NAME(torch, float8_e8m0fnu, DTYPE, F8_E8M0),
    NAME(torch, float8_e4m3fnuz, DTYPE, F8_E4M3FNUZ),
    NAME(torch, float8_e5m2fnuz, DTYPE, F8_E5M2FNUZ),
    NAME(torch, float4_e2m1fn_x2, DTYPE, F4X2),
    NAME(torch, bits1x8, DTYPE, BITS1X8),
    NAME(torch, bits2x4, DTYPE, BITS2X4),
    NAME(torch, bits4x2, DTYPE, BITS4X2),
    NAME(torch, bits8, DTYPE, BITS8),
    NAME(torch, bits16, DTYPE, BITS16),

    NAME(torch, Size, SEQUENCE, NONE),
    NAME(torch, device, OPAQUE, NONE),
    NAME(builtins, set, SEQUENCE, NONE),
    NAME(__builtin__, set, SEQUENCE, NONE),
    NAME(builtins, frozenset, SEQUENCE, NONE),
    NAME(__builtin__, frozenset, SEQUENCE, NONE),
    NAME(builtins, list, SEQUENCE, NONE),
    NAME(__builtin__, list, SEQUENCE, NONE),
    NAME(builtins, tuple, SEQUENCE, NONE),
    NAME(__builtin__, tuple, SEQUENCE, NONE),
    NAME(collections, OrderedDict, MAP, NONE),
    NAME(collections, defaultdict, MAP, NONE),
    NAME(collections, Counter, MAP, NONE),
    NAME(builtins, dict, MAP, NONE),
    NAME(__builtin__, dict, MAP, NONE),
    NAME(argparse, Namespace, RECORD, NONE),
    NAME(types, SimpleNamespace, RECORD, NONE),
    NAME(builtins, bytearray, ENCODED, NONE),
    NAME(__builtin__, bytearray, ENCODED, NONE),
    NAME(builtins, bytes, ENCODED, NONE),
    NAME(__builtin__, bytes, ENCODED, NONE),
    NAME(_codecs, encode, ENCODED, NONE),
    NAME(builtins, complex, OPAQUE, NONE),
    NAME(__builtin__, complex, OPAQUE, NONE),
    NAME(builtins, slice, OPAQUE, NONE),
    NAME(__builtin__, slice, OPAQUE, NONE),
    NAME(datetime, datetime, OPAQUE, NONE),
    NAME(datetime, timedelta, OPAQUE, NONE),
    NAME(pathlib, PosixPath, OPAQUE, NONE),
    NAME(pathlib, PurePosixPath, OPAQUE, NONE),
    NAME(numpy, dtype, OPAQUE, NONE),
    NAME(numpy, ndarray, OPAQUE, NONE),
    NAME(numpy.core.multiarray, _reconstruct, OPAQUE, NONE),
    NAME(numpy.core.multiarray, scalar, OPAQUE, NONE),
    NAME(numpy._core.multiarray, _reconstruct, OPAQUE, NONE),
    NAME(numpy._core.multiarray, scalar, OPAQUE, NONE),

    NAME(deepspeed.runtime.fp16.loss_scaler, LossScaler, RECORD, NONE),
    NAME(deepspeed.runtime.fp16.loss_scaler, DynamicLossScaler, RECORD, NONE),
    NAME(deepspeed.runtime.zero.config, ZeroStageEnum, SEQUENCE, NONE),
    NAME(deepspeed.utils.tensor_fragment, fragment_address, SEQUENCE, NONE),

    NAME(torch.distributed.checkpoint.metadata, Metadata, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, MetadataIndex, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, TensorStorageMetadata, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, BytesStorageMetadata, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, ChunkStorageMetadata, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, TensorProperties, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, StorageMeta, RECORD, NONE),
    NAME(torch.distributed.checkpoint.metadata, _MEM_FORMAT_ENCODING, OPAQUE, NONE),
    NAME(torch.distributed.checkpoint.filesystem, _StorageInfo, RECORD, NONE),

    NAME(builtins, getattr, MEMBER, NONE),
    NAME(__builtin__, getattr, MEMBER, NONE),
};

/* Python 3.11.0 to 3.11.3 writes a member of an enumeration as getattr(class, "member"), every
 * other version as class(number). What is no row here may not be taken from a class. */
static const struct {
    const char *enumeration, *member;
    int64_t number;
} members[] = {
    {"ZeroStageEnum", "disabled", 0},
    {"ZeroStageEnum", "optimizer_states", 1},
    {"ZeroStageEnum", "gradients", 2},
    {"ZeroStageEnum", "weights", 3},
    {"_MEM_FORMAT_ENCODING", "TORCH_CONTIGUOUS_FORMAT", 0},
    {"_MEM_FORMAT_ENCODING", "TORCH_CHANNELS_LAST", 1},
    {"_MEM_FORMAT_ENCODING", "TORCH_PRESERVE_FORMAT", 2},
};

const struct cairn_torch_name *cairn_torch_name_at(uint32_t global) {
    return global < CAIRN_COUNT(names) ? &names[global] : NULL;
}

bool cairn_torch_is_foreign(const struct cairn_torch_name *name) {
    static const char package[] = "deepspeed.";
    return strncmp(name->module, package, sizeof package - 1) == 0;
}

static bool is_text(struct cairn_view view, const char *text) {
    return view.size == strlen(text) && memcmp(view.data, text, view.size) == 0;
}

static bool is_allowed(struct cairn_view module, struct cairn_view name, uint32_t *ret_global) {
    for (uint32_t i = 0; i < CAIRN_COUNT(names); i++) {
        if (!is_text(name, names[i].name) || !is_text(module, names[i].module)) continue;
        *ret_global = i;
        return true;
    }
    return false;
}

/* ---- members of enumerations ---- */

static bool find_member(const struct cairn_pickle_value *from,
                        const struct cairn_pickle_value *member, int64_t *ret_number) {
    if (from->kind != CAIRN_PICKLE_GLOBAL || member->kind != CAIRN_PICKLE_TEXT) return false;
    CAIRN_ASSERT(from->global < CAIRN_COUNT(names));
    for (size_t i = 0; i < CAIRN_COUNT(members); i++) {
        if (strcmp(members[i].enumeration, names[from->global].name) != 0 ||
            !is_text(member->text, members[i].member))
            continue;
        *ret_number = members[i].number;
        return true;
    }
    return false;
}

static bool is_getattr(const struct cairn_pickle *pickle, const struct cairn_pickle_value *value) {
    return value->kind == CAIRN_PICKLE_OBJECT &&
           names[cairn_pickle_at(pickle, value->callable)->global].meaning == CAIRN_TORCH_MEMBER;
}

/* getattr(class, "member") becomes class(number). */
static enum cairn_code settle_member(struct cairn_pickle *pickle, size_t object,
                                     struct cairn_error *err) {
    struct cairn_pickle_value number = {.kind = CAIRN_PICKLE_INTEGER};
    struct cairn_pickle_value tuple = {.kind = CAIRN_PICKLE_TUPLE, .count = 1, .capacity = 1};
    const struct cairn_pickle_value *asked =
        cairn_pickle_at(pickle, pickle->values[object].arguments);
    if (asked->count != 2 ||
        !find_member(cairn_pickle_at(pickle, asked->items[0]),
                     cairn_pickle_at(pickle, asked->items[1]), &number.integer))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "the file asks for builtins.getattr of what is no known enumeration's "
                          "member; nothing is taken from other objects");
    cairn_pickle_ref class = asked->items[0];
    CAIRN_TRY(CAIRN_ARRAY_ROOM_FOR(pickle->values, pickle->count, 2, pickle->capacity, UINT32_MAX,
                                   "values of a pickle", err));
    tuple.items = malloc(sizeof *tuple.items);
    if (!tuple.items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a pickle's value");
    *tuple.items = (cairn_pickle_ref)pickle->count;
    pickle->values[pickle->count++] = number;
    pickle->values[object].callable = class;
    pickle->values[object].arguments = (cairn_pickle_ref)pickle->count;
    pickle->values[pickle->count++] = tuple;
    return CAIRN_OK;
}

enum cairn_code cairn_torch_read_pickle(struct cairn_view bytes, struct cairn_pickle *ret,
                                        struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_read(bytes, is_allowed, ret, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0, count = ret->count; i < count && code == CAIRN_OK; i++)
        if (is_getattr(ret, &ret->values[i])) code = settle_member(ret, i, err);
    if (code != CAIRN_OK) cairn_pickle_release(ret);
    return code;
}
