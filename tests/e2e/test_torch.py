# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=120
"""What `cairn export` writes, read by torch itself: value for value what torch reads of the source.

It needs a Python with torch (CPU is enough): the one that runs it, or the one that CAIRN_TEST_TORCH
names. Without it, it is skipped by name."""
import json
import os
import shutil
import subprocess
import sys
import unittest

import cases
import test_hf_view  # its cases are not to be run here again
from outcome import leave
from test_dcp import DCP
from test_dcp import EXPECTED as DCP_CASES
from test_export import EXPECTED, VECTORS, ZERO, as_fp32, export, read
from test_hf_view import HF, HF_CASES
from test_to_dcp import model
from test_types import BOX, SHARDED, read_header, save_by_ranks, say
from world import BIN, HANG_S, World

PYTHON = os.environ.get("CAIRN_TEST_TORCH", sys.executable)

# Reads DCP folders in each way that torch has, and prints what it found as JSON.
READ_DCP = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

def rows(state):
    found = {}
    for name, value in state.items():
        if not torch.is_tensor(value):
            found[name] = {"value": repr(value)}
            continue
        flat = value.detach().contiguous().reshape(-1)
        found[name] = {"dtype": str(value.dtype), "shape": list(value.shape),
                       "bytes": bytes(flat.view(torch.uint8).tolist() if flat.numel() else []).hex()}
    return found

answers = []
for folder in sys.argv[1:]:
    meta = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {name: torch.zeros(row.size, dtype=row.properties.dtype) if hasattr(row, "size")
                   else None for name, row in meta.items()}
    dcp.load(state, checkpoint_id=folder)
    dcp_to_torch_save(folder, folder + ".pt")
    whole = torch.load(folder + ".pt", weights_only=False)
    answers.append({"load": rows(state), "saved": rows(whole)})
print(json.dumps(answers))
"""
# Writes a nested state dict, and later loads it back from another folder.
NESTED = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp

def state(fill):
    value = lambda *shape: torch.randn(shape) if fill else torch.zeros(shape)
    return {"model": {"a.weight": value(5, 3), "a.bias": value(5).to(torch.bfloat16)},
            "optimizer": {"state": {0: {"step": value(), "exp_avg": value(5, 3)}},
                          "param_groups": [{"lr": 0.5 if fill else 0, "betas": (0.9, fill)}]},
            "list": [value(2), {"deep": value(1, 2)}], "step": 7 if fill else 0,
            "text": "x" if fill else ""}

def same(a, b):
    if torch.is_tensor(a):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b

how, folder = sys.argv[1:]
torch.manual_seed(3)
if how == "save":
    dcp.save(state(True), checkpoint_id=folder)
    print("true")
else:
    found = state(False)
    dcp.load(found, checkpoint_id=folder)
    print(json.dumps(same(found, state(True))))
"""

# Whether a folder holds every item of a torch file as torch itself flattens and loads them.
FLATTENED = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

wrong = []
for file, folder in zip(sys.argv[1::2], sys.argv[2::2]):
    items, _ = flatten_state_dict(torch.load(file, weights_only=False))
    found = {name: torch.zeros_like(value).contiguous() if torch.is_tensor(value) else None
             for name, value in items.items()}
    dcp.load(found, checkpoint_id=folder)
    there = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    wrong += sorted(items.keys() ^ there.keys())
    for name, value in items.items():
        same = torch.equal if torch.is_tensor(value) else lambda a, b: (a, type(a)) == (b, type(b))
        wrong += [] if same(found[name], value) else [name]
print(json.dumps([len(items), wrong]))
"""

# Tensors of types that safetensors has no name for, each as its bytes in a file.
TYPED = """
import json, pathlib, sys
import torch

def tensors():
    torch.manual_seed(5)
    bytes_of = lambda *shape: torch.randint(0, 256, shape, dtype=torch.uint8)
    quantized = torch.quantize_per_tensor(torch.randn(8, 4), 0.1, 3, torch.qint8)
    return {"ok.c128": torch.randn(9, 4, dtype=torch.complex128),
            "ok.c64": torch.randn(10, 3, dtype=torch.complex64),
            "ok.c32": torch.randn(8, 6).view(torch.float16).view(torch.complex32),
            "ok.bits16": bytes_of(8, 6).view(torch.bits16), "ok.bits4x2": bytes_of(7).view(torch.bits4x2),
            "ok.f4x2": bytes_of(6, 2).view(torch.float4_e2m1fn_x2),
            "ok.e8m0": bytes_of(5, 5).view(torch.float8_e8m0fnu), "ok.u64": torch.arange(9).view(torch.uint64),
            "no.q": quantized.int_repr(), "no.u4": bytes_of(8).view(torch.uint4)}

