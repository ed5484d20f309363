# SPDX-License-Identifier: Apache-2.0
# Lightning's own types, as one class for both of its packages.
import abc
from typing import Any

class CheckpointIO(abc.ABC):
    @abc.abstractmethod
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None: ...
    @abc.abstractmethod
    def load_checkpoint(self, path: Any, map_location: Any | None = None,
                        weights_only: bool | None = None) -> dict[str, Any]: ...
    @abc.abstractmethod
    def remove_checkpoint(self, path: Any) -> None: ...
    def teardown(self) -> None: ...
