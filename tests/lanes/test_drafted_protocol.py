"""The wrapper of target and drafter has every name of the target's protocol and passes it on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.scripted_drafter import ScriptedDrafter
from tests.stubs import VOCAB, ScriptedBackend
from tfjax.lanes.backend import Backend
from tfjax.lanes.drafted import Drafted
from tfjax.lanes.drafter import Drafter
from tfjax.lanes.stream import Request, Stream, Times
from tfjax.lanes.window import Window


def names(protocol: type) -> set[str]:
    return {name for name in {*protocol.__annotations__, *vars(protocol)} if not name.startswith("_")}


def methods(protocol: type) -> set[str]:
    return {name for name in names(protocol) if inspect.isfunction(vars(protocol).get(name))}


def attributes(protocol: type) -> set[str]:
    return names(protocol) - methods(protocol)


class Target:
    """Answers every attribute and call with something that shows where it came from."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        for name in attributes(Backend):
            setattr(self, name, f"the target's {name}")

    def __getattr__(self, name: str) -> Any:
        if name not in names(Backend):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self.calls.append(name)
            return [] if name == "read" else f"from {name}"

        return call


class Nobody:
    """A drafter that nothing may be asked of."""


def arguments(name: str, drafted: Drafted) -> list[Any]:
    """What a walk over the protocol calls each method with; a method without an entry here fails the walk."""
    stream = Stream(Request("r", (1, 2), 5, drafts=False), 7, Times(0.0))
    window = Window(stream, 1, 2)
    return {
        "prefill_begin": lambda: [stream],
        "prefill_step": lambda: [stream, 0, 2],
        "first": lambda: [stream],
        "verify": lambda: [[window]],
        "read": lambda: [drafted.verify([])],
        "keep": lambda: [[window] if drafted.verify([window]) else [], [1]],
        "release": lambda: [stream],
    }[name]()


@pytest.mark.parametrize("name", sorted(names(Backend)))
def test_every_name_of_the_protocol_reaches_the_target(name: str) -> None:
    target = Target()
    drafted = Drafted(target, Nobody(), VOCAB)
    if name in attributes(Backend):
        assert getattr(drafted, name) == f"the target's {name}"
        return
    given = arguments(name, drafted)
    target.calls.clear()
    getattr(drafted, name)(*given)
    assert target.calls == [name]


@pytest.mark.parametrize("name", sorted(methods(Backend)))
def test_signatures_are_those_of_the_protocol(name: str) -> None:
    def shape(owner: type) -> list[str]:
        return list(inspect.signature(getattr(owner, name)).parameters)

    assert shape(Drafted) == shape(Backend) == shape(ScriptedBackend)


def test_the_scripted_drafter_has_every_name_of_its_protocol() -> None:
    drafter = ScriptedDrafter(ScriptedBackend())
    assert all(hasattr(drafter, name) for name in names(Drafter))
