/* SPDX-License-Identifier: Apache-2.0 */
/* The Python names that torch files may use, and their meanings. An unlisted name is kept as text,
 * except names that run code, which are refused; no code is ever run. */
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/torch/torch.h"

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
    NAME(torch, QInt8Storage, STORAGE, QI8),
    NAME(torch, QUInt8Storage, STORAGE, QU8),
    NAME(torch, QInt32Storage, STORAGE, QI32),
    NAME(torch, QUInt4x2Storage, STORAGE, QU4X2),
    NAME(torch, QUInt2x4Storage, STORAGE, QU2X4),
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
    NAME(torch.distributed._shard.sharded_tensor.metadata, TensorProperties, RECORD, NONE),
    NAME(torch.distributed._shard.sharded_tensor.metadata, MEM_FORMAT_ENCODING, OPAQUE, NONE),

    NAME(torch.distributed.tensor, DTensor, SHARDED, NONE),
    NAME(torch.distributed.tensor._api, DTensor, SHARDED, NONE),
    NAME(torch.distributed._tensor, DTensor, SHARDED, NONE),
    NAME(torch.distributed._tensor.api, DTensor, SHARDED, NONE),
    NAME(torch.distributed._shard.sharded_tensor.api, ShardedTensor, SHARDED, NONE),
    NAME(torch.distributed.tensor._dtensor_spec, DTensorSpec, RECORD, NONE),
    NAME(torch.distributed.tensor._dtensor_spec, TensorMeta, SEQUENCE, NONE),
    NAME(torch.distributed._tensor.placement_types, DTensorSpec, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, TensorMeta, SEQUENCE, NONE),
    NAME(torch.distributed._tensor._dtensor_spec, DTensorSpec, RECORD, NONE),
    NAME(torch.distributed._tensor._dtensor_spec, TensorMeta, SEQUENCE, NONE),
    NAME(torch.distributed.tensor._dtensor_spec, ShardOrderEntry, SEQUENCE, NONE),
    NAME(torch.distributed.tensor.placement_types, Shard, RECORD, NONE),
    NAME(torch.distributed.tensor.placement_types, _StridedShard, RECORD, NONE),
    NAME(torch.distributed.tensor.placement_types, Replicate, RECORD, NONE),
    NAME(torch.distributed.tensor.placement_types, Partial, RECORD, NONE),
    NAME(torch.distributed.tensor.placement_types, _Partial, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, Shard, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, _StridedShard, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, Replicate, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, Partial, RECORD, NONE),
    NAME(torch.distributed._tensor.placement_types, _Partial, RECORD, NONE),
    NAME(torch.distributed.device_mesh, DeviceMesh, RECORD, NONE),
    NAME(torch.distributed._tensor.device_mesh, DeviceMesh, RECORD, NONE),
    NAME(torch.distributed._mesh_layout, _MeshLayout, RECORD, NONE),
    NAME(torch.distributed._mesh_layout, _FlatLayout, RECORD, NONE),
    NAME(torch.distributed._shard.sharded_tensor.shard, Shard, RECORD, NONE),
    NAME(torch.distributed._shard.metadata, ShardMetadata, RECORD, NONE),
    NAME(torch.distributed._shard.sharded_tensor.metadata, ShardedTensorMetadata, RECORD, NONE),
    NAME(torch.distributed._shard.sharding_spec.api, EnumerableShardingSpec, RECORD, NONE),
    NAME(torch.distributed._shard.sharding_spec.chunk_sharding_spec, ChunkShardingSpec, RECORD,
         NONE),
    NAME(torch.distributed.remote_device, _remote_device, RECORD, NONE),

    NAME(builtins, getattr, MEMBER, NONE),
    NAME(__builtin__, getattr, MEMBER, NONE),
};

/* Python 3.11.0 to 3.11.3 writes an enumeration's member as getattr(class, "member"), other
 * versions as class(number). Unlisted attributes of a class are refused. */
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
    {"MEM_FORMAT_ENCODING", "TORCH_CONTIGUOUS_FORMAT", 0},
    {"MEM_FORMAT_ENCODING", "TORCH_CHANNELS_LAST", 1},
    {"MEM_FORMAT_ENCODING", "TORCH_PRESERVE_FORMAT", 2},
};

static bool is_text(struct cairn_view view, const char *text) {
    return view.size == strlen(text) && memcmp(view.data, text, view.size) == 0;
}

