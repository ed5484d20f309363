# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=15 rooms=python,client,uploader,server
"""Every piece of code in docs/python.md runs, in the order of the page, and so does what its table of migration has on the
right. Code that needs a library is left out where that is not there."""
import importlib.util
import re
import sys

import package

# What the table's code needs: the library, and the names that a reader has.
NEEDS = {"cairn.lightning": "lightning", "cairn.hf": "transformers", "cairn.accelerate": "accelerate", "cairn.deepspeed": "deepspeed",
         "cairn.torch_checkpointing": "torch_checkpointing", "cairn.torch": "torch", "dcp.": "torch"}
BEFORE = """
import importlib.util, os, sys, types, warnings
warnings.filterwarnings("ignore")
import cairn
state, step, output_dir, engine = {"w": bytearray(4), "step": 1}, 1202, sys.argv[1] + "/out", types.SimpleNamespace()
if importlib.util.find_spec("torch"):
    import torch, torch.distributed.checkpoint as dcp
    state = {"w": torch.ones(3), "step": 1}
if importlib.util.find_spec("fsspec"):
    import fsspec
    fsspec.register_implementation("cairn", cairn.fs.CairnFileSystem)
if importlib.util.find_spec("lightning"):
    from lightning import Trainer
if importlib.util.find_spec("accelerate"):
    import accelerate
    accelerator = accelerate.Accelerator(cpu=True)
run = cairn.run("llm/7b")
def from_pretrained(folder):
    assert os.listdir(folder)
def ran(value):
    if hasattr(value, "result"):
        value.result()
"""
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

    def test_the_code_of_the_migration_table_runs(self):
        text = (package.TREE / "docs" / "python.md").read_text()
        table = text[text.index("## From what you have"):]
        table = table[:table.index("\n\n", table.index("|---|---|"))]
        codes = [code for row in table.splitlines() if row.startswith("| ") for code in re.findall(r"`([^`]+)`", row.split("|")[2])]
        self.assertGreater(len(codes), 10)
        program, left_out = [BEFORE], 0
        for code in codes:
            if not all(importlib.util.find_spec(library) for name, library in NEEDS.items() if name in code):
                left_out += 1
            elif re.match(r"\w+=", code):
                program.append(f"dict({code})\n")
            else:
                program.append(f"ran({code})\n")
        self.program("".join(program), self.folder)
        if left_out:
            print(f"skipped: {left_out} lines of code need libraries that {sys.executable} has not")


if __name__ == "__main__":
    package.main()
