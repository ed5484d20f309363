# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker,full seconds=600 thirds=6
"""Debian 13, with its compilers and libraries (gcc 14, clang 19, curl 8.14, libmicrohttpd 1.0): both compilers build all of the product
without a warning, and the suites in C pass there over those libraries."""
import subprocess
import unittest

import engine
from engine import docker, ROOT

NAME, SUITE = "cairn-debian13", "trixie"
PRODUCT = "cairn-command cairn-server cairn-uploader cairn cairn_cuda man"
SUITES = "api cli client common formats http plan s3 server store uploader"
CLANG = "-DCMAKE_C_COMPILER=clang -DCMAKE_C_FLAGS=-Wc23-extensions"


def packages():
    """What setup/packages.sh names for building and testing."""
    said = subprocess.run(["bash", "-c", '. setup/packages.sh; printf "%s\\n" "${cairn_packages_build[@]}" libcunit1-dev python3 clang'],
                          cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(set(said.stdout.split()))


class Debian13(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        engine.needed()
        engine.make_image(NAME, SUITE, packages())
        cls.id = docker("run", "-d", "--network", "host", "-v", f"{ROOT}:/source:ro", NAME, "sleep", "infinity").stdout.strip()
        cls.addClassCleanup(docker, "rm", "-f", "-v", cls.id, check=False)

    def run_in(self, text):
        engine.shown("docker", "exec", self.id, "bash", "-c", text)

    def build(self, folder, targets, more=""):
        with engine.ccache() as url:
            self.run_in(f"export CCACHE_REMOTE_STORAGE={url} CCACHE_REMOTE_ONLY=1 CCACHE_COMPILERCHECK=content && cmake -S /source -B "
                        f"/built/{folder} -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCAIRN_WERROR=ON -DCAIRN_CUDA_KERNELS=OFF "
                        f"-DCMAKE_C_COMPILER_LAUNCHER=ccache {more} >/tmp/said && ninja -C /built/{folder} {targets} >/tmp/said || "
                        "{ grep -E -A8 'FAILED|error|warning' /tmp/said | head -60; exit 1; }")

    def test_gcc_builds_it_without_a_warning(self):
        self.build("gcc", PRODUCT)

    def test_clang_builds_it_without_a_warning(self):
        self.build("clang", PRODUCT, CLANG)

    def test_the_suites_in_c_pass(self):
        """Module by module, as ctest runs them; none may be skipped but for what a container lacks."""
        self.build("suites", " ".join(f"tests_{suite}" for suite in SUITES.split()) + " all",
                   "-DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O0 -DCAIRN_HARDENED=OFF -DCAIRN_CRASHPOINTS=ON")
        self.run_in(f"cd /built/suites && PYTHONDONTWRITEBYTECODE=1 CAIRN_SOURCE_DIR=/source ctest --output-on-failure -j4 "
                    f"-R '^({SUITES.replace(' ', '|')})/' -LE 'full|python|postgresql|torch|gpu|moto|tsan'")


if __name__ == "__main__":
    engine.main()
