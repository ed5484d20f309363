# SPDX-License-Identifier: Apache-2.0
# ctest: as=radosgw with="radosgw" seconds=80
# ctest: as=radosgw_long with="radosgw --seeds 5" labels=full
# ctest: as=swift with="swift" labels=full,swift
"""Everything that runs against a real S3 server, against one that is installed and started here:

    python3 tests/e2e/real_server.py radosgw|swift [--seeds N]
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import ports
from world import BIN

HERE = pathlib.Path(__file__).resolve().parent
PORTS = 10  # in a row, of its daemons


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=("radosgw", "swift"))
    parser.add_argument("--seeds", type=int, default=1, help="of chaos.py")
    arguments = parser.parse_args()
    script = [HERE.parent / "s3" / f"{arguments.server}.sh"]
    folder, port = pathlib.Path(tempfile.mkdtemp(prefix="cairn-real-")), str(ports.free(PORTS))
    try:
        started = subprocess.run([*script, "start", folder, port], check=False).returncode
        if started:
            return started
        said = subprocess.run([*script, "env", folder, port], check=True, text=True, stdout=subprocess.PIPE).stdout
        for line in said.splitlines():
            name, value = line.removeprefix("export ").split("=", 1)
            os.environ[name] = value.strip("'")
        steps = ([BIN / "tests_s3", "s3/s3_server"],
                 [sys.executable, HERE / "test_s3.py", "--endpoint-from-environment"],
                 [sys.executable, HERE / "test_not_freed.py", "OnARealServer",
                  "--endpoint-from-environment"],
                 [sys.executable, HERE / "test_reindex.py", "RealLost", "RealOld",
                  "--endpoint-from-environment"],
                 [sys.executable, HERE / "test_foreign.py"],
                 [sys.executable, HERE / "chaos.py", "--store", "environment", "--seeds",
                  str(arguments.seeds)])
        if arguments.server == "radosgw":
            steps += ([sys.executable, HERE / "deploy_ceph.py", folder],)
        return max(abs(subprocess.run(step, check=False).returncode) for step in steps)
    finally:
        subprocess.run([*script, "stop", folder, port], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
