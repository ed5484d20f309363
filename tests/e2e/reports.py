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
OF_KILLED = "==Unable to get registers from thread "


def _folder():
    chosen = os.environ.get("CAIRN_TEST_REPORTS")
    if not chosen:
        chosen = tempfile.mkdtemp(prefix="cairn-reports-")
        atexit.register(_remove_empty, chosen)
    path = pathlib.Path(chosen)
    path.mkdir(parents=True, exist_ok=True)
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
        own = os.environ.get(name)
        os.environ[name] = ":".join([*([own] if own else []), f"log_path='{path}/report'",
                                     "log_exe_name=1"])  # quoted: a space ends an option
    return path


def _remove_empty(path):
    with contextlib.suppress(OSError):
        os.rmdir(path)


FOLDER = _folder()
_told = set()


def _text(path):
    return path.read_text(errors="replace")[:SHOWN_BYTES]


def _of_killed(text):
    """Whether each line is of a process that was killed while it was looked at for leaks."""
    lines = [line for line in text.splitlines() if line]
    return bool(lines) and all(OF_KILLED in line for line in lines)


def check():
    """Fails with each report that was not told yet. The files stay: ctest looks again at the end."""
    new = sorted(set(FOLDER.iterdir()) - _told)
    _told.update(new)
    texts = [f"--- {path.name}\n{text}" for path in new if not _of_killed(text := _text(path))]
    assert not texts, "a sanitizer reports:\n" + "\n".join(texts)
