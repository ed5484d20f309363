/* SPDX-License-Identifier: Apache-2.0 */
/* Files that torch wrote (tests/vectors/torch/make.py): names, shapes and every byte of each tensor
 * as torch says; and the same files cut and changed everywhere. */
#include <jansson.h>

#include "api/table/dtype.h"
#include "formats/assembly/assembly.h"
#include "formats/torch/torch.h"
#include "tests/harness.h"

#define VECTORS "tests/vectors/torch/"

static enum cairn_code load(const char *name, struct cairn_buf *ret, struct cairn_error *err) {
    const char *path = TEXT(VECTORS "%s", name);
    return cairn_file_load(cairn_test_file(path), ret, err);
}

/* ---- what a file holds, as rows to be compared ---- */

struct rows {
    const struct cairn_torch *file;
    const json_t *tensors, *values; /* expected; NULL: only looked at */
    size_t tensor_count, value_count;
};

/* One element's bytes as hex, at its place by the strides. */
static enum cairn_code hex_of(const struct cairn_torch *file,
                              const struct cairn_torch_tensor *tensor, struct cairn_buf *ret,
                              struct cairn_error *err) {
    uint64_t storage = 0, index[CAIRN_DIMENSIONS_MAX] = {0};
    unsigned width = cairn_dtype_bits(tensor->dtype) / 8;
    CAIRN_TRY(cairn_torch_storage_at(file, tensor, &storage, err));
    for (uint64_t i = 0; i < tensor->elements; i++) {
        uint8_t element[8];
        uint64_t at = 0;
        for (unsigned d = 0; d < tensor->dimension_count; d++) at += index[d] * tensor->stride[d];
        CAIRN_TRY(cairn_input_read(file->input, storage + tensor->offset_bytes + at * width,
                                   element, width, err));
        for (unsigned b = 0; b < width; b++)
            CAIRN_TRY(cairn_buf_printf(ret, err, "%02x", element[b]));
        for (unsigned d = tensor->dimension_count; d-- > 0 && ++index[d] == tensor->shape[d];)
            index[d] = 0;
    }
    return cairn_buf_append(ret, "", 0, err);
}

static enum cairn_code see_tensor(struct rows *rows, const char *path, cairn_pickle_ref ref,
                                  struct cairn_error *err) {
    struct cairn_torch_tensor tensor;
    CAIRN_AUTO(buf) hex = {.limit = CAIRN_MIB};
    CAIRN_TRY(cairn_torch_tensor(rows->file, ref, &tensor, err));
    if (tensor.elements > 4096) return CAIRN_OK; /* a changed stride of 0 makes much of little */
    CAIRN_TRY(hex_of(rows->file, &tensor, &hex, err));
    if (!rows->tensors) return CAIRN_OK;
    const json_t *row = json_array_get(rows->tensors, rows->tensor_count++);
    const json_t *shape = json_object_get(row, "shape");
    EXPECT_EQ_TEXT(path, json_string_value(json_object_get(row, "name")));
    EXPECT_EQ_TEXT(cairn_dtype_text(tensor.dtype),
                   json_string_value(json_object_get(row, "dtype")));
    EXPECT_EQ_TEXT(hex.data ? hex.data : "", json_string_value(json_object_get(row, "hex")));
    EXPECT_EQ_U64(tensor.dimension_count, json_array_size(shape));
    for (unsigned d = 0; d < tensor.dimension_count; d++)
        EXPECT_EQ_U64(tensor.shape[d], json_integer_value(json_array_get(shape, d)));
    return CAIRN_OK;
}

static enum cairn_code see(void *context, const char *path, enum cairn_torch_kind kind,
                           cairn_pickle_ref ref, struct cairn_error *err) {
    struct rows *rows = context;
    if (kind == CAIRN_TORCH_LEAF_TENSOR) return see_tensor(rows, path, ref, err);
    if (!rows->values) return CAIRN_OK;
    const json_t *row = json_array_get(rows->values, rows->value_count++);
    EXPECT_EQ_TEXT(path, json_string_value(json_object_get(row, "name")));
    return CAIRN_OK;
}

