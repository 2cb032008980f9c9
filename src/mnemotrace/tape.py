"""Tape: recorded runs with what the models answered in them, and the file they are kept in.

The file is JSON: a header with format, schema version and a checksum of the body. Vectors are
base64 of little-endian float32, each kept once. Everything that was saved, asked and answered is
in it, so only its owner may read it (mode 0600). It is written beside its place and then moved
there, so that a file of that name is always a whole one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .capture import Kind
from .errors import TapeError
from .flows.requests import SaveRequest
from .llm.protocol import LLMRequest
from .stores.outbox_items import decode_options, encode_options
from .stores.selection import Selection

FORMAT = "mnemotrace-tape"
SCHEMA_VERSION = 1
_COMPACT: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}
Vectors = NDArray[np.float32]


@dataclass(slots=True)
class TapedRun:
    """One recorded run.

    Attributes:
        kind: ``recall`` or ``encode``.
        memory: which of `Tape.memories` it ran on.
        now: the time it took as its own, ISO 8601.
        arguments: what was asked or saved.
        answers: what the language model answered, in order: ``key`` of the request, ``purpose``,
            and ``text``, ``model``, ``tokens_in``, ``tokens_out``, ``cost``, or ``error`` and
            ``message``.
        embedded: key of each text that was embedded, and which of `Tape.vectors` it got.
        not_embedded: keys of texts that the embedder failed on, and its message.
        unavailable: why the language model could not be asked at all; None when it could.
        result: what came out; ``error`` and ``message`` when it failed.
        trace: `Trace.to_json` of the run; None when tracing was off.
    """

    kind: Literal["recall", "encode"]
    memory: int
    now: str
    arguments: dict[str, Any]
    answers: list[dict[str, Any]] = field(default_factory=list)
    embedded: dict[str, int] = field(default_factory=dict)
    not_embedded: dict[str, str] = field(default_factory=dict)
    unavailable: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    trace: dict[str, Any] | None = None


@dataclass(slots=True)
class Tape:
    """Recorded runs, in the order in which they ended.

    Attributes:
        runs: the runs.
        memories: settings, fingerprint of the embedder (None for a store not yet written) and name
            of the language model of each memory they ran on.
        vectors: each vector once.
    """

    runs: list[TapedRun] = field(default_factory=list)
    memories: list[dict[str, Any]] = field(default_factory=list)
    vectors: list[bytes] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict, repr=False)

    def memory(self, settings: dict[str, Any]) -> int:
        """Return the place of a memory's settings, which are added if they are new."""
        if settings not in self.memories:
            self.memories.append(settings)
        return self.memories.index(settings)

    def keep(self, vector: Vectors) -> int:
        """Return the place of a vector, which is added if it is new."""
        raw = np.ascontiguousarray(vector, dtype="<f4").tobytes()
        place = self._places.setdefault(raw, len(self.vectors))
        if place == len(self.vectors):
            self.vectors.append(raw)
        return place

    def vector(self, place: int) -> Vectors:
        """Return a vector, exactly as it was given."""
        return np.frombuffer(self.vectors[place], dtype="<f4").astype(np.float32)

    def save(self, path: Path) -> None:
        """Write the tape, readable by its owner only; a file of that name is replaced at once.

        Raises:
            TapeError: it cannot be written there; what was there is still there.
        """
        body = json.dumps(
            {
                "memories": self.memories,
                "vectors": [base64.b64encode(raw).decode("ascii") for raw in self.vectors],
                "runs": [asdict(run) for run in self.runs],
            },
            **_COMPACT,
        )
        head = json.dumps(
            {"format": FORMAT, "schema_version": SCHEMA_VERSION, "sha256": _sum(body)}
        )
        try:
            # Made with mode 0600.
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
                    file.write(f'{head[:-1]}, "body": {body}}}\n')
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            raise TapeError(
                f"The tape cannot be written to {str(path)!r} ({error.strerror or error}). Choose "
                "a folder that exists and can be written to, and record again."
            ) from error


