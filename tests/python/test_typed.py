# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=30 rooms=python
"""The package has types, and pyright finds no fault in them by its strict rules (pyproject.toml)."""
import json
import subprocess
import sys
import unittest

import package


class Typed(unittest.TestCase):
    def test_pyright_finds_nothing_by_its_strict_rules(self):
        # A class that is derived from one of a framework has types where the framework is there.
        package.needs("pyright", "torch", "fsspec", "torch_checkpointing", "deepspeed", "lightning", "transformers", "accelerate",
                      "jax")
        done = subprocess.run([sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
                              cwd=package.TREE, capture_output=True, text=True, timeout=package.HANG_S, check=False)
        found = json.loads(done.stdout)
        self.assertGreater(found["summary"]["filesAnalyzed"], 20)
        self.assertEqual([f"{row['file']}:{row['range']['start']['line'] + 1}: {row['message']}"
                          for row in found["generalDiagnostics"] if row["severity"] == "error"], [])

    def test_the_package_says_that_it_has_types(self):
        self.assertTrue((package.PACKAGE / "cairn" / "py.typed").exists())


if __name__ == "__main__":
    package.main()
