# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=15 rooms=python,client,uploader,server
"""Every piece of code in docs/python.md runs, in the order of the page. Pieces that need torch or fsspec are left out
where these are not there."""
import importlib.util
import re
import sys

import package

PIECE = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.M | re.S)


class Page(package.Worlds):
    def test_every_piece_of_code_runs(self):
        text = (package.TREE / "docs" / "python.md").read_text()
        program, left_out = [], 0
        for found in PIECE.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            if all(importlib.util.find_spec(name) for name in found[1].split()):
                program.append("\n" * (line - sum(part.count("\n") for part in program)) + found[2])
            else:
                left_out += 1
        self.assertGreater(len(program), 5)
        if importlib.util.find_spec("fsspec"):
            program.insert(0, "import fsspec, cairn.fs; "
                           "fsspec.register_implementation('cairn', cairn.fs.CairnFileSystem)")
        self.program("".join(program))
        if left_out:
            print(f"skipped: {left_out} pieces need torch or fsspec, which {sys.executable} has not")


if __name__ == "__main__":
    package.main()