static enum cairn_code look(struct cairn_view bytes, struct rows *rows, struct cairn_error *err) {
    struct cairn_input input = cairn_input_of_view(&bytes);
    CAIRN_AUTO(torch) file = {0};
    CAIRN_TRY(cairn_torch_open(&input, false, &file, err));
    rows->file = &file;
    return cairn_torch_walk(&file, see, rows, err);
}

TEST(every_tensor_that_torch_wrote_is_found_with_its_bytes, err) {
    json_error_t where;
    json_t *expected = json_load_file(cairn_test_file(VECTORS "expected.json"), 0, &where);
    const char *name;
    json_t *content;
    REQUIRE(expected != NULL);
    EXPECT_EQ_U64(json_object_size(json_object_get(expected, "files")), 8);
    json_object_foreach(json_object_get(expected, "files"), name, content) {
        CAIRN_AUTO(buf) bytes = {0};
        struct rows rows = {.tensors = json_object_get(content, "tensors"),
                            .values = json_object_get(content, "values")};
        enum cairn_code code = load(name, &bytes, &err);
        if (code == CAIRN_OK) code = look(cairn_buf_view(&bytes), &rows, &err);
        cairn_test_check(code == CAIRN_OK, __FILE__, __LINE__, "%s: %s", name, err.message);
        EXPECT_EQ_U64(rows.tensor_count, json_array_size(rows.tensors));
        EXPECT_EQ_U64(rows.value_count, json_array_size(rows.values));
    }
    json_decref(expected);
}

static const char *const small[] = {"protocol2.pt", "protocol5.pt", "legacy.pt", "without_crc.pt"};

TEST(a_file_that_is_cut_anywhere_is_refused) {
    for (size_t f = 0; f < CAIRN_COUNT(small); f++) {
        struct cairn_error err = {0};
        WITH_OK(buf, bytes, load(small[f], &bytes, &err));
        for (size_t size = 0; size < bytes.size; size++) {
            struct rows rows = {0};
            /* A copy of that size, so that a byte behind it is not there to be read. */
            CAIRN_AUTO_HEAP char *cut = malloc(size + 1);
            REQUIRE(cut != NULL);
            memcpy(cut, bytes.data, size);
            enum cairn_code code = look((struct cairn_view){cut, size}, &rows, &err);
            if (!cairn_test_check(code == CAIRN_INVALID && err.message[0], __FILE__, __LINE__,
                                  "%s cut at %zu: %s %s", small[f], size,
                                  cairn_code_info(code)->name, err.message))
                return;
        }
    }
}

/* What a changed byte means nobody can say; it ends, inside the file, and a refusal says why. */
TEST(a_file_with_any_byte_changed_ends_with_an_answer) {
    for (size_t f = 0; f < CAIRN_COUNT(small); f++) {
        struct cairn_error err = {0};
        size_t refused = 0;
        WITH_OK(buf, bytes, load(small[f], &bytes, &err));
        for (size_t at = 0; at < bytes.size; at++) {
            EACH_OF(uint8_t, one, 0x01, 0x80, 0xff) {
                struct rows rows = {0};
                bytes.data[at] = (char)(bytes.data[at] ^ one);
                enum cairn_code code = look(cairn_buf_view(&bytes), &rows, &err);
                bytes.data[at] = (char)(bytes.data[at] ^ one);
                refused += code != CAIRN_OK;
                EXPECT(code == CAIRN_OK || err.message[0]);
            }
        }
        EXPECT(refused > bytes.size / 8);
    }
}

TEST(a_changed_pickle_is_damage_where_the_zip_has_its_crc, err) {
    struct rows rows = {0};
    WITH_OK(buf, bytes, load("protocol2.pt", &bytes, &err));
    char *weight = memmem(bytes.data, bytes.size, "weight", 6);
    REQUIRE(weight != NULL);
    weight[0] = 'W';
    EXPECT_FAILS(look(cairn_buf_view(&bytes), &rows, &err), CAIRN_CORRUPT, "data.pkl");
}