const struct cairn_torch_name *cairn_torch_name_at(uint32_t global) {
    return global < CAIRN_COUNT(names) ? &names[global] : NULL;
}

const struct cairn_torch_name *cairn_torch_name_of(const struct cairn_pickle *values,
                                                   cairn_pickle_ref ref) {
    const struct cairn_pickle_value *value = cairn_pickle_at(values, ref);
    return value->kind == CAIRN_PICKLE_GLOBAL ? cairn_torch_name_at(value->global) : NULL;
}

const struct cairn_torch_name *cairn_torch_maker(const struct cairn_pickle *values,
                                                 const struct cairn_pickle_value *object) {
    return object->kind == CAIRN_PICKLE_OBJECT ? cairn_torch_name_of(values, object->callable)
                                               : NULL;
}

bool cairn_torch_is_foreign(const struct cairn_torch_name *name) {
    static const char package[] = "deepspeed.";
    return strncmp(name->module, package, sizeof package - 1) == 0;
}

/* ---- unlisted names ---- */

/* Names that run code when called. A module without a name includes its submodules. */
static const struct {
    const char *module, *name;
} running[] = {
    {"os", NULL},
    {"posix", NULL},
    {"nt", NULL},
    {"subprocess", NULL},
    {"_posixsubprocess", NULL},
    {"commands", NULL},
    {"popen2", NULL},
    {"pty", NULL},
    {"sys", NULL},
    {"shutil", NULL},
    {"socket", NULL},
    {"_socket", NULL},
    {"runpy", NULL},
    {"code", NULL},
    {"codeop", NULL},
    {"importlib", NULL},
    {"imp", NULL},
    {"ctypes", NULL},
    {"_ctypes", NULL},
    {"pickle", NULL},
    {"_pickle", NULL},
    {"cPickle", NULL},
    {"marshal", NULL},
    {"webbrowser", NULL},
    {"pip", NULL},
    {"pdb", NULL},
    {"bdb", NULL},
    {"timeit", NULL},
    {"trace", NULL},
    {"profile", NULL},
    {"cProfile", NULL},
    {"doctest", NULL},
    {"urllib", NULL},
    {"urllib2", NULL},
    {"requests", NULL},
    {"http", NULL},
    {"httplib", NULL},
    {"ftplib", NULL},
    {"smtplib", NULL},
    {"poplib", NULL},
    {"imaplib", NULL},
    {"telnetlib", NULL},
    {"xmlrpc", NULL},
    {"aiohttp", NULL},
    {"httpx", NULL},
    {"asyncio", NULL},
    {"multiprocessing.util", NULL},
    {"pkgutil", NULL},
    {"zipimport", NULL},
    {"_frozen_importlib", NULL},
    {"_frozen_importlib_external", NULL},
    {"distutils", NULL},
    {"setuptools", NULL},
    {"ensurepip", NULL},
    {"venv", NULL},
    {"idlelib", NULL},
    {"lib2to3", NULL},
    {"test", NULL},
    {"builtins", "apply"},
    {"builtins", "eval"},
    {"builtins", "exec"},
    {"builtins", "execfile"},
    {"builtins", "open"},
    {"builtins", "compile"},
    {"builtins", "__import__"},
    {"builtins", "setattr"},
    {"builtins", "delattr"},
    {"builtins", "globals"},
    {"builtins", "locals"},
    {"builtins", "vars"},
    {"builtins", "input"},
    {"builtins", "breakpoint"},
    {"io", "open"},
    {"_io", "open"},
    {"types", "CodeType"},
    {"types", "FunctionType"},
    {"operator", "attrgetter"},
    {"operator", "methodcaller"},
    {"torch", "load"},
    {"torch.serialization", "load"},
    {"torch.jit", "load"},
    {"torch.storage", "_load_from_bytes"},
    {"torch.hub", NULL},
    {"torch.distributed.rpc", NULL},
    {"torch._dynamo.guards", NULL},
    {"torch._inductor.codecache", NULL},
    {"torch.utils._config_module", NULL},
    {"torch.utils.collect_env", NULL},
    {"torch.utils.cpp_extension", NULL},
    {"numpy", "load"},
    {"numpy.testing", NULL},
    {"numpy.f2py", NULL},
    {"joblib", "load"},
    {"dill", "load"},
    {"dill", "loads"},
    {"dill._dill", "load"},
    {"dill._dill", "loads"},
    {"cloudpickle", "load"},
    {"cloudpickle", "loads"},
    {"cloudpickle.cloudpickle", "load"},
    {"cloudpickle.cloudpickle", "loads"},
    {"platform", "popen"},
    {"logging.config", NULL},
    {"pydoc", NULL},
    {"cgitb", NULL},
};