def raw(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

NAMES = {torch.complex128: "C128", torch.complex64: "C64", torch.complex32: "C32",
         torch.bits16: "BITS16", torch.bits4x2: "BITS4X2", torch.float4_e2m1fn_x2: "F4X2",
         torch.float8_e8m0fnu: "F8_E8M0", torch.uint64: "U64", torch.int8: "QI8", torch.uint4: "U4X1"}
"""
SAVE_TYPED = TYPED + """
for name, tensor in tensors().items():
    pathlib.Path(sys.argv[1], name).write_bytes(raw(tensor))
print(json.dumps({name: [NAMES[t.dtype], list(t.shape)] for name, t in tensors().items()}))
"""
# Which are not what torch and safetensors read, out of a file, a folder of DCP and stored shards.
READ_TYPED = TYPED + """
import warnings
warnings.filterwarnings("ignore")
import torch.distributed.checkpoint as dcp

file, folder, *shards = sys.argv[1:]
wanted = {name: tensor for name, tensor in tensors().items() if name.startswith("ok.")}
same = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)
loaded = torch.load(file, weights_only=True)
state = {"ok.archive": None, **{name: torch.zeros_like(tensor.view(torch.uint8)).view(tensor.dtype)
         for name, tensor in wanted.items()}}
dcp.load(state, checkpoint_id=folder)
wrong = [name for name in wanted if not same(loaded[name], wanted[name])]
wrong += [name + " of dcp" for name in wanted if not same(state[name], wanted[name])]
wrong += sorted(loaded.keys() ^ wanted.keys())
wrong += [] if state["ok.archive"] == {"lr": 0.5, "betas": (0.9, 1)} else ["the item"]
there = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
wrong += sorted(there.keys() ^ wanted.keys() ^ {"ok.archive"})
try:
    from safetensors import safe_open
except ImportError:
    shards = []
pieces = {}
for shard in shards:
    with safe_open(shard, "pt") as opened:
        for name in ("ok.c128", "ok.c64", "ok.c32", "no.q"):
            pieces.setdefault(name, []).append(opened.get_tensor(name))
for name, parts in pieces.items():
    whole = torch.cat(parts)
    found = torch.view_as_complex(whole) if name in ("ok.c128", "ok.c32") else whole
    wrong += [] if same(found, tensors()[name]) else [name + " of the shards"]
