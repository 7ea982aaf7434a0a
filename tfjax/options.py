"""Settings declared once, as dataclass fields: flag, environment variable, help, limits and default."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol

ENV_PREFIX = "TFJAX_"
CONFIG_ENV = ENV_PREFIX + "CONFIG"
MASK = "***"


class ConfigError(ValueError):
    """A setting that cannot be used. The message names the setting, its value, the limit and the remedy."""


class Kind[T](Protocol):
    """What values a setting takes. Both methods raise ValueError with what follows the value in the message."""

    @property
    def metavar(self) -> str | None:
        """How the help names the value; None names it after the setting."""

    def parse(self, text: str) -> T:
        """The value written as `text`."""

    def check(self, value: T) -> T:
        """The value itself when it is within the limits."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """Everything about one setting but its name, type and default, which the dataclass field holds.

    Attributes:
        kind: what values it takes; None for an on/off switch.
        flags: the first is ours, the others are spellings of other servers.
        group: heading in the help.
        help: what it does, and what a higher value or another choice leads to.
        default_text: how the help says the default when the value alone does not tell.
        off_flag: for a switch, the flag that overrides an environment or file that turned it on.
        positional: also given as an argument without a flag.
        repeat: may be given several times.
        secret: never shown.
    """

    kind: Kind[Any] | None
    flags: tuple[str, ...]
    group: str
    help: str
    default_text: str | None = None
    off_flag: str | None = None
    positional: bool = False
    repeat: bool = False
    secret: bool = False


def setting(default: Any, *flags: str, group: str, help: str, kind: Kind[Any] | None = None, **more: Any) -> Any:
    """A dataclass field that is a setting; `more` are the other attributes of Option."""
    option = Option(kind, flags, group, help, **more)
    return dataclasses.field(default=default, metadata={"option": option}, repr=not option.secret)


def options(config: type[Any] | Any) -> Iterator[tuple[dataclasses.Field[Any], Option]]:
    """The settings of a dataclass, in order."""
    for field in dataclasses.fields(config):
        yield field, field.metadata["option"]


def env_name(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def check_values(config: Any) -> None:
    """Checks every value of a settings dataclass against its limits.

    Raises:
        ConfigError: names the flag, the value and the limit.
    """
    for field, option in options(config):
        value = getattr(config, field.name)
        if option.kind is None or value is None:
            continue
        for item in value if option.repeat else (value,):
            guard(option.flags[0], item, option, option.kind.check)


def add_options(parser: argparse.ArgumentParser, config: type[Any], names: Collection[str] | None = None) -> None:
    """Adds the settings of a dataclass (or those named) to a parser. One that is not given leaves no attribute."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for field, option in options(config):
        if names is None or field.name in names:
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            _add_option(groups[option.group], field, option)
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"TOML file of settings, named like the flags; flags and environment win over it (env {CONFIG_ENV})",
    )


def _add_option(group: argparse._ArgumentGroup, field: dataclasses.Field[Any], option: Option) -> None:
    text = _help_text(field, option).replace("%", "%%")
    common: dict[str, Any] = {"default": argparse.SUPPRESS}
    if option.positional:
        group.add_argument(field.name, nargs="?", metavar=field.name.upper(), help=text, **common)
        group.add_argument(
            *option.flags, dest=f"{field.name}_flag", metavar="NAME", help="the same, as a flag", **common
        )
    elif option.kind is None:
        group.add_argument(*option.flags, dest=field.name, action="store_true", help=text, **common)
        if option.off_flag:
            group.add_argument(option.off_flag, dest=field.name, action="store_false", help=argparse.SUPPRESS, **common)
    else:
        action = "append" if option.repeat else "store"
        group.add_argument(
            *option.flags,
            dest=field.name,
            action=action,
            metavar=option.kind.metavar or field.name.upper(),
            help=text,
            **common,
        )


def _help_text(field: dataclasses.Field[Any], option: Option) -> str:
    default = option.default_text or _shown(field.default)
    more = "; may be repeated" if option.repeat else ""
    off = f"; {option.off_flag} undoes it" if option.off_flag else ""
    return f"{option.help}{more} (default: {default}{off}; env {env_name(field.name)})"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == () else str(value)


def guard[V, R](source: str, value: V, option: Option, convert: Callable[[V], R]) -> R:
    """Converts a value; a ValueError becomes a ConfigError that names where the value came from."""
    try:
        return convert(value)
    except ValueError as error:
        raise ConfigError(f"{source}: {MASK if option.secret else repr(value)} {error}") from None