static bool is_first_part(struct cairn_view text, const char *part) {
    size_t size = strlen(part);
    return text.size >= size && memcmp(text.data, part, size) == 0 &&
           (text.size == size || ((const char *)text.data)[size] == '.');
}

static bool is_running(struct cairn_view module, struct cairn_view name) {
    if (is_text(module, "__builtin__")) module = CAIRN_VIEW("builtins");
    for (size_t i = 0; i < CAIRN_COUNT(running); i++)
        if (running[i].name
                ? is_text(module, running[i].module) && is_first_part(name, running[i].name)
                : is_first_part(module, running[i].module))
            return true;
    return false;
}

static enum cairn_pickle_verdict judge(struct cairn_view module, struct cairn_view name,
                                       uint32_t *ret_global, const char **ret_why) {
    for (uint32_t i = 0; i < CAIRN_COUNT(names); i++) {
        if (!is_text(name, names[i].name) || !is_text(module, names[i].module)) continue;
        *ret_global = i;
        return CAIRN_PICKLE_KNOWN;
    }
    if (!is_running(module, name)) return CAIRN_PICKLE_UNKNOWN;
    *ret_why = "which runs code when Python loads the file: DO NOT LOAD IT. Nothing was run, and "
               "nothing is taken from it";
    return CAIRN_PICKLE_REFUSED;
}

static enum cairn_pickle_verdict judge_strictly(struct cairn_view module, struct cairn_view name,
                                                uint32_t *ret_global, const char **ret_why) {
    enum cairn_pickle_verdict verdict = judge(module, name, ret_global, ret_why);
    if (verdict != CAIRN_PICKLE_UNKNOWN) return verdict;
    *ret_why = "which is not among the names that a checkpoint needs; it was not run";
    return CAIRN_PICKLE_REFUSED;
}

/* The element type or storage class of an unreadable tensor, if that is unknown. */
static const struct cairn_pickle_value *element_class(const struct cairn_pickle *values,
                                                      const struct cairn_torch_name *maker,
                                                      const struct cairn_pickle_value *arguments) {
    bool third = maker && maker->meaning == CAIRN_TORCH_TENSOR_V3;
    if (!third && !(maker && maker->meaning == CAIRN_TORCH_TENSOR_V2)) return NULL;
    if (arguments->kind != CAIRN_PICKLE_TUPLE || arguments->count < (third ? 7 : 1)) return NULL;
    const struct cairn_pickle_value *type =
        cairn_pickle_at(values, arguments->items[third ? 6 : 0]);
    if (third && cairn_pickle_unknown_at(values, type)) return type;
    const struct cairn_pickle_value *storage = cairn_pickle_at(values, arguments->items[0]);
    if (storage->kind != CAIRN_PICKLE_PERSISTENT) return NULL;
    const struct cairn_pickle_value *id = cairn_pickle_at(values, storage->arguments);
    if (id->kind != CAIRN_PICKLE_TUPLE || id->count < 2) return NULL;
    type = cairn_pickle_at(values, id->items[1]);
    return cairn_pickle_unknown_at(values, type) ? type : NULL;
}

/* The class behind copyreg's helpers, a member's enumeration, the subclass of Tensor. */
static const struct cairn_pickle_value *class_of(const struct cairn_pickle *values,
                                                 const struct cairn_pickle_value *value) {
    static const char *const helpers[] = {"_reconstructor", "__newobj__", "__newobj_ex__"};
    for (int i = 0; value->kind == CAIRN_PICKLE_OBJECT && i < 8; i++) {
        const struct cairn_pickle_value *made = cairn_pickle_at(values, value->callable);
        const struct cairn_pickle_value *arguments = cairn_pickle_at(values, value->arguments);
        const struct cairn_pickle_unknown *unknown = cairn_pickle_unknown_at(values, made);
        const struct cairn_torch_name *known = cairn_torch_maker(values, value);
        bool helper = known && known->meaning == CAIRN_TORCH_MEMBER;
        bool subclass = known && known->meaning == CAIRN_TORCH_FROM_TYPE;
        for (size_t h = 0; unknown && h < CAIRN_COUNT(helpers); h++)
            helper |= is_text(unknown->name, helpers[h]);
        const struct cairn_pickle_value *type = element_class(values, known, arguments);
        value = type ? type : made;
        if ((helper || subclass) && arguments->count > subclass)
            value = cairn_pickle_at(values, arguments->items[subclass]);
    }
    return value;
}

