from __future__ import annotations

from dataclasses import fields

import pytest

from tests.lanes.harness import settings
from tfjax.lanes.settings import Settings

LEAST = {"context": 2, "draft_tokens": 0, "prompt_pages": 0, "learn_rows": 0, "run_ahead": 0}


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_a_number_that_is_too_small_is_refused_by_name(name: str) -> None:
    least = LEAST.get(name, 1)
    settings(**{name: least})
    with pytest.raises(ValueError, match=f"{name} is {least - 1}; it must be at least {least}"):
        settings(**{name: least - 1})
