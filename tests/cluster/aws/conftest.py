"""Models of AWS's services are read once, and not anew for each of many looks: that is most of a look's time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import botocore.loaders
import botocore.session
import pytest


@pytest.fixture(autouse=True, scope="package")
def one_loader() -> Iterator[None]:
    """By the path that is searched, since one test brings a model of its own."""
    patch = pytest.MonkeyPatch()
    patch.setattr(botocore.session, "create_loader", lru_cache(botocore.loaders.create_loader))
    yield
    patch.undo()