TEST(a_file_that_asks_for_a_command_is_refused_with_its_name, err) {
    struct rows rows = {0};
    WITH_OK(buf, bytes, load("command.pt", &bytes, &err));
    EXPECT_FAILS(look(cairn_buf_view(&bytes), &rows, &err), CAIRN_UNSUPPORTED, "posix.system");
}

/* ---- members of enumerations, as Python 3.11.0 to 3.11.3 writes them ---- */

static enum cairn_code read_text(const char *text, struct cairn_pickle *ret,
                                 struct cairn_error *err) {
    return cairn_torch_read_pickle(cairn_view_of(text), false, ret, err);
}

#define STAGE "cdeepspeed.runtime.zero.config\nZeroStageEnum\n"

TEST(a_member_taken_by_name_is_its_enumeration_with_its_number, err) {
    WITH_OK(pickle, pickle,
            read_text("c__builtin__\ngetattr\n(" STAGE "S'gradients'\ntR.", &pickle, &err));
    const struct cairn_pickle_value *object = cairn_pickle_at(&pickle, pickle.root);
    const struct cairn_pickle_value *arguments = cairn_pickle_at(&pickle, object->arguments);
    EXPECT_EQ_TEXT(cairn_torch_name_at(cairn_pickle_at(&pickle, object->callable)->global)->name,
                   "ZeroStageEnum");
    REQUIRE(arguments->count == 1);
    EXPECT_EQ_U64(cairn_pickle_at(&pickle, arguments->items[0])->integer, 2);
}

TEST(nothing_but_a_known_member_is_taken_by_name) {
    EACH_TEXT(text, "cbuiltins\ngetattr\n(ctorch\nTensor\nS'__class__'\ntR.",
              "cbuiltins\ngetattr\n(" STAGE "S'__subclasses__'\ntR.",
              "cbuiltins\ngetattr\n(" STAGE "S'TORCH_CONTIGUOUS_FORMAT'\ntR.",
              "cbuiltins\ngetattr\n(" STAGE "tR.",
              "cbuiltins\ngetattr\n(S'weights'\nS'__class__'\ntR.",
              "cbuiltins\ngetattr\n(ccollections\nOrderedDict\nS'__subclasses__'\ntR.",
              "cbuiltins\ngetattr\n(" STAGE "I3\ntR.",
              "cbuiltins\ngetattr\n(" STAGE "S'weights'\nI3\ntR.") {
        struct cairn_error err = {0};
        CAIRN_AUTO(pickle) pickle = {0};
        EXPECT_FAILS(read_text(text, &pickle, &err), CAIRN_UNSUPPORTED, "getattr");
    }
}

/* ---- tensors that lie about their storage: in the legacy form, which has no CRC ---- */

static enum cairn_code look_with(const char *from, const char *to, size_t size,
                                 struct cairn_error *err) {
    struct rows rows = {0};
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_TRY(load("legacy.pt", &bytes, err));
    char *at = memmem(bytes.data, bytes.size, from, size);
    if (!at) return cairn_fail(err, CAIRN_INTERNAL, "the file has other bytes now");
    memcpy(at, to, size);
    return look(cairn_buf_view(&bytes), &rows, err);
}

TEST(a_tensor_that_leaves_its_storage_is_refused, err) {
    /* shape (2, 3), strides (3, 1) of 6 elements */
    EXPECT_CODE(look_with("K\x02K\x03\x86", "K\x02K\x03\x86", 5, &err), CAIRN_OK);
    EXPECT_FAILS(look_with("K\x02K\x03\x86", "K\x03K\x03\x86", 5, &err), CAIRN_INVALID, "leave");
    EXPECT_CODE(look_with("K\x03K\x01\x86", "K\x04K\x01\x86", 5, &err), CAIRN_INVALID);
    EXPECT_CODE(look_with("K\x03K\x01\x86", "K\x02K\x01\x86", 5, &err), CAIRN_OK);
}

