# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the sdist (PEP 517) with nothing but Python, cmake and a C compiler.

The wheel is a function of its sources: names in order, one date, one mode. CAIRN_WHEEL_LIBRARY names a libcairn that
is built already; else cmake builds one (CAIRN_LIBRARY_ONLY)."""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

TREE = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
DIST = PROJECT["name"].replace("-", "_") + "-" + PROJECT["version"]
DATE = (2026, 1, 1, 0, 0, 0)
# What libcairn is made of, for the sdist.
SOURCES = ("api", "client", "common", "formats", "include", "plan", "python", "CMakeLists.txt", "LICENSE", "README.md",
           "pyproject.toml")


def _tag() -> str:
    return f"py3-none-linux_{platform.machine()}"


def _metadata(name: str = PROJECT["name"], extras: bool = True) -> str:
    lines = ["Metadata-Version: 2.3", f"Name: {name}", f"Version: {PROJECT['version']}",
             f"Summary: {PROJECT['description']}", f"Requires-Python: {PROJECT['requires-python']}",
             f"License: {PROJECT['license']}", "Description-Content-Type: text/markdown"]
    lines += [f"Classifier: {one}" for one in PROJECT["classifiers"]]
    for extra, needs in PROJECT["optional-dependencies"].items() if extras else ():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need}; extra == '{extra}'" for need in needs]
    return "\n".join(lines) + "\n\n" + (TREE / "README.md").read_text()


def _entry_points() -> str:
    return "".join(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items()) + "\n"
                   for group, rows in PROJECT["entry-points"].items())


def _stripped(path: pathlib.Path, folder: pathlib.Path) -> bytes:
    """Without symbols for a debugger."""
    copy = folder / path.name
    shutil.copy(path.resolve(), copy)
    subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
    return copy.read_bytes()


def _libraries(folder: pathlib.Path) -> dict[str, bytes]:
    given = os.environ.get("CAIRN_WHEEL_LIBRARY")
    built = pathlib.Path(given) if given else _build(folder)
    return {f"cairn/lib/{name}": _stripped(built / name, folder) for name in ("libcairn.so.1", "libcairn_cuda.so.0")
            if (built / name).exists()}


def _build(folder: pathlib.Path) -> pathlib.Path:
    build = folder / "build"
    subprocess.run(["cmake", "-S", str(TREE), "-B", str(build), "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                    "-DCAIRN_LIBRARY_ONLY=ON"], check=True)
    subprocess.run(["cmake", "--build", str(build), "--parallel", str(os.cpu_count() or 1), "--target", "cairn",
                    "cairn_cuda"], check=True)
    return build


def _package() -> dict[str, bytes]:
    root = TREE / "python"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "cairn").rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in (".py", ".typed", ".pyi")}


def _write(path: pathlib.Path, files: dict[str, bytes], record: str) -> None:
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files[record] = ("".join(rows) + f"{record},,\n").encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = (0o100755 if ".so." in name or "/bin/" in name else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, files[name])


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    with tempfile.TemporaryDirectory() as work:
        files = {**_package(), **_libraries(pathlib.Path(work))}
    return _finish(wheel_directory, DIST, files, _metadata(), _entry_points())


def _finish(wheel_directory: str, dist: str, files: dict[str, bytes], metadata: str, entry_points: str) -> str:
    info = f"{dist}.dist-info"
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/entry_points.txt"] = entry_points.encode()
    files[f"{info}/licenses/LICENSE"] = (TREE / "LICENSE").read_bytes()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: cairn\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    name = f"{dist}-{_tag()}.whl"
    _write(pathlib.Path(wheel_directory, name), files, f"{info}/RECORD")
    return name


def build_daemons(wheel_directory: str, programs: str) -> str:
    """The wheel of the three programs, which lie in the folder `programs`."""
    with tempfile.TemporaryDirectory() as work:
        files = {f"cairn_daemons/bin/{name}": _stripped(pathlib.Path(programs, name), pathlib.Path(work))
                 for name in ("cairn", "cairn-server", "cairn-uploader")}
    files["cairn_daemons/__init__.py"] = (TREE / "python" / "cairn_daemons" / "__init__.py").read_bytes()
    scripts = "[console_scripts]\n" + "".join(f"{name} = cairn_daemons:{function}\n" for name, function in (
        ("cairn", "command"), ("cairn-server", "server"), ("cairn-uploader", "uploader")))
    return _finish(wheel_directory, DIST.replace("cairn_ckpt", "cairn_ckpt_daemons"), files,
                   _metadata("cairn-ckpt-daemons", extras=False), scripts)


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    name = f"{DIST}.tar.gz"
    files = {f"{DIST}/PKG-INFO": _metadata().encode()}
    for source in SOURCES:
        path = TREE / source
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                files[f"{DIST}/{file.relative_to(TREE)}"] = file.read_bytes()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mtime, info.mode = len(data), 1767225600, 0o644
            archive.addfile(info, io.BytesIO(data))
    with open(pathlib.Path(sdist_directory, name), "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=1767225600) as packed:
        packed.write(plain.getvalue())
    return name


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel
