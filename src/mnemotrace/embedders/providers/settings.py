"""A provider's config: its names checked, its values found, its secrets kept apart."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mnemotrace.checks import kind_of, shortened
from mnemotrace.errors import ConfigurationError, EmbedderError
from mnemotrace.naming import nearest

from .table import Option, Provider

_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, str) and bool(value.strip())),
    "count": (
        "a whole number from 0 on",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    ),
    "seconds": (
        "a number of seconds above 0",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > 0,
    ),
    "flag": ("True or False", lambda value: isinstance(value, bool)),
    "mapping": ("a dict", lambda value: isinstance(value, Mapping)),
    "object": ("an object", lambda value: True),
}
_MAY_BE_ZERO = "max_retries"

NO_KEY_NEEDED = "not-needed"
"""Sent as the key to an OpenAI-compatible server of the user's own: the client insists on one."""


def check_names(provider: str, config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse config names that a provider does not have, with the nearest one it has.

    Raises:
        ConfigurationError: there is such a name.
    """
    names = list(known)
    unknown = sorted(set(map(str, config)) - set(names))
    if not unknown:
        return
    near = nearest(unknown[0], names)
    hint = f". Did you mean {near!r}?" if near else ""
    raise ConfigurationError(
        f'embedder provider "{provider}" takes {", ".join(names) or "no config"}; '
        f"unknown here: {', '.join(unknown)}{hint}"
    )


class Settings:
    """The config of one provider.

    Environment variables are looked up when a value is needed, so a key may be set after the
    memory was made.

    Args:
        key: the provider's key in the table.
        provider: its row.
        config: as the user gave it, or as a store's manifest recorded it. A None counts as not
            given.
        from_store: the config comes from a manifest. Its address may then be another one's
            choice: it gets no key from the environment unless it is the provider's own, this
            machine, or what the environment says too.

    Raises:
        ConfigurationError: a name is unknown, or a value of the wrong kind.
    """

    def __init__(
        self, key: str, provider: Provider, config: Mapping[str, Any], *, from_store: bool = False
    ) -> None:
        check_names(key, config, provider.options)
        self.key = key
        self.provider = provider
        self._from_store = from_store
        self._given = {name: value for name, value in config.items() if value is not None}
        for name, value in self._given.items():
            self._check_kind(name, value, provider.options[name])

    def _check_kind(self, name: str, value: Any, option: Option) -> None:
        wanted, fits = _KINDS[option.kind]
        if fits(value) and (value != 0 or option.kind != "count" or name == _MAY_BE_ZERO):
            return
        shown = kind_of(value) if option.secret else shortened(value)
        if option.kind == "count" and name != _MAY_BE_ZERO:
            wanted = "a whole number above 0"
        raise ConfigurationError(
            f'config "{name}" of embedder provider "{self.key}" must be {wanted}, not {shown}'
        )

    def get(self, name: str) -> Any:
        """Return a value: from the config, else the environment, else the default, else None."""
        option = self.provider.options.get(name)
        if option is None:
            return None
        if name in self._given:
            return self._given[name]
        return _from_environment(option) or option.default

    @property
    def model(self) -> str:
        """The model's name as the provider knows it; empty while a required one is missing."""
        return str(self.get(self.provider.model) or "")

    def require(self) -> None:
        """Make sure that what is needed beside a key is there.

        Raises:
            ConfigurationError: it is not; the message has the config name and the variable.
        """
        for name, option in self.provider.options.items():
            if option.required and not self.get(name):
                raise ConfigurationError(self._needs(name))
        if self.provider.one_of and not any(map(self.get, self.provider.one_of)):
            raise ConfigurationError(self._needs(*self.provider.one_of))

    def _needs(self, *names: str) -> str:
        quoted = " or ".join(f'"{name}"' for name in names)
        variables = [v for name in names for v in self.provider.options[name].variables]
        hint = f", or the environment variable {' or '.join(variables)}" if variables else ""
        return f'embedder provider "{self.key}" needs config {quoted}{hint}'

    def arguments(self) -> dict[str, Any]:
        """Return what is handed on to litellm, the key included.

        Raises:
            EmbedderError: the key or another value is missing, or the key must not be sent to the
                address that the store names.
        """
        try:
            self.require()
        except ConfigurationError as error:
            raise EmbedderError(f"{error}. Nothing was sent.") from None
        found: dict[str, Any] = {}
        for name, option in self.provider.options.items():
            value = self.get(name)
            if option.argument is not None and value is not None:
                found[option.argument] = value
        self._check_key(found)
        return found

    def _check_key(self, found: dict[str, Any]) -> None:
        """Make sure that there is a key, and that it may be sent where it would go."""
        name = self.provider.key
        if name is not None and name not in self._given:
            option = self.provider.options[name]
            if _from_environment(option) is None:
                if self.key != "openai" or not self.get("api_base"):
                    raise EmbedderError(
                        f"the embedder {self.key}/{self.model} needs a key: set the environment "
                        f"variable {' or '.join(option.variables)}, or pass it as config "
                        f'"{name}". Nothing was sent.'
                    )
                found[name] = NO_KEY_NEEDED
                return
        address = self._given.get(self.provider.address or "")
        if not self._from_store or address is None or not self.provider.trusted:
            return
        if not self._trusts(str(address)):
            raise EmbedderError(
                f"the store says that its embedder {self.key}/{self.model} is at {address}, which "
                f"is not {self.provider.title}'s own address, so nothing was sent there, least of "
                "all your key. If the address is right, pass it yourself: Memory(embedder="
                f'{{"provider": "{self.key}", "config": {{"{self.provider.address}": ...}}}})'
            )

    def _trusts(self, address: str) -> bool:
        option = self.provider.options[self.provider.address or ""]
        host = (urlsplit(address).hostname or "").lower()
        if address == _from_environment(option) or host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            pass
        return any(
            host.endswith(name) if name.startswith(".") else host == name
            for name in self.provider.trusted
        )

    def recorded(self) -> dict[str, Any]:
        """Return what a manifest keeps: everything given, without secrets; plain JSON."""
        kept: dict[str, Any] = {self.provider.model: self.model}
        for name, value in self._given.items():
            option = self.provider.options[name]
            if not option.secret:
                kept[name] = dict(value) if option.kind == "mapping" else value
        address = self.provider.address
        if address is not None and address in kept:
            kept[address] = _without_secrets(str(kept[address]))
        return kept

    def censor(self, text: str) -> str:
        """Return a text without any of the secrets in force."""
        for name, option in self.provider.options.items():
            secret = self.get(name) if option.secret else None
            if isinstance(secret, str) and len(secret) > 3:
                text = text.replace(secret, "***")
        return text


def _from_environment(option: Option) -> str | None:
    return next((value for name in option.variables if (value := os.environ.get(name))), None)


def _without_secrets(address: str) -> str:
    """Return an address without user name, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