/* ---- values that hold each other ---- */

/* A legacy file whose object is this pickle, without tensors. */
static enum cairn_code look_at_object(const char *object, size_t size, struct cairn_error *err) {
    struct rows rows = {0};
    CAIRN_AUTO(buf) bytes = {0}, whole = {0};
    CAIRN_TRY(load("legacy.pt", &bytes, err));
    /* magic, protocol and machine: up to the third STOP */
    size_t at = 0;
    for (int stops = 0; stops < 3; at++) stops += bytes.data[at] == '.';
    CAIRN_TRY(cairn_buf_append(&whole, bytes.data, at, err));
    CAIRN_TRY(cairn_buf_append(&whole, object, size, err));
    CAIRN_TRY(cairn_buf_append(&whole, "\x80\x02].", 4, err));
    return look(cairn_buf_view(&whole), &rows, err);
}

TEST(values_that_hold_themselves_or_each_other_end, err) {
    static const char itself[] = "]q\x01h\x01"
                                 "a.";
    EXPECT_CODE(look_at_object(itself, sizeof itself - 1, &err), CAIRN_OK); /* one leaf */
    /* each list holds the one before twice: 2^40 leaves in 250 bytes */
    WITH_OK(buf, doubling, cairn_buf_append(&doubling, "N", 1, &err));
    for (int i = 0; i < 40; i++) REQUIRE_OK(cairn_buf_append(&doubling, "2\x86", 2, &err));
    REQUIRE_OK(cairn_buf_append(&doubling, ".", 1, &err));
    EXPECT_CODE(look_at_object(doubling.data, doubling.size, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(look_at_object("}K\x07K\x01s.", 7, &err), CAIRN_OK);
}

/* ---- values with tensors, as objects ---- */

#define TENSOR                                                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"     \
    "0X\x03\0\0\0cpuK\x04NtQK\0K\x04\x85K\x01\x85\x89}tR"

/* A legacy file whose object is this pickle, with a storage "0" of four floats. */
static enum cairn_code make_file(const char *object, size_t size, struct cairn_buf *ret,
                                 struct cairn_error *err) {
    static const float numbers[] = {1, 2, 3, 4};
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_TRY(load("legacy.pt", &bytes, err));
    size_t at = 0;
    for (int stops = 0; stops < 3; at++) stops += bytes.data[at] == '.';
    CAIRN_TRY(cairn_buf_append(ret, bytes.data, at, err));
    CAIRN_TRY(cairn_buf_append(ret, object, size, err));
    CAIRN_TRY(cairn_buf_append(ret,
                               "\x80\x02](X\x01\0\0\0"
                               "0e.",
                               12, err));
    CAIRN_TRY(cairn_buf_append_u64le(ret, 4, err));
    return cairn_buf_append(ret, numbers, sizeof numbers, err);
}

/* The tensors and the objects of such a file, as an export to DCP has them. */
static enum cairn_code gather_objects(struct cairn_torch *file, struct cairn_assembly *ret,
                                      struct cairn_error *err) {
    const struct cairn_torch_plain plain = {.file = file, .archives = true, .own_tensors = true};
    CAIRN_TRY(cairn_torch_assemble(file, "", ret, err));
    CAIRN_TRY(cairn_assembly_check(ret, err));
    return cairn_torch_plain_add(&plain, ret, err);
}

static enum cairn_code open_made(struct cairn_input *input, struct cairn_torch *ret,
                                 struct cairn_error *err) {
    return cairn_torch_open(input, false, ret, err);
}

/* The archive of a pair of equal tensors has the storage once, with its numbers. */
static enum cairn_code check_pair(struct cairn_view bytes, struct cairn_error *err) {
    struct cairn_input input = cairn_input_of_view(&bytes);
    struct cairn_assembly inside = {0};
    CAIRN_AUTO(torch) file = {0};
    float numbers[4] = {0};
    CAIRN_TRY(open_made(&input, &file, err));
    enum cairn_code code = cairn_torch_assemble(&file, "", &inside, err);
    if (code == CAIRN_OK) code = cairn_assembly_check(&inside, err);
    EXPECT(inside.tensor_count == 2 && inside.tensors[1].alias_of == 0);
    if (code == CAIRN_OK && inside.tensor_count)
        code = cairn_assembly_read(&inside, &inside.tensors[0], 0, (char *)numbers, sizeof numbers,
                                   err);
    EXPECT(numbers[0] == 1 && numbers[3] == 4);
    cairn_assembly_release(&inside);
    return code;
}

TEST(a_tuple_of_tensors_is_one_object_and_its_tensors_are_in_it, err) {
    static const char object[] = "\x80\x02}(X\x01\0\0\0s" TENSOR TENSOR "\x86X\x01\0\0\0w" TENSOR
                                 "X\x01\0\0\0v" TENSOR "X\x01\0\0\0l](" TENSOR "K\x01" TENSOR "\x86"
                                 "eu.";
    struct cairn_assembly assembly = {0};
    CAIRN_AUTO(torch) file = {0};
    CAIRN_AUTO(buf) archive = {0};
    WITH_OK(buf, bytes, make_file(object, sizeof object - 1, &bytes, &err));
    struct cairn_view view = cairn_buf_view(&bytes);
    struct cairn_input input = cairn_input_of_view(&view);
    REQUIRE_OK(open_made(&input, &file, &err));
    EXPECT_CODE(gather_objects(&file, &assembly, &err), CAIRN_OK);
    EXPECT_EQ_U64(assembly.object_count, 2);
    EXPECT_EQ_TEXT(assembly.objects[0].name, "s");
    EXPECT_EQ_TEXT(assembly.objects[1].name, "l.1");
    static const struct {
        const char *name, *of;
        bool in_object;
    } tensors[] = {{"s.0", NULL, true}, {"s.1", "s.0", true}, {"w", NULL, false},
                   {"v", "w", false},   {"l.0", "w", false},  {"l.1.1", "s.0", true}};
    EXPECT_EQ_U64(assembly.tensor_count, CAIRN_COUNT(tensors));
    for (size_t i = 0; i < CAIRN_COUNT(tensors) && i < assembly.tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly.tensors[i];
        EXPECT_EQ_TEXT(tensor->name, tensors[i].name);
        EXPECT(tensor->in_object == tensors[i].in_object);
        EXPECT((tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS) == !tensors[i].of);
        if (tensors[i].of && tensor->alias_of < assembly.tensor_count)
            EXPECT_EQ_TEXT(assembly.tensors[tensor->alias_of].name, tensors[i].of);
    }
    size_t size = (size_t)assembly.objects[0].size_bytes;
    REQUIRE_OK(cairn_buf_reserve(&archive, size, &err));
    EXPECT_CODE(
        cairn_assembly_read_object(&assembly, &assembly.objects[0], 0, archive.data, size, &err),
        CAIRN_OK);
    EXPECT_CODE(check_pair((struct cairn_view){archive.data, size}, &err), CAIRN_OK);
    cairn_assembly_release(&assembly);
}

TEST(a_value_that_cannot_be_one_object_is_named_and_its_tensors_stay, err) {
    static const char object[] = "\x80\x02}X\x01\0\0\0s" TENSOR "cnobody\nThing\n)R\x86s.";
    struct cairn_assembly assembly = {0};
    CAIRN_AUTO(torch) file = {0};
    WITH_OK(buf, bytes, make_file(object, sizeof object - 1, &bytes, &err));
    struct cairn_view view = cairn_buf_view(&bytes);
    struct cairn_input input = cairn_input_of_view(&view);
    REQUIRE_OK(open_made(&input, &file, &err));
    EXPECT_CODE(gather_objects(&file, &assembly, &err), CAIRN_OK);
    EXPECT_EQ_U64(assembly.object_count, 0);
    EXPECT(assembly.tensor_count == 1 && !assembly.tensors[0].in_object);
    EXPECT(assembly.left_out_count == 2 && strcmp(assembly.left_out[0].name, "s") == 0);
    cairn_assembly_release(&assembly);
}

/* ---- keys ---- */

static enum cairn_code name_of_key(const char *key, size_t size, struct cairn_buf *ret,
                                   struct cairn_error *err) {
    CAIRN_AUTO(pickle) values = {0};
    bool fits = false;
    CAIRN_TRY(cairn_torch_read_pickle((struct cairn_view){key, size}, false, &values, err));
    CAIRN_TRY(cairn_torch_key_text(&values, values.root, ret, &fits, err));
    if (!fits) cairn_buf_clear(ret);
    return fits ? CAIRN_OK : cairn_buf_append_text(ret, "none", err);
}

TEST(a_key_that_is_no_text_has_the_name_that_python_prints, err) {
#define KEY(key, text)                                                                             \
    { key, sizeof key - 1, text }
#define BYTES(text) "c_codecs\nencode\n(" text "X\x06\0\0\0latin1tR"
#define SCALAR(type, bytes)                                                                        \
    "cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x02\0\0\0" type "\x89\x88tR" bytes "tR."
    static const struct {
        const char *key;
        size_t size;
        const char *text;
    } keys[] = {
        KEY("c__builtin__\nEllipsis\n.", "Ellipsis"),
        KEY("c__builtin__\nlong\n.", "<class 'int'>"),
        KEY("ctorch.nn.modules.linear\nLinear\n.", "<class 'torch.nn.modules.linear.Linear'>"),
        KEY("ctorch\nper_tensor_affine\n.", "torch.per_tensor_affine"),
        KEY("c__builtin__\ntype\n(NtR.", "<class 'NoneType'>"),
        KEY("c__builtin__\nxrange\n(K\0K\x09K\x02tR.", "range(0, 9, 2)"),
        KEY("c__builtin__\nxrange\n(K\0K\x09K\x01tR\x85.", "(range(0, 9),)"),
        KEY("ctorch\ndevice\n(X\x04\0\0\0cudaK\x01tR.", "cuda:1"),
        KEY("ctorch\ndevice\n(X\x04\0\0\0cudaK\x01tR\x85.", "none"),
        KEY("cpathlib\nPosixPath\n(X\x01\0\0\0/X\x01\0\0\0aX\x01\0\0\0btR.", "/a/b"),
        KEY("cdecimal\nDecimal\n(X\x04\0\0\0"
            "1.50tR.",
            "1.50"),
        KEY("cfractions\nFraction\n(K\x01K\x02tR.", "1/2"),
        KEY("cdatetime\ndate\n(" BYTES("X\x05\0\0\0\x07\xc3\xa8\x01\x02") "tR.", "2024-01-02"),
        KEY("cdatetime\ndate\n(" BYTES("X\x02\0\0\0\x01\x02") "tR.", "none"),
        KEY("cdatetime\ntimedelta\n(K\x01K\x02K\x03tR.", "1 day, 0:00:02.000003"),
        KEY(SCALAR("i8", "C\x08\xfd\xff\xff\xff\xff\xff\xff\xff"), "-3"),
        KEY(SCALAR("u1", "C\x01\xfd"), "253"),
        KEY(SCALAR("b1", "C\x01\x01"), "True"),
        KEY(SCALAR("f8", "C\x08\0\0\0\0\0\0\xe0\x3f"), "0.5"),
        KEY(SCALAR("i8", "C\x01\x01"), "none"),
        KEY("cnobody\nThing\n)R.", "none"),
    };
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        WITH_OK(buf, name, name_of_key(keys[i].key, keys[i].size, &name, &err));
        EXPECT_EQ_TEXT(name.data, keys[i].text);
    }
}
