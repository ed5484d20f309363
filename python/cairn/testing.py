# SPDX-License-Identifier: Apache-2.0
"""For the tests of programs that save with Cairn: a private server, an uploader and a folder store.

    from cairn.testing import cairn_up            # a pytest fixture

    def test_it_resumes(cairn_up):
        run = cairn_up.run("test/run")
        run.save(1, {"x": [1, 2]})
        assert run.latest().load() == {"x": [1, 2]}

pytest finds the fixture by itself where the package is installed (entry point `pytest11`). Without pytest:
`with cairn.testing.World() as world: ...`."""
from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from . import errors
from ._session import sessions
from ._up import Up


class World(Up):
    """Real programs, on a folder that goes with them. kill() and restart() are for tests of what a crash does."""

    def __init__(self, **options: Any) -> None:
        os.environ.setdefault("CAIRN_STOP_NOTICE", "0ms")
        super().__init__(**options)

    def __enter__(self) -> World:
        return self

    def close(self) -> None:
        for session in sessions():
            if session.socket == self.socket and not session.closed:
                with contextlib.suppress(errors.CairnError):
                    session.finish(5.0)
        super().close()

    def kill(self) -> None:
        """As a machine that loses its power: nothing is flushed or said."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


try:
    import pytest
except ImportError:
    pass
else:
    @pytest.fixture
    def cairn_up() -> Iterator[World]:
        with World() as world:
            yield world