def load(path: Path) -> Tape:
    """Read a tape.

    Raises:
        TapeError: there is no such file, it is damaged, something else, or of a newer release.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as error:
        raise TapeError(
            f"The tape {str(path)!r} cannot be read ({error.strerror or error})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not whole JSON text: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise TapeError(
            f"{str(path)!r} is not a tape of mnemotrace. Pass a file that mnemotrace.record() wrote."
        )
    version = data.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise TapeError(
            f"The tape {str(path)!r} has schema version {version!r}; this release reads up to "
            f"{SCHEMA_VERSION}. Upgrade mnemotrace, or record again."
        )
    try:
        body = data["body"]
        if _sum(json.dumps(body, **_COMPACT)) != data["sha256"]:
            raise ValueError("its checksum does not fit its content")
        tape = Tape(
            [TapedRun(**run) for run in body["runs"]],
            list(body["memories"]),
            [base64.b64decode(text, validate=True) for text in body["vectors"]],
        )
        for run in tape.runs:
            tape.memories[run.memory], datetime.fromisoformat(run.now)
            for place in run.embedded.values():
                tape.vector(place)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        raise _damaged(path, str(error)) from error
    return tape


def _damaged(path: Path, why: str) -> TapeError:
    return TapeError(f"The tape {str(path)!r} is damaged: {why}. Record it again, or restore it.")


def _sum(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


# What runs are made of, as JSON.


def request_key(request: LLMRequest) -> str:
    """Return what tells one request from another, whatever order they come in."""
    parts = [request.purpose, request.system, request.prompt, request.schema]
    return _sum(json.dumps(parts, sort_keys=True))[:32]


def text_key(kind: Kind, text: str) -> str:
    """Return what tells one text to be embedded from another."""
    return _sum(f"{kind}\0{text}")[:32]


def selection_to_json(selection: Selection) -> Any:
    """Return a selection as plain data, for `selection_from_json`."""
    fields = asdict(selection)
    fields["metadata"] = {
        key: list(value) if isinstance(value, (set, frozenset)) else value
        for key, value in fields["metadata"].items()
    }
    return json.loads(encode_options(fields))


def selection_from_json(data: Any) -> Selection:
    """Return the selection that `selection_to_json` was given."""
    return Selection(**decode_options(json.dumps(data)))


def save_to_json(request: SaveRequest) -> dict[str, Any]:
    """Return a save as plain data, for `save_from_json`."""
    return {
        "content": request.content,
        "record_id": request.record_id,
        "position": request.position,
        "options": json.loads(encode_options(request.options())),
    }


def save_from_json(data: Mapping[str, Any]) -> SaveRequest:
    """Return the save that `save_to_json` was given."""
    options = decode_options(json.dumps(data["options"]))
    return SaveRequest.restore(data["content"], data["record_id"], data["position"], options)


def zone_to_json(zone: tzinfo | None, moment: datetime) -> dict[str, Any]:
    """Return a time zone as plain data; None is this machine's, kept with its offset then."""
    here = moment.astimezone(zone)
    data: dict[str, Any] = {"offset": (here.utcoffset() or timedelta()).total_seconds()}
    data["name"] = here.tzname()
    data["key"] = getattr(zone, "key", None)
    data["local"] = zone is None
    return data


def zone_from_json(data: Mapping[str, Any], moment: datetime) -> tzinfo | None:
    """Return the time zone that `zone_to_json` was given, or one with the offset it had then.

    Raises:
        TapeError: this machine does not know a zone of that name.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if data["key"] is not None:
        try:
            return ZoneInfo(data["key"])
        except ZoneInfoNotFoundError as error:
            raise TapeError(
                f"The tape needs the time zone {data['key']!r}, which this machine does not know. "
                "Install the package tzdata."
            ) from error
    offset = timedelta(seconds=data["offset"])
    if data["local"] and moment.astimezone().utcoffset() == offset:
        return None
    return timezone(offset, data["name"] or "") if data["name"] else timezone(offset)
