/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=python */
/* The official Python library reads what we write, and we read what it writes. */
#include <spawn.h>

#include "api/table/dtype.h"
#include "formats/safetensors.h"
#include "tests/harness.h"

extern char **environ;

/* Exit status of `python3 -c script argument`; 127: it cannot be started. */
static int python(const char *script, const char *argument) {
    pid_t child = 0;
    int status = 0;
    char *arguments[] = {(char *)(uintptr_t) "python3", (char *)(uintptr_t) "-c",
                         (char *)(uintptr_t)script, (char *)(uintptr_t)argument, NULL};
    if (posix_spawnp(&child, "python3", NULL, NULL, arguments, environ) != 0) return 127;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 126;
    return WEXITSTATUS(status);
}

static bool library_is_missing(void) {
    return python("import importlib.util as u, sys\n"
                  "sys.exit(0 if u.find_spec('safetensors') and u.find_spec('numpy') else 1)",
                  "") != 0;
}

static const char *path_of(const char *name, char ret[512]) {
    snprintf(ret, 512, "%s/%s", cairn_test_folder(), name);
    return ret;
}

TEST(the_official_library_reads_a_shard_that_we_write, err) {
    char path[512];
    uint64_t file_bytes = 0;
    struct cairn_safetensors_entry entries[] = {
        {.name = CAIRN_VIEW("b.weight"),
         .dtype = CAIRN_DTYPE_F32,
         .dimension_count = 2,
         .shape = {2, 3}},
        {.name = CAIRN_VIEW("a \"quoted\" \xc3\xa9"),
         .dtype = CAIRN_DTYPE_I64,
         .dimension_count = 0},
        {.name = CAIRN_VIEW("flat@2"),
         .dtype = CAIRN_DTYPE_F16,
         .dimension_count = 1,
         .shape = {5}},
        {.name = CAIRN_VIEW("empty"),
         .dtype = CAIRN_DTYPE_F64,
         .dimension_count = 2,
         .shape = {0, 4}},
        {.name = CAIRN_VIEW("mask"), .dtype = CAIRN_DTYPE_BOOL, .dimension_count = 1, .shape = {3}},
    };
    if (library_is_missing()) SKIP("python3 with safetensors and numpy is not installed");
    WITH_OK(buf, file,
            cairn_safetensors_write(entries, CAIRN_COUNT(entries), NULL, &file, &file_bytes, &err));
    for (uint8_t i = 0; file.size < file_bytes; i = (uint8_t)((i + 1) % 2))
        REQUIRE_OK(cairn_buf_append(&file, &i, 1, &err));
    REQUIRE_OK(
        cairn_file_replace(path_of("ours.safetensors", path), cairn_buf_view(&file), 0600, &err));
    EXPECT_EQ_U64(
        python("import sys, numpy as np\n"
               "from safetensors import safe_open\n"
               "from safetensors.numpy import load_file\n"
               "t = load_file(sys.argv[1])\n"
               "assert sorted(t) == ['a \"quoted\" \\u00e9', 'b.weight', 'empty', 'flat@2', "
               "'mask'], t\n"
               "assert t['b.weight'].shape == (2, 3) and t['b.weight'].dtype == np.float32\n"
               "assert t['a \"quoted\" \\u00e9'].shape == () and t['empty'].shape == (0, 4)\n"
               "assert t['flat@2'].dtype == np.float16 and t['mask'].dtype == np.bool_\n"
               "raw = open(sys.argv[1], 'rb').read()\n"
               "n = int.from_bytes(raw[:8], 'little')\n"
               "data = t['a \"quoted\" \\u00e9'].tobytes() + t['b.weight'].tobytes() + "
               "t['flat@2'].tobytes() + t['mask'].tobytes()\n"
               "assert raw[8 + n:] == data\n"
               "f = safe_open(sys.argv[1], 'numpy')\n"
               "assert f.metadata() == {'format': 'pt', 'cairn': '1'}, f.metadata()\n",
               path),
        0);
}

