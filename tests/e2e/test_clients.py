# SPDX-License-Identifier: Apache-2.0
# ctest: labels=full seconds=120 thirds=6 lacks=generators
"""Clients that openapi-generator makes of api/openapi.yaml compile as they come and call a real server: a list, a get,
a wait, a patch, a plan with the defaults that the client sends by itself, a tensor, and a call that is refused. Each is
a program of tests/e2e/clients that prints what it got. What a machine lacks for one of them is said.

setup/extras.sh fetches generator, Go and TypeScript; a Java compiler and node are taken where they are there."""
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import unittest

import cases
from world import HANG_S, World

ROOT = pathlib.Path(os.environ.get("CAIRN_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
PROGRAMS = pathlib.Path(__file__).with_name("clients")
TSC = ROOT / "build/typescript/bin/tsc"
STEP, VALUES = 5_000_000_000, bytes(range(16))  # a step of more than 32 bits
# The only thing that the Java client takes from elsewhere beside Jackson, which the generator itself holds.
ANNOTATION = "package jakarta.annotation;\npublic @interface {name} {{ {members} }}\n"
GENERATED = 'String[] value(); String date() default ""; String comments() default "";'
# The only module that the Go client imports; its checks are of what a caller fills in, not of what is sent.
VALIDATOR = "package validator\n\nfunc Validate(any) error { return nil }\n"


def generator():
    """Its jar, out of the Python package of that name; None: not there."""
    found = importlib.util.find_spec("openapi_generator_cli")
    jar = pathlib.Path(found.origin).with_name("openapi-generator.jar") if found else None
    return jar if jar and jar.exists() else None


def needs(*programs):
    lacking = [name for name in programs if not shutil.which(name)]
    return unittest.skipIf(lacking, f"no {', '.join(lacking)}")


@unittest.skipUnless(generator(), "no openapi-generator-cli: pip install openapi-generator-cli (setup/extras.sh)")
@needs("java")
class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        weights = cls.world.root / "weights.safetensors"
        cases.safetensors(weights, {"w": ("U8", [len(VALUES)], VALUES)})
        for step in (STEP - 1, STEP):
            cls.world.cairn("put", weights, f"demo/tour@{step}")
        cls.bytes = cls.world.version("demo/tour", "latest")["bytes"]

    def run_it(self, *words, cwd=None, **more):
        done = cases.run([*map(str, words)], cwd=cwd, timeout=20 * HANG_S, env={**os.environ, **more})
        return done.stdout

    def generate(self, name, *options):
        folder = self.world.root / name
        self.run_it("java", "-jar", generator(), "generate", "-i", ROOT / "api/openapi.yaml", "-g", name, "-o", folder,
                    *options)
        return folder

    def expect(self, said):
        self.assertEqual(said.splitlines(), ["list 1 true", f"get {STEP} {self.bytes} committed", "wait true", "patch true",
                                             f"plan 1 {self.bytes}", f"tensor {VALUES.hex()}", "problem true 404"])

    @needs("go")
    def test_go(self):
        folder = self.generate("go", "--git-host", "example.com", "--git-user-id", "cairn", "--git-repo-id", "client",
                               "--additional-properties", "packageName=cairn")
        shutil.rmtree(folder / "test")
        for path, text in (("validator/validator.go", VALIDATOR), ("validator/go.mod", "module gopkg.in/validator.v2\n\ngo 1.19\n")):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        with open(folder / "go.mod", "a", encoding="utf-8") as module:
            module.write("\nreplace gopkg.in/validator.v2 => ./validator\n")
        (folder / "call").mkdir()
        shutil.copy(PROGRAMS / "main.go", folder / "call")
        own = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOPATH": str(self.world.root / "gopath"),
               "GOCACHE": os.environ.get("GOCACHE", str(self.world.root / "gocache"))}
        self.run_it("go", "build", "-o", folder / "called", "./call", cwd=folder, **own)
        self.expect(self.run_it(folder / "called", self.world.addresses()))

    @needs("javac")
    def test_java(self):
        folder = self.generate("java", "--library", "native", "--additional-properties",
                               "openApiNullable=false,useJakartaEe=true,hideGenerationTimestamp=true")
        own = folder / "own/jakarta/annotation"
        own.mkdir(parents=True)
        for name, members in (("Generated", GENERATED), ("Nonnull", ""), ("Nullable", "")):
            (own / f"{name}.java").write_text(ANNOTATION.format(name=name, members=members))
        sources = [*(folder / "src/main/java").rglob("*.java"), *own.glob("*.java"), PROGRAMS / "Main.java"]
        listed = cases.file(folder / "sources", "".join(f'"{path}"\n' for path in sources))
        self.run_it("javac", "-proc:none", "-nowarn", "-encoding", "UTF-8", "-cp", generator(), "-d", folder / "out", f"@{listed}")
        self.expect(self.run_it("java", "-cp", f"{folder / 'out'}:{generator()}", "Main", self.world.addresses()))

    @unittest.skipUnless(TSC.exists(), "no TypeScript in build/typescript (setup/extras.sh)")
    @needs("node")
    def test_typescript(self):
        folder = self.generate("typescript-fetch")
        shutil.copytree(folder, folder.parent / "call/client")
        shutil.copy(PROGRAMS / "main.ts", folder.parent / "call")
        (folder.parent / "call/tsconfig.json").write_text(json.dumps({
            "files": ["main.ts"], "compilerOptions": {
                "strict": True, "target": "es2020", "module": "commonjs", "moduleResolution": "node", "types": [],
                "lib": ["es2020", "dom", "dom.iterable"], "outDir": str(folder.parent / "called")}}))
        self.run_it("node", TSC, "-p", folder.parent / "call")
        self.expect(self.run_it("node", folder.parent / "called/main.js", self.world.addresses()))

    def test_python(self):
        folder = self.generate("python")
        self.expect(self.run_it(sys.executable, PROGRAMS / "main.py", self.world.addresses(), PYTHONPATH=str(folder),
                                PYTHONDONTWRITEBYTECODE="1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
