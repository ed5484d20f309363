# SPDX-License-Identifier: Apache-2.0
"""What the sanitizers say about the programs that a test starts; tests/reports.h tells why.

Importing it sends their reports to the folder CAIRN_TEST_REPORTS, which ctest sets, or to a new one.
"""
import atexit
import contextlib
import os
import pathlib
import tempfile

SHOWN_BYTES = 16384


def _folder():
    chosen = os.environ.get("CAIRN_TEST_REPORTS")
    if not chosen:
        chosen = tempfile.mkdtemp(prefix="cairn-reports-")
        atexit.register(_remove_empty, chosen)
    path = pathlib.Path(chosen)
    path.mkdir(parents=True, exist_ok=True)
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
        own = os.environ.get(name)
        os.environ[name] = ":".join([*([own] if own else []), f"log_path={path}/report",
                                     "log_exe_name=1"])
    return path


def _remove_empty(path):
    with contextlib.suppress(OSError):
        os.rmdir(path)


FOLDER = _folder()
_told = set()


def check():
    """Fails with each report that was not told yet. The files stay: ctest looks again at the end."""
    new = sorted(set(FOLDER.iterdir()) - _told)
    _told.update(new)
    texts = [f"--- {path.name}\n{path.read_text(errors='replace')[:SHOWN_BYTES]}" for path in new]
    assert not texts, "a sanitizer reports:\n" + "\n".join(texts)
