# SPDX-License-Identifier: Apache-2.0
"""The Python package of this tree over the libcairn of one build, and a world of real programs for a module of
tests. Import it before `cairn`."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", TREE / "build" / "shipped")).resolve()
PACKAGE = TREE / "python"
HANG_S = 300
# Of a program that does a whole job, be it on a machine that is busy: tests/support/watched.py finds one that hangs.
JOB_S = 3600

os.environ["CAIRN_BIN_DIR"] = str(BIN)
os.environ.setdefault("CAIRN_LIBRARY", str(BIN / "libcairn.so"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), str(TREE / "tests" / "python")])
sys.path.insert(0, str(PACKAGE))
sys.path.insert(0, str(TREE / "tests" / "e2e"))

from outcome import leave  # noqa: E402  (of tests/e2e)


def found(name):
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of what it is in
        return None


def only_with(*modules):
    missing = [name for name in modules if not found(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)}")


def needs(*modules):
    """Skips by name where one of them is not there."""
    missing = [name for name in modules if not found(name)]
    if missing:
        raise unittest.SkipTest(f"no {', '.join(missing)} for {sys.executable}; CAIRN_TEST_TORCH names another Python")


class Worlds(unittest.TestCase):
    """One server and uploader for the cases of a class; `needs` names what they import."""
    needs = ()

    @classmethod
    def setUpClass(cls):
        needs(*cls.needs)
        from cairn.testing import World
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-python-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.world = World(memory="2GiB")
        cls.addClassCleanup(cls.world.close)

    def setUp(self):
        self.name = f"test/{self.id().rpartition('.')[2][:100]}"

    def opened(self, **options):
        """A run of the case's own name that is closed after it."""
        run = self.world.run(self.name, **options)
        self.addCleanup(run.close)
        return run

    def program(self, text, *arguments, status=0, env=None, **options):
        """Runs Python in a process of its own: (stdout, stderr)."""
        path = self.folder / f"{self.name.partition('/')[2]}.py"  # a file: what it spawns imports it
        path.write_text(textwrap.dedent(text))
        done = subprocess.run([sys.executable, str(path), *map(str, arguments)], capture_output=True,
                              text=True, timeout=JOB_S, env={**os.environ, **(env or {})}, check=False, **options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr


def main():
    leave(unittest.main(module="__main__", exit=False).result)
