"""Where a setting's value comes from: the flag, else the environment, else the --config file, else the default."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfjax.options import CONFIG_ENV, ENV_PREFIX, MASK, ConfigError, Option, env_name, guard, options


def resolve[C](
    config: type[C], arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ, **fixed: Any
) -> C:
    """Builds the settings from parsed arguments, environment, file and defaults, the first that has a value winning.

    Args:
        fixed: values that nothing else may set.

    Raises:
        ConfigError: a value that cannot be used, an unreadable file, a file key that is no setting.
    """
    given = vars(arguments)
    file = _read_file(config, given.get("config") or environ.get(CONFIG_ENV) or None)
    values: dict[str, Any] = {}
    for field, option in options(config):
        name = field.name
        text = environ.get(env_name(name))
        if name in fixed:
            values[name] = fixed[name]
        elif name in given or f"{name}_flag" in given:
            values[name] = _from_arguments(given, name, option)
        elif text or (text is not None and option.secret):  # an empty secret is an error, not a way to have none
            values[name] = _from_text(env_name(name), text, option)
        elif name in file:
            values[name] = file[name]
    return config(**values)


def unknown_variables(config: type[Any], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Environment variables that look like settings and are none: most likely misspelt."""
    known = {env_name(field.name) for field, _ in options(config)} | {CONFIG_ENV}
    return sorted(name for name in environ if name.startswith(ENV_PREFIX) and name not in known)


def _from_arguments(given: Mapping[str, Any], name: str, option: Option) -> Any:
    if name in given and f"{name}_flag" in given:
        flag, argument = given[f"{name}_flag"], given[name]
        raise ConfigError(f"{option.flags[0]}: {flag!r} is given beside the argument {argument!r}; give one of them")
    value = given.get(name, given.get(f"{name}_flag"))
    if option.kind is None:
        return value
    if option.repeat:
        return tuple(guard(option.flags[0], item, option, option.kind.parse) for item in value)
    return guard(option.flags[0], value, option, option.kind.parse)


def _from_text(source: str, text: str, option: Option) -> Any:
    if option.kind is None:
        return guard(source, text, option, _switch)
    if option.repeat:
        items = [item.strip() for item in text.split(",")]
        return tuple(guard(source, item, option, option.kind.parse) for item in items)
    return guard(source, text, option, option.kind.parse)


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("is neither on nor off; write 1 or 0")


def _read_file(config: type[Any], name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    try:
        table = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--config: {name!r} cannot be read ({error.strerror}); give the path of a TOML file"
        ) from None
    except ValueError as error:
        raise ConfigError(f"--config: {name!r} is not TOML ({error}); lines look like: port = 8080") from None
    known = {field.name: option for field, option in options(config)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        field = key.replace("-", "_")
        if field not in known:
            raise ConfigError(f"{name}: {key!r} is no setting{_suggestion(field, known)}")
        if field in values:
            raise ConfigError(f"{name}: {key!r} stands there twice (- and _ are the same); keep one")
        values[field] = _from_toml(f"{name}: {key}", value, known[field])
    return values


def _suggestion(name: str, known: Mapping[str, Option]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else "; --help lists them"


def _from_toml(source: str, value: Any, option: Option) -> Any:
    if option.kind is None:
        if not isinstance(value, bool):
            raise ConfigError(f"{source}: {value!r} is neither true nor false")
        return value
    kind = option.kind
    if isinstance(value, list) and not option.repeat:
        raise ConfigError(f"{source}: takes one value, not a list")
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            shown = MASK if option.secret else repr(item)
            raise ConfigError(f"{source}: {shown} is neither text nor a number")
    parsed = tuple(guard(source, str(item), option, kind.parse) for item in items)
    return parsed if option.repeat else parsed[0]
