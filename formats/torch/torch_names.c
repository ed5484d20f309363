/* SPDX-License-Identifier: Apache-2.0 */
/* The Python names that torch files may use, and their meanings. An unlisted name is kept as text,
 * except names that run code, which are refused; no code is ever run. */
#include <stdio.h>
#include <stdlib.h>

#include "api/table/dtype.h"
#include "common/buf.h"
#include "common/text.h"
#include "formats/torch/torch.h"

#define ROW(module, name, meaning, dtype)                                                          \
    { #module, #name, CAIRN_TORCH_##meaning, CAIRN_DTYPE_##dtype }
#define NAME(module, name, meaning) ROW(module, name, meaning, NONE)
#define STORAGE(name, dtype) ROW(torch, name, STORAGE, dtype)
#define DTYPE(name, dtype) ROW(torch, name, DTYPE, dtype)
/* Of Python 3 and 2; of torch 2.5 and later, and before. */
#define BUILTIN(name, meaning) NAME(builtins, name, meaning), NAME(__builtin__, name, meaning)
#define PLACEMENT(name)                                                                            \
    NAME(torch.distributed.tensor.placement_types, name, RECORD),                                  \
        NAME(torch.distributed._tensor.placement_types, name, RECORD)

/* clang-format off */
static const struct cairn_torch_name names[] = {
    NAME(torch._utils, _rebuild_tensor_v2, TENSOR_V2),
    NAME(torch._utils, _rebuild_tensor, TENSOR_V2),
    NAME(torch._utils, _rebuild_tensor_v3, TENSOR_V3),
    NAME(torch._utils, _rebuild_parameter, PARAMETER),
    NAME(torch._utils, _rebuild_parameter_with_state, PARAMETER),
    NAME(torch._tensor, _rebuild_from_type_v2, FROM_TYPE),
    NAME(torch._utils, _rebuild_sparse_tensor, OPAQUE),
    NAME(torch._utils, _rebuild_sparse_csr_tensor, OPAQUE),
    NAME(torch._utils, _rebuild_qtensor, OPAQUE),
    NAME(torch._utils, _rebuild_meta_tensor_no_storage, OPAQUE),
    NAME(torch._utils, _rebuild_wrapper_subclass, OPAQUE),
    NAME(torch.serialization, _get_layout, OPAQUE), NAME(torch, Tensor, OPAQUE),
    NAME(torch.nn.parameter, Parameter, OPAQUE), NAME(torch.nn.parameter, Buffer, OPAQUE),
    STORAGE(FloatStorage, F32), STORAGE(DoubleStorage, F64), STORAGE(HalfStorage, F16),
    STORAGE(BFloat16Storage, BF16), STORAGE(LongStorage, I64), STORAGE(IntStorage, I32),
    STORAGE(ShortStorage, I16), STORAGE(CharStorage, I8), STORAGE(ByteStorage, U8),
    STORAGE(BoolStorage, BOOL), STORAGE(ComplexFloatStorage, C64),
    STORAGE(ComplexDoubleStorage, C128), STORAGE(QInt8Storage, QI8), STORAGE(QUInt8Storage, QU8),
    STORAGE(QInt32Storage, QI32), STORAGE(QUInt4x2Storage, QU4X2), STORAGE(QUInt2x4Storage, QU2X4),
    STORAGE(UntypedStorage, NONE),
    NAME(torch.storage, UntypedStorage, STORAGE),
    DTYPE(float32, F32), DTYPE(float64, F64), DTYPE(float16, F16), DTYPE(bfloat16, BF16),
    DTYPE(int64, I64), DTYPE(int32, I32), DTYPE(int16, I16), DTYPE(int8, I8), DTYPE(uint8, U8),
    DTYPE(uint16, U16), DTYPE(uint32, U32), DTYPE(uint64, U64),
    ROW(torch, bool, DTYPE, BOOL), /* bool is a macro */
    DTYPE(complex32, C32), DTYPE(complex64, C64), DTYPE(complex128, C128),
    DTYPE(float8_e5m2, F8_E5M2), DTYPE(float8_e4m3fn, F8_E4M3), DTYPE(float8_e8m0fnu, F8_E8M0),
    DTYPE(float8_e4m3fnuz, F8_E4M3FNUZ), DTYPE(float8_e5m2fnuz, F8_E5M2FNUZ),
    DTYPE(float4_e2m1fn_x2, F4X2), DTYPE(bits1x8, BITS1X8), DTYPE(bits2x4, BITS2X4),
    DTYPE(bits4x2, BITS4X2), DTYPE(bits8, BITS8), DTYPE(bits16, BITS16),
    NAME(torch, Size, SEQUENCE), NAME(torch, device, OPAQUE),
    BUILTIN(set, SEQUENCE), BUILTIN(frozenset, SEQUENCE), BUILTIN(list, SEQUENCE),
    BUILTIN(tuple, SEQUENCE),
    NAME(collections, OrderedDict, MAP), NAME(collections, defaultdict, MAP),
    NAME(collections, Counter, MAP),
    BUILTIN(dict, MAP),
    NAME(argparse, Namespace, RECORD), NAME(types, SimpleNamespace, RECORD),
    BUILTIN(bytearray, ENCODED), BUILTIN(bytes, ENCODED),
    NAME(_codecs, encode, ENCODED),
    BUILTIN(complex, OPAQUE), BUILTIN(slice, OPAQUE),
    NAME(datetime, datetime, OPAQUE), NAME(datetime, timedelta, OPAQUE),
    NAME(pathlib, PosixPath, OPAQUE), NAME(pathlib, PurePosixPath, OPAQUE),
    NAME(numpy, dtype, OPAQUE), NAME(numpy, ndarray, OPAQUE),
    NAME(numpy.core.multiarray, _reconstruct, OPAQUE), NAME(numpy.core.multiarray, scalar, OPAQUE),
    NAME(numpy._core.multiarray, _reconstruct, OPAQUE),
    NAME(numpy._core.multiarray, scalar, OPAQUE),
    NAME(deepspeed.runtime.fp16.loss_scaler, LossScaler, RECORD),
    NAME(deepspeed.runtime.fp16.loss_scaler, DynamicLossScaler, RECORD),
    NAME(deepspeed.runtime.zero.config, ZeroStageEnum, SEQUENCE),
    NAME(deepspeed.utils.tensor_fragment, fragment_address, SEQUENCE),
    NAME(torch.distributed.checkpoint.metadata, Metadata, RECORD),
    NAME(torch.distributed.checkpoint.metadata, MetadataIndex, RECORD),
    NAME(torch.distributed.checkpoint.metadata, TensorStorageMetadata, RECORD),
    NAME(torch.distributed.checkpoint.metadata, BytesStorageMetadata, RECORD),
    NAME(torch.distributed.checkpoint.metadata, ChunkStorageMetadata, RECORD),
    NAME(torch.distributed.checkpoint.metadata, TensorProperties, RECORD),
    NAME(torch.distributed.checkpoint.metadata, StorageMeta, RECORD),
    NAME(torch.distributed.checkpoint.metadata, _MEM_FORMAT_ENCODING, OPAQUE),
    NAME(torch.distributed.checkpoint.filesystem, _StorageInfo, RECORD),
    NAME(torch.distributed._shard.sharded_tensor.metadata, TensorProperties, RECORD),
    NAME(torch.distributed._shard.sharded_tensor.metadata, MEM_FORMAT_ENCODING, OPAQUE),
    NAME(torch.distributed.tensor, DTensor, SHARDED),
    NAME(torch.distributed.tensor._api, DTensor, SHARDED),
    NAME(torch.distributed._tensor, DTensor, SHARDED),
    NAME(torch.distributed._tensor.api, DTensor, SHARDED),
    NAME(torch.distributed._shard.sharded_tensor.api, ShardedTensor, SHARDED),
    NAME(torch.distributed.tensor._dtensor_spec, DTensorSpec, RECORD),
    NAME(torch.distributed.tensor._dtensor_spec, TensorMeta, SEQUENCE),
    NAME(torch.distributed._tensor.placement_types, DTensorSpec, RECORD),
    NAME(torch.distributed._tensor.placement_types, TensorMeta, SEQUENCE),
    NAME(torch.distributed._tensor._dtensor_spec, DTensorSpec, RECORD),
    NAME(torch.distributed._tensor._dtensor_spec, TensorMeta, SEQUENCE),
    NAME(torch.distributed.tensor._dtensor_spec, ShardOrderEntry, SEQUENCE),
    PLACEMENT(Shard), PLACEMENT(_StridedShard), PLACEMENT(Replicate), PLACEMENT(Partial),
    PLACEMENT(_Partial),
    NAME(torch.distributed.device_mesh, DeviceMesh, RECORD),
    NAME(torch.distributed._tensor.device_mesh, DeviceMesh, RECORD),
    NAME(torch.distributed._mesh_layout, _MeshLayout, RECORD),
    NAME(torch.distributed._mesh_layout, _FlatLayout, RECORD),
    NAME(torch.distributed._shard.sharded_tensor.shard, Shard, RECORD),
    NAME(torch.distributed._shard.metadata, ShardMetadata, RECORD),
    NAME(torch.distributed._shard.sharded_tensor.metadata, ShardedTensorMetadata, RECORD),
    NAME(torch.distributed._shard.sharding_spec.api, EnumerableShardingSpec, RECORD),
    NAME(torch.distributed._shard.sharding_spec.chunk_sharding_spec, ChunkShardingSpec, RECORD),
    NAME(torch.distributed.remote_device, _remote_device, RECORD),
    BUILTIN(getattr, MEMBER),
};
/* clang-format on */

/* Python 3.11.0 to 3.11.3 writes an enumeration's member as getattr(class, "member"), other
 * versions as class(number). Their other attributes are refused. */
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

bool cairn_torch_is_member(const struct cairn_pickle *values,
                           const struct cairn_pickle_value *value) {
    const struct cairn_torch_name *maker = cairn_torch_maker(values, value);
    return maker && maker->meaning == CAIRN_TORCH_MEMBER;
}

bool cairn_torch_is_foreign(const struct cairn_torch_name *name) {
    static const char package[] = "deepspeed.";
    return strncmp(name->module, package, sizeof package - 1) == 0;
}

/* ---- unlisted names ---- */

/* Modules with all that is in them, and names, which run code when they are called. */
/* clang-format off */
static const char *const running[] = {
    "os", "posix", "nt", "subprocess", "_posixsubprocess", "commands", "popen2", "pty", "sys",
    "shutil", "socket", "_socket", "runpy", "code", "codeop", "importlib", "imp", "ctypes",
    "_ctypes", "pickle", "_pickle", "cPickle", "marshal", "webbrowser", "pip", "pdb", "bdb",
    "timeit", "trace", "profile", "cProfile", "doctest", "urllib", "urllib2", "requests", "http",
    "httplib", "ftplib", "smtplib", "poplib", "imaplib", "telnetlib", "xmlrpc", "aiohttp", "httpx",
    "asyncio", "multiprocessing.util", "pkgutil", "zipimport", "_frozen_importlib",
    "_frozen_importlib_external", "distutils", "setuptools", "ensurepip", "venv", "idlelib",
    "lib2to3", "test", "builtins.apply", "builtins.eval", "builtins.exec", "builtins.execfile",
    "builtins.open", "builtins.compile", "builtins.__import__", "builtins.setattr",
    "builtins.delattr", "builtins.globals", "builtins.locals", "builtins.vars", "builtins.input",
    "builtins.breakpoint", "io.open", "_io.open", "types.CodeType", "types.FunctionType",
    "operator.attrgetter", "operator.methodcaller", "_operator.attrgetter",
    "_operator.methodcaller", "io.FileIO", "_io.FileIO", "shelve", "fileinput",
    "uuid._get_command_stdout", "numpy.ctypeslib", "torch.ops", "torch.classes", "torch.load", "torch.serialization.load",
    "torch.jit.load", "torch.storage._load_from_bytes", "torch.hub", "torch.distributed.rpc",
    "torch._dynamo.guards", "torch._inductor.codecache", "torch.utils._config_module",
    "torch.utils.collect_env", "torch.utils.cpp_extension", "numpy.load", "numpy.testing",
    "numpy.f2py", "joblib.load", "dill.load", "dill.loads", "dill._dill.load", "dill._dill.loads",
    "cloudpickle.load", "cloudpickle.loads", "cloudpickle.cloudpickle.load",
    "cloudpickle.cloudpickle.loads", "platform.popen", "logging.config", "pydoc", "cgitb",
};
/* clang-format on */

static bool is_first_part(struct cairn_view text, const char *part) {
    size_t size = strlen(part);
    return text.size >= size && memcmp(text.data, part, size) == 0 &&
           (text.size == size || ((const char *)text.data)[size] == '.');
}

/* Modules that other modules import: torch.serialization has os, and so os.system. */
static bool is_module_inside(struct cairn_view name) {
    static const char *const modules[] = {
        "os",    "posix",  "nt",     "subprocess", "sys", "shutil",   "socket",      "importlib",
        "runpy", "ctypes", "pickle", "marshal",    "pty", "builtins", "__builtins__"};
    for (size_t i = 0; i < CAIRN_COUNT(modules); i++)
        if (is_first_part(name, modules[i])) return true;
    return false;
}

/* print.__class__.__base__.__subclasses__: members by which any object leads to code. */
static bool has_special_member(struct cairn_view name) {
    const char *text = name.data;
    for (size_t begin = 0, end; begin < name.size; begin = end + 1) {
        const char *dot = memchr(text + begin, '.', name.size - begin);
        end = dot ? (size_t)(dot - text) : name.size;
        if (begin && end - begin > 4 && memcmp(text + begin, "__", 2) == 0 &&
            memcmp(text + end - 2, "__", 2) == 0)
            return true;
    }
    return false;
}

static bool is_running(struct cairn_view module, struct cairn_view name) {
    if (is_module_inside(name) || has_special_member(name)) return true;
    if (is_text(module, "__builtin__")) module = CAIRN_VIEW("builtins");
    if (is_text(module, "builtins") && name.size > 2 && memcmp(name.data, "__", 2) == 0)
        return true;
    for (size_t i = 0; i < CAIRN_COUNT(running); i++) {
        const char *entry = running[i];
        bool longer = strlen(entry) > module.size && entry[module.size] == '.' &&
                      memcmp(entry, module.data, module.size) == 0;
        if (longer ? is_first_part(name, entry + module.size + 1) : is_first_part(module, entry))
            return true;
    }
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
    static const char *const kinds[] = {
        [CAIRN_PICKLE_DICT] = "dict",   [CAIRN_PICKLE_LIST] = "list", [CAIRN_PICKLE_SET] = "set",
        [CAIRN_PICKLE_TUPLE] = "tuple", [CAIRN_PICKLE_TEXT] = "str",  [CAIRN_PICKLE_REAL] = "float",
        [CAIRN_PICKLE_BYTES] = "bytes", [CAIRN_PICKLE_LONG] = "int",  [CAIRN_PICKLE_BOOL] = "bool",
        [CAIRN_PICKLE_INTEGER] = "int",
    };
    bool builtin = value->kind < CAIRN_COUNT(kinds) && kinds[value->kind];
    snprintf(ret, CAIRN_TORCH_CLASS_BYTES, "%s", builtin ? kinds[value->kind] : "storage");
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

static bool is_enumeration(const struct cairn_pickle_value *from) {
    if (from->kind != CAIRN_PICKLE_GLOBAL || from->global >= CAIRN_COUNT(names)) return false;
    for (size_t i = 0; i < CAIRN_COUNT(members); i++)
        if (strcmp(members[i].enumeration, names[from->global].name) == 0) return true;
    return false;
}

/* A method or member of an object (a bound method of a trainer's, a class in a class) is opaque.
 * Names with two underscores are the way from an object to code: of these __new__ alone, which
 * pickle calls of classes with named arguments. Strictly: ShardedTensor.ProcessGroupState alone. */
static bool is_opaque(const struct cairn_pickle *pickle, const struct cairn_pickle_value *asked,
                      bool strict) {
    if (asked->kind != CAIRN_PICKLE_TUPLE || asked->count != 2) return false;
    const struct cairn_pickle_value *from = cairn_pickle_at(pickle, asked->items[0]);
    const struct cairn_pickle_value *name = cairn_pickle_at(pickle, asked->items[1]);
    if (name->kind != CAIRN_PICKLE_TEXT) return false;
    if (name->text.size > 1 && memcmp(name->text.data, "__", 2) == 0 &&
        !is_text(name->text, "__new__"))
        return false;
    if (!strict) return !is_enumeration(from);
    return from->kind == CAIRN_PICKLE_GLOBAL && from->global < CAIRN_COUNT(names) &&
           names[from->global].meaning == CAIRN_TORCH_SHARDED;
}

/* Turns getattr(class, "member") into class(number). */
static enum cairn_code settle_member(struct cairn_pickle *pickle, size_t object, bool strict,
                                     struct cairn_error *err) {
    struct cairn_pickle_value number = {.kind = CAIRN_PICKLE_INTEGER};
    struct cairn_pickle_value tuple = {.kind = CAIRN_PICKLE_TUPLE, .count = 1, .capacity = 1};
    const struct cairn_pickle_value *asked =
        cairn_pickle_at(pickle, pickle->values[object].arguments);
    if (is_opaque(pickle, asked, strict)) return CAIRN_OK;
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
        if (cairn_torch_is_member(ret, &ret->values[i])) code = settle_member(ret, i, strict, err);
    if (code != CAIRN_OK) cairn_pickle_release(ret);
    return code;
}
