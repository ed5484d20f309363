# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=30 rooms=python
"""The package has types, and pyright finds no fault in them by its strict rules, of which none is switched off
(pyproject.toml). What it uses of untyped libraries is in python/typings, which is compared with the libraries."""
import ast
import importlib
import inspect
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import package

STUBS = package.PACKAGE / "typings"
USER = """
import cairn
run = cairn.run("project/run")
reveal_type(run)
reveal_type(run.at(1).tensors["w"].shape)
reveal_type(run.async_save(1, {}).committed.result())
reveal_type(cairn.up())
reveal_type(cairn.dcp.save({}, run, 1))
"""


def pyright(*words, **options):
    done = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *words],
                          capture_output=True, text=True, timeout=package.JOB_S, check=False, **options)
    return json.loads(done.stdout)


def signatures(module):
    """Of a stub file: each function's name, with its class where it has one, and the names of its parameters."""
    for node in ast.parse(module.read_text()).body:
        for one in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(one, ast.FunctionDef):
                names = [parameter.arg for parameter in (*one.args.args, *one.args.kwonlyargs)]
                is_property = any(isinstance(how, ast.Name) and how.id == "property" for how in one.decorator_list)
                yield (node.name, one.name) if one is not node else (one.name,), None if is_property else names


class Typed(unittest.TestCase):
    def test_pyright_finds_nothing_by_its_strict_rules(self):
        # A class that is derived from one of a framework has types where the framework is there.
        package.needs("pyright", "torch", "numpy", "transformers", "pytest", "ml_dtypes")
        found = pyright(cwd=package.TREE)
        self.assertGreater(found["summary"]["filesAnalyzed"], 20)
        self.assertEqual([f"{row['file']}:{row['range']['start']['line'] + 1}: {row['message']}"
                          for row in found["generalDiagnostics"] if row["severity"] == "error"], [])

    def test_no_rule_is_switched_off_and_nothing_is_passed_over(self):
        settings = (package.TREE / "pyproject.toml").read_text().partition("[tool.pyright]")[2].partition("\n[")[0]
        self.assertIn('typeCheckingMode = "strict"', settings)
        self.assertNotIn("report", settings)
        for path in (package.PACKAGE / "cairn").rglob("*.py"):
            self.assertIsNone(re.search(r"#\s*(type|pyright):", path.read_text()), path)

    def test_a_program_has_the_types_of_what_it_imports_lazily_too(self):
        package.needs("pyright", "torch")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "user.py").write_text(USER)
            settings = {"include": ["user.py"], "extraPaths": [str(package.PACKAGE)], "typeCheckingMode": "strict"}
            pathlib.Path(folder, "pyrightconfig.json").write_text(json.dumps(settings))
            found = pyright(cwd=folder)
        told = [re.sub(r'^Type of ".*" is "(.*)"$', r"\1", row["message"]) for row in found["generalDiagnostics"]]
        self.assertEqual(told, ["Run", "tuple[int, ...]", "Save", "Up", "Save"])

    def test_the_stubs_have_the_names_of_the_libraries(self):
        compared = set()
        for stub in sorted(STUBS.rglob("*.pyi")):
            name = ".".join(stub.relative_to(STUBS).with_suffix("").parts).removesuffix(".__init__")
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            for path, parameters in signatures(stub):
                own = module
                for part in path:
                    own = inspect.getattr_static(own, part) if inspect.isclass(own) else getattr(own, part)
                if parameters is not None and callable(own := getattr(own, "__func__", own)):
                    known = inspect.signature(own).parameters
                    missing = [parameter for parameter in parameters if parameter not in known]
                    self.assertEqual(missing, [], f"{name}: {'.'.join(path)}")
                compared.add(name)
        if not compared:
            self.skipTest("none of the libraries that have stubs is there")

    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((package.PACKAGE / "cairn" / "py.typed").exists())


if __name__ == "__main__":
    package.main()