void cairn_torch_unknown_text(const struct cairn_pickle_unknown *unknown,
                              char ret[CAIRN_TORCH_CLASS_BYTES]) {
    char text[CAIRN_TORCH_CLASS_BYTES];
    snprintf(text, sizeof text, "%.*s.%.*s", (int)cairn_min_u64(unknown->module.size, 120),
             (const char *)unknown->module.data, (int)cairn_min_u64(unknown->name.size, 120),
             (const char *)unknown->name.data);
    snprintf(ret, CAIRN_TORCH_CLASS_BYTES, "%s", cairn_short(text).text);
}

void cairn_torch_class_text(const struct cairn_pickle *values, cairn_pickle_ref ref,
                            char ret[CAIRN_TORCH_CLASS_BYTES]) {
    const struct cairn_pickle_value *value = class_of(values, cairn_pickle_at(values, ref));
    const struct cairn_torch_name *known =
        value->kind == CAIRN_PICKLE_GLOBAL ? cairn_torch_name_at(value->global) : NULL;
    snprintf(ret, CAIRN_TORCH_CLASS_BYTES, "storage");
    if (known) snprintf(ret, CAIRN_TORCH_CLASS_BYTES, "%s.%s", known->module, known->name);
    if (cairn_pickle_unknown_at(values, value))
        cairn_torch_unknown_text(cairn_pickle_unknown_at(values, value), ret);
}

static bool find_member(const struct cairn_pickle_value *from,
                        const struct cairn_pickle_value *member, int64_t *ret_number) {
    if (from->kind != CAIRN_PICKLE_GLOBAL || member->kind != CAIRN_PICKLE_TEXT) return false;
    if (from->global >= CAIRN_COUNT(names)) return false; /* unknown */
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
    const struct cairn_torch_name *maker = cairn_torch_maker(pickle, value);
    return maker && maker->meaning == CAIRN_TORCH_MEMBER;
}

/* A member or method of an unknown class, or a class nested in a tensor class, is unknown too. */
static bool is_of_unknown(const struct cairn_pickle *pickle,
                          const struct cairn_pickle_value *asked) {
    if (asked->kind != CAIRN_PICKLE_TUPLE || asked->count != 2) return false;
    const struct cairn_pickle_value *from = cairn_pickle_at(pickle, asked->items[0]);
    const struct cairn_pickle_value *name = cairn_pickle_at(pickle, asked->items[1]);
    if (name->kind != CAIRN_PICKLE_TEXT ||
        (name->text.size > 1 && memcmp(name->text.data, "__", 2) == 0))
        return false;
    if (from->kind == CAIRN_PICKLE_OBJECT) from = cairn_pickle_at(pickle, from->callable);
    if (from->kind == CAIRN_PICKLE_GLOBAL && from->global < CAIRN_COUNT(names) &&
        names[from->global].meaning == CAIRN_TORCH_SHARDED)
        return true; /* ShardedTensor.ProcessGroupState */
    return cairn_pickle_unknown_at(pickle, from) != NULL;
}

/* Turns getattr(class, "member") into class(number). */
static enum cairn_code settle_member(struct cairn_pickle *pickle, size_t object,
                                     struct cairn_error *err) {
    struct cairn_pickle_value number = {.kind = CAIRN_PICKLE_INTEGER};
    struct cairn_pickle_value tuple = {.kind = CAIRN_PICKLE_TUPLE, .count = 1, .capacity = 1};
    const struct cairn_pickle_value *asked =
        cairn_pickle_at(pickle, pickle->values[object].arguments);
    if (is_of_unknown(pickle, asked)) return CAIRN_OK;
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

enum cairn_code cairn_torch_read_pickle(struct cairn_view bytes, bool strict,
                                        struct cairn_pickle *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_pickle_read(bytes, strict ? judge_strictly : judge, ret, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0, count = ret->count; i < count && code == CAIRN_OK; i++)
        if (is_getattr(ret, &ret->values[i])) code = settle_member(ret, i, err);
    if (code != CAIRN_OK) cairn_pickle_release(ret);
    return code;
}