print(json.dumps([len(pieces), wrong]))
"""


def have_torch():
    ran = subprocess.run([PYTHON, "-c", "import torch.distributed.checkpoint"], capture_output=True,
                         text=True, timeout=300)
    return ran.returncode == 0


class Torch(cases.Case):
    @classmethod
    def setUpClass(cls):
        if not have_torch():
            raise unittest.SkipTest(f"no torch for {PYTHON}; CAIRN_TEST_TORCH names another Python")

    def setUp(self):
        self.out = self.folder / "out"

    def ask(self, program, *arguments):
        ran = cases.run([PYTHON, "-c", program, *map(str, arguments)], timeout=600)
        return json.loads(ran.stdout)

    def check(self, *jobs):
        """Of each source with its flags, dcp.load and dcp_to_torch_save give what a safetensors
        export of it holds. Returns what torch read."""
        wanted, folders = [], []
        for number, (source, *flags) in enumerate(jobs):
            out, direct = self.folder / f"out-{number}", self.folder / f"direct-{number}"
            export(source, out, "--to", "dcp", *flags)
            told = json.loads(export(source, direct, "--json", *flags).stdout)
            tensors = {name: (shape, data.hex()) for name, (_, shape, data) in read(direct).items()}
            tied = {name: tensors[of] for name, of in told["aliases"].items()}
            wanted.append({**tensors, **tied})
            folders.append(out)
        found = self.ask(READ_DCP, *folders)
        for job, tensors, answer in zip(jobs, wanted, found, strict=True):
            self.assertEqual(answer["load"], answer["saved"])
            self.assertEqual({name: (row["shape"], row["bytes"])
                              for name, row in answer["load"].items() if "bytes" in row},
                             tensors, job)
        return [answer["load"] for answer in found]

    def test_dcp_load_reads_what_deepspeed_trained(self):
        found = self.check(*((ZERO / case,) for case in EXPECTED),
                           (ZERO / "stage3", "--optimizer", "--dtype", "bf16", "--max-shard-size",
                            "200B"))
        for expected, tensors in zip(EXPECTED.values(), found):
            for name, row in expected.items():
                self.assertEqual(tensors[name]["shape"], row["shape"], name)
        self.assertEqual(found[-1]["last.weight"]["dtype"], "torch.bfloat16")

    def test_dcp_load_gives_each_item_of_a_torch_file_back_plain_ones_too(self):
        arguments = []
        for name in ("everything.pt", "everything_legacy.pt"):
            export(VECTORS / "torch" / name, self.folder / name, "--to", "dcp")
            arguments += [VECTORS / "torch" / name, self.folder / name]
        count, wrong = self.ask(FLATTENED, *arguments)
        self.assertGreater(count, 70)
        self.assertEqual(wrong, [])

    def test_dcp_load_reads_every_element_type_that_torch_has(self):
        tensors, = self.check((VECTORS / "torch" / "everything.pt",))
        self.assertEqual(tensors["every.F8_E4M3"]["dtype"], "torch.float8_e4m3fn")
        self.assertEqual(tensors["every.U16"]["dtype"], "torch.uint16")

    def test_dcp_load_reads_what_many_ranks_wrote_with_what_is_no_tensor(self):
        found = self.check(*((DCP / case,) for case in DCP_CASES))
        for expected, values in zip(DCP_CASES.values(), found):
            self.assertEqual({name for name in values if "bytes" in values[name]}, set(expected))
            self.assertEqual((values["step"]["value"], values["note.text"]["value"]), ("2", "'xxxxx'"))

    def test_a_nested_state_dict_of_torch_is_loaded_back_from_what_was_made_of_its_folder(self):
        source = self.folder / "source"
        self.ask(NESTED, "save", source)
        export(source, self.out, "--to", "dcp", "--max-shard-size", "40B")
        self.assertGreater(len(list(self.out.glob("*.distcp"))), 2)
        self.assertTrue(self.ask(NESTED, "load", self.out))

    def test_dcp_load_reads_files_of_many_windows(self):
        source = self.folder / "source.safetensors"
        model(source, 12, 250_000)
        self.check((source, "--max-shard-size", "9MB"), (source, "--dtype", "fp16"))

    def test_torch_load_reads_what_is_written_for_it(self):
        program = """
import json, sys, torch
state = torch.load(sys.argv[1], weights_only=True)
print(json.dumps({name: bytes(value.float().reshape(-1).view(torch.uint8).tolist()).hex()
                  for name, value in state.items()}))
"""
        export(ZERO / "stage3", self.out, "--to", "torch")
        export(ZERO / "stage3", self.folder / "safe")
        found = self.ask(program, self.out / "pytorch_model.bin")
        for name, (dtype, _, data) in read(self.folder / "safe").items():
            self.assertEqual(found[name], as_fp32(dtype, data), name)
        self.assertEqual(found["head.weight"], found["embed.weight"])


    def test_types_that_safetensors_lacks_go_from_torch_through_ranks_and_back(self):
        world = World(case=self)
        rows = self.ask(SAVE_TYPED, self.folder)
        lines = [[], [], [], []]
        for name, (dtype, shape) in rows.items():
            data = (self.folder / name).read_bytes()
            for rank, own in enumerate(lines):
                first, end = shape[0] * rank // 4, shape[0] * (rank + 1) // 4
                path = cases.file(self.folder / f"{name}-{rank}", data[len(data) // shape[0] * first:len(data) // shape[0] * end])
                start, count = [first] + [0] * (len(shape) - 1), [end - first, *shape[1:]]
                own.append(f"tensor {name} {dtype} {SHARDED} {BOX} {say(shape)} {say(start)}"
                           f" {say(count)} {path}")
        self.ask("import sys, torch; torch.save({'lr': 0.5, 'betas': (0.9, 1)}, sys.argv[1]); print(1)",
                 self.folder / "archive")
        (self.folder / "plain").write_bytes(b"no file of torch")
        for own in lines:
            own += [f"item ok.{name} 2 {self.folder / name}" for name in ("archive", "plain")]
        save_by_ranks(world, self.folder, "t/typed", 1, lines)
        env = {**os.environ, **world.env, "CAIRN_SOCKET": world.socket(0)}
        for name, (_, shape) in rows.items():
            found = b""
            for rank in range(3):
                first, end = shape[0] * rank // 3, shape[0] * (rank + 1) // 3
                rest = [word for extent in shape[1:] for word in ("0", str(extent))]
                found += subprocess.run(
                    [BIN / "tests" / "tensor_reader", "t/typed", "1", name, str(first),
                     str(end - first), *rest], env=env, capture_output=True, check=True,
                    timeout=HANG_S).stdout
            self.assertEqual(found, (self.folder / name).read_bytes(), name)
        for to in ("torch", "dcp"):
            world.cairn("export", "t/typed@1", self.folder / to, "--to", to, "--only", "ok.*")
            for name in ("no.q", "no.u4"):
                refused = world.cairn("export", "t/typed@1", self.folder / "none", "--to", to,
                                      "--only", name, status=None)
                self.assertIn(f"{name}: torch has no element type {rows[name][0]}", refused.stderr)
        read_by, wrong = self.ask(READ_TYPED, self.folder / "torch" / "pytorch_model.bin",
                                  self.folder / "dcp", *world.stored("*.safetensors"))
        self.assertEqual(wrong, [])
        self.assertIn(read_by, (0, 4))  # without safetensors' library its part is left out
        self.check_files_of_torch(rows)

    def check_files_of_torch(self, rows):
        """What torch wrote itself is read as the same types."""
        self.ask(TYPED + """