TEST(the_official_library_reads_a_shard_with_types_that_it_has_no_name_for, err) {
    CAIRN_AUTO(buf) file = {0};
    static char names[64][24];
    struct cairn_safetensors_entry entries[64];
    char path[512];
    uint64_t file_bytes = 0;
    size_t count = 0;
    if (library_is_missing()) SKIP("python3 with safetensors and numpy is not installed");
    for (unsigned dtype = 1; cairn_dtype_text(dtype); dtype++) {
        if (cairn_dtype_is_shown(dtype)) continue;
        snprintf(names[count], sizeof names[count], "of.%s", cairn_dtype_text(dtype));
        entries[count] = (struct cairn_safetensors_entry){.name = cairn_view_of(names[count]),
                                                          .dtype = dtype,
                                                          .dimension_count = 2,
                                                          .shape = {3, 8}};
        count++;
    }
    REQUIRE_OK(cairn_safetensors_write(entries, count, NULL, &file, &file_bytes, &err));
    for (uint8_t i = 0; file.size < file_bytes; i = (uint8_t)((i + 1) % 60))
        REQUIRE_OK(cairn_buf_append(&file, &i, 1, &err));
    REQUIRE_OK(
        cairn_file_replace(path_of("types.safetensors", path), cairn_buf_view(&file), 0600, &err));
    EXPECT_EQ_U64(python("import sys, numpy as np\n"
                         "from safetensors import safe_open\n"
                         "from safetensors.numpy import load_file\n"
                         "t = load_file(sys.argv[1])\n"
                         "m = safe_open(sys.argv[1], 'numpy').metadata()\n"
                         "assert len(t) == 40 == len(m) - 2, (len(t), m)\n"
                         "c = t['of.C128']\n"
                         "assert c.dtype == np.float64 and c.shape == (3, 8, 2), c\n"
                         "assert m['cairn.logical:of.C128'] == 'C128 [3,8]', m\n"
                         "assert t['of.C32'].dtype == np.float16 and t['of.QI8'].dtype == np.int8\n"
                         "assert t['of.I4'].shape == (12,) and t['of.U1'].shape == (3,)\n"
                         "raw = open(sys.argv[1], 'rb').read()\n"
                         "n = int.from_bytes(raw[:8], 'little')\n"
                         "assert c.tobytes() in raw[8 + n:]\n",
                         path),
                  0);
}

TEST(we_read_a_file_that_the_official_library_writes, err) {
    char path[512];
    if (library_is_missing()) SKIP("python3 with safetensors and numpy is not installed");
    REQUIRE(python("import sys, numpy as np\n"
                   "from safetensors.numpy import save_file\n"
                   "save_file({'w': np.arange(12, dtype=np.float32).reshape(3, 4),\n"
                   "  's': np.array(7, dtype=np.int64), 'e': np.zeros((0, 2), np.uint8),\n"
                   "  'h': np.ones(3, np.float16)}, sys.argv[1], metadata={'k': 'v'})\n",
                   path_of("theirs.safetensors", path)) == 0);
    WITH_OK(buf, file, cairn_file_load(path, &file, &err));
    WITH_OK(safetensors, opened,
            cairn_safetensors_open(cairn_buf_view(&file), file.size, &opened, &err));
    REQUIRE(opened.count == 4);
    for (size_t i = 0; i < opened.count; i++) {
        const struct cairn_safetensors_entry *at = &opened.entries[i];
        if (at->name.size != 1 || *(const char *)at->name.data != 'w') continue;
        EXPECT_ALL_U64(at->dtype, CAIRN_DTYPE_F32, at->shape[0] * 10 + at->shape[1], 34);
        float value = 0;
        memcpy(&value, file.data + at->offset_bytes + 4 * 11, sizeof value);
        EXPECT(value > 10.9f);
        EXPECT(value < 11.1f);
    }
}
