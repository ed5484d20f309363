# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=2 rooms=python,client
"""The structs of the Python package are those of the headers, field by field, as the C compiler lays them out."""
import ctypes
import pathlib
import subprocess
import tempfile
import unittest

import package
from cairn import _lib


class Abi(unittest.TestCase):
    def test_every_struct_has_the_headers_size_and_offsets(self):
        lines = []
        for name, struct in _lib.STRUCTS.items():
            lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
            lines += [f'printf("%zu\\n", offsetof(struct {name}, {field[0]}));' for field in struct._fields_]
        headers = "".join(f"#include <cairn/{path.name}>\n" for path in sorted((package.TREE / "include/cairn").glob("*.h")))
        source = f"#include <stdio.h>\n{headers}int main(void) {{\n{chr(10).join(lines)}\nreturn 0;\n}}\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "abi.c")
            path.write_text(source)
            subprocess.run(["cc", "-I", str(package.TREE / "include"), str(path), "-o", f"{folder}/abi"], check=True)
            told = list(map(int, subprocess.run([f"{folder}/abi"], capture_output=True, check=True).stdout.split()))
        found = []
        for struct in _lib.STRUCTS.values():
            found.append(ctypes.sizeof(struct))
            found += [getattr(struct, field[0]).offset for field in struct._fields_]
        self.assertEqual(found, told)

    def test_codes_are_named_by_the_library(self):
        self.assertEqual(_lib.SLUGS[_lib.OK], "ok")
        self.assertEqual(_lib.SLUGS[_lib.UPLOADER_GONE], "uploader-gone")
        self.assertEqual(_lib.SLUGS[_lib.INTERRUPTED], "interrupted")


if __name__ == "__main__":
    package.main()
