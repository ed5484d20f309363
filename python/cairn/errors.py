# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions: a code to act on, a sentence to read, and what to do about it."""
from __future__ import annotations

from typing import Any

# What a person does about a code, where there is one thing to do. Other codes say it in their message.
HINTS = {
    "uploader-gone": "start one with `cairn up FOLDER`, or let CAIRN_SOCKET name the node's uploader",
    "no-memory": "give the uploader a larger --memory-budget, or save less at once",
    "unauthorized": "the uploader's token is not taken: look at its --token-file",
    "forbidden": "the uploader's token may not do this: `cairn token ls` shows what it may",
    "no-space": "free space where the store or the uploader's state lies; `cairn forget` removes versions",
    "quota-exceeded": "delete versions, or have the project's quota raised (`cairn quota`)",
    "stale-attempt": "another job, or another session of this one, has taken the run over; one writer a run",
    "job-reused": "each start of a job needs a job string of its own: set CAIRN_JOB",
    "step-exists": "pass on_exists='new-version' or 'supersede', or save another step",
    "begin-differs": "the ranks did not list the same replicated tensors; mark a rank's own with cairn.local()",
    "store-corrupt": "the version is damaged: `cairn verify` says where; load another one",
    "unsupported": "use libcairn, the package and the uploader of one release",
    "broken": "this process can save no more; please report what `origin` names",
}


class CairnError(Exception):
    """code: the slug of docs/codes.md. run, step, rank: what it was about, where that is known. retryable: the
    same call may succeed later."""

    def __init__(self, message: str, *, code: str = "internal", retryable: bool = False,
                 exit_status: int = 1, run: str | None = None, step: int | None = None,
                 rank: int | None = None, hint: str | None = None, os_errno: int = 0, http_status: int = 0,
                 request_id: str = "", origin: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.retryable, self.exit_status = message, code, retryable, exit_status
        self.run, self.step, self.rank = run, step, rank
        self.hint = hint or HINTS.get(code)
        self.os_errno, self.http_status, self.request_id, self.origin = os_errno, http_status, request_id, origin

    def __str__(self) -> str:
        where = ", ".join(f"{name} {value}" for name, value in
                          (("run", self.run), ("step", self.step), ("rank", self.rank)) if value is not None)
        told = f"{self.message} [{self.code}{'; ' + where if where else ''}]"
        return f"{told}; {self.hint}" if self.hint else told

    def __reduce__(self) -> Any:
        state = dict(self.__dict__)
        return _remake, (type(self), state.pop("message"), state)


def _remake(kind: type[CairnError], message: str, state: dict[str, Any]) -> CairnError:
    made = kind(message)
    made.__dict__.update(state)
    return made


class NotFound(CairnError, FileNotFoundError):
    """No such run, version, tensor or file."""


class Timeout(CairnError, TimeoutError):
    """Not yet; the call may be repeated."""


class Invalid(CairnError, ValueError):
    """The call is wrong."""


class Corrupt(CairnError, OSError):
    """Bytes do not match their checksums."""


class Cancelled(CairnError):
    """The save was given up."""


class Skipped(CairnError):
    """The save was left out, because an earlier one was still being sent."""


class Gone(CairnError, ConnectionError):
    """There is no uploader."""


class Forked(CairnError, RuntimeError):
    """The session belongs to the process that has forked this one."""


_KINDS: dict[str, type[CairnError]] = {
    "not-found": NotFound, "not-yet": NotFound, "checkpoint-deleted": NotFound, "not-committed": NotFound,
    "timeout": Timeout, "invalid": Invalid, "range": Invalid, "store-corrupt": Corrupt,
    "source-changed": Corrupt, "cancelled": Cancelled, "skipped": Skipped, "uploader-gone": Gone,
}


def make(message: str, *, code: str, **values: Any) -> CairnError:
    return _KINDS.get(code, CairnError)(message, code=code, **values)
