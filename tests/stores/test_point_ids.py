"""Two versions never share a point, however alike their short ids are."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from mnemotrace.stores import changes
from mnemotrace.stores.backend import WriteBatch
from mnemotrace.stores.points import point_id, whole_id
from mnemotrace.stores.qdrant import QdrantStore
from mnemotrace.stores.selection import Selection

from .building import EVERYTHING, MANIFEST, NOW, save, supersede, version
from .conftest import MakeStore

ENGINES = pytest.mark.parametrize("engine", ["make_embedded", "make_server"])


def crowded(record_id: str, number: int) -> int:
    return point_id(record_id, number) % 3


def stored_ids(store: QdrantStore) -> set[int]:
    generation = store._generation()
    assert generation is not None
    rows, _ = generation.collection.scroll(1000, fields=False)
    return {row.id for row in rows}


@ENGINES
def test_ids_are_short_while_nobody_else_has_them(
    engine: str, request: pytest.FixtureRequest
) -> None:
    make: MakeStore = request.getfixturevalue(engine)
    store = make()
    store.initialise(MANIFEST)
    save(store, version("a"), version("b"))
    assert stored_ids(store) == {point_id("a", 1), point_id("b", 1)}
    assert max(stored_ids(store)) < 1 << 63


@ENGINES
@pytest.mark.parametrize("seed", range(2))
def test_versions_with_the_same_short_id_are_kept_apart(
    engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(changes, "point_id", crowded)
    make: MakeStore = request.getfixturevalue(engine)
    store = make()
    store.initialise(MANIFEST)
    rng = random.Random(seed)
    living: dict[str, int] = {}
    retired: set[tuple[str, int]] = set()
    for step in range(60):
        name, at = f"r{rng.randrange(8)}", NOW + timedelta(minutes=step)
        known = living.get(name)
        if known is None:
            save(store, version(name, content=f"{name} at {step}"))
            living[name] = 1
        elif rng.random() < 0.3:
            store.erase(Selection(record_ids=(name,), include_private=True))
            del living[name]
            retired = {item for item in retired if item[0] != name}
        else:
            dense = None if rng.random() < 0.5 else (1.0, rng.random())
            new = version(name, dense, version=known + 1, content=f"{name} at {step}")
            assert supersede(store, name, known, new, at)
            retired.add((name, known))
            living[name] = known + 1
        rows = store.get(EVERYTHING, sorted({*living, *(item[0] for item in retired)}))
        assert {(r.id, r.version) for r in rows if r.retired is None} == set(living.items())
        assert {(r.id, r.version) for r in rows if r.retired is not None} == retired
    assert len(stored_ids(store)) == len(living) + len(retired)
    assert len({key for key in stored_ids(store) if key < 3}) == 3


def test_a_version_that_is_written_again_keeps_its_point(
    make_embedded: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "point_id", crowded)
    store = make_embedded()
    store.initialise(MANIFEST)
    names = [f"r{n}" for n in range(6)]
    save(store, *map(version, names))
    before = stored_ids(store)
    assert {whole_id(name, 1) for name in names} & before
    for name in names:  # the owner of a short id goes, another's row stays where it is
        store.erase(Selection(record_ids=(names[0],), include_private=True))
        if name != names[0]:
            assert store.commit(WriteBatch([version(name, None, importance=0.9)]))
    assert stored_ids(store) < before
    rows = store.get(EVERYTHING, names[1:])
    assert [row.importance for row in rows] == [0.9] * 5