torch.save({name: t for name, t in tensors().items() if name.startswith("ok.")}, sys.argv[1])
print("true")
""", self.folder / "own.pt")
        told = json.loads(export(self.folder / "own.pt", self.folder / "own", "--json").stdout)
        self.assertEqual(told["tensors"], 8)
        header = read_header(next((self.folder / "own").glob("*.safetensors")))
        tags = header["__metadata__"]
        for name, (dtype, shape) in rows.items():
            if name.startswith("no."):
                continue
            tag = tags.get(f"cairn.logical:{name}")
            self.assertEqual(tag.split(" ")[0] if tag else header[name]["dtype"], dtype)
        self.assertEqual({name: row[2] for name, row in read(self.folder / "own").items()},
                         {name: (self.folder / name).read_bytes() for name in rows
                          if name.startswith("ok.")})


# What transformers computes with the model of each folder.
LOGITS = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch, transformers
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
found = []
for folder in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    found.append(model(torch.arange(12).reshape(1, 12)).logits.double().reshape(-1)[:8].tolist())
print(json.dumps(found))
"""


class Transformers(unittest.TestCase):
    """Where transformers is installed, too."""

    @classmethod
    def setUpClass(cls):
        ran = subprocess.run([PYTHON, "-c", "import torch, transformers"], capture_output=True, timeout=300)
        if ran.returncode:
            raise unittest.SkipTest(f"no transformers for {PYTHON}; CAIRN_TEST_TORCH names another")
        test_hf_view.HfView.setUpClass.__func__(cls)

    setUp = test_hf_view.HfView.setUp
    ask, listed = test_hf_view.HfView.ask, test_hf_view.HfView.listed
    fetch_all, exported = test_hf_view.HfView.fetch_all, test_hf_view.HfView.exported

    def test_transformers_loads_what_is_exported_and_what_is_fetched_over_http(self):
        folders = []
        for case in HF_CASES:
            self.world.cairn("import", "hf", HF / case, f"hub/{case}@1")
            exported = self.exported(case, f"hub/{case}@1", "--max-shard-size", "5KB")
            shutil.copy(HF / case / "config.json", exported)
            folders += [HF / case, exported, self.fetch_all(f"hub/{case}", self.folder / f"{case}-fetched"),
                        self.fetch_all(f"hub/{case}", self.folder / f"{case}-cut",
                                       max_shard_size="4KB")]
        ran = cases.run([PYTHON, "-c", LOGITS, *map(str, folders)], timeout=600)
        # Each torch rounds in its own way: the last bits are compared with what it computes of the source.
        found = json.loads(ran.stdout.splitlines()[-1])
        for at, case in enumerate(HF_CASES):
            source, *ours = found[4 * at:4 * at + 4]
            self.assertEqual(ours, [source] * 3, case)
            for value, known in zip(source, HF_CASES[case]["logits"], strict=True):
                self.assertAlmostEqual(value, known, delta=0.002, msg=case)


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
