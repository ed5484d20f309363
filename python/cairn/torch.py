# SPDX-License-Identifier: Apache-2.0
"""torch.save and torch.load of one file at a URL.

    cairn.torch.save(obj, "cairn://llm/7b/1200/model.pt")         committed when it returns
    obj = cairn.torch.load("cairn://llm/7b/latest/model.pt")"""
from __future__ import annotations

from typing import Any

import torch

from .fs import CairnFileSystem


def save(value: Any, url: str, **options: Any) -> None:
    """options: torch.save's."""
    with CairnFileSystem().open(url, "wb") as file:
        torch.save(value, file, **options)


def load(url: str, *, map_location: Any = None, weights_only: bool = True, **options: Any) -> Any:
    """options: torch.load's."""
    with CairnFileSystem().open(url, "rb") as file:
        return torch.load(file, map_location=map_location, weights_only=weights_only, **options)


__all__ = ["load", "save"]
