from __future__ import annotations

import threading
import time
import unicodedata
import zlib
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer

from mnemotrace.embedders.lexical import (
    CONTEXT,
    LABEL_WEIGHT,
    LEXICAL_NAME,
    encode_document,
    encode_query,
    label_of,
    text_hash,
    tokenize,
)
from mnemotrace.stores.backend import WEIGHT_STEP, SparseVector


def overlap(query: str, document: str) -> float:
    """The share of a query's terms that a document has."""
    asked = encode_query(query).asked
    return len(asked & set(encode_document(document).indices)) / len(asked)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The databases were migrated", ["databas", "migrat"]),
        ("Running RUNS run", ["run", "run", "run"]),
        ("студенты студентами", ["студент", "студент"]),
        ("λόγος ΛΌΓΟΣ", ["λογ", "λογ"]),
        ("naïve Zürich", ["naïve", "zürich"]),
        ("Straße", ["strass"]),
        ("İstanbul", ["istanbul"]),
        ("हिन्दी", ["हिन्द"]),
        ("key sk-123", ["key", "sk", "123", "sk-123"]),
        ("bob@example.com", ["bob", "exampl", "com", "bob@example.com"]),
        ("2024-05-01", ["2024", "05", "01", "2024-05-01"]),
        ("user_id", ["user", "id", "user_id"]),
        ("C++ and C#", ["c", "c++", "c", "c#"]),
        ("1,000 and 1000", ["1000", "1000"]),
        ("1,234,567.89", ["1234567", "89", "1234567.89"]),
        ("Bob's, don’t, we'll", ["bob", "don"]),
        ("l’eau l'eau", ["l", "eau", "l", "eau"]),
        ("brand™ name", ["brand", "name"]),
        ("연구원은", ["연구", "구원", "원은"]),
        ("研究员", ["研究", "究员"]),
        ("茶", ["茶"]),
        ("3월", ["3", "월"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("アイ・ウエ", ["アイ", "ウエ"]),
        ("บ้าน", ["บ้", "้า", "าน"]),
        ("PostgreSQL을", ["postgresql", "을"]),
        ("😀👍🏽👍", ["😀", "👍", "👍"]),
        ("🇰🇷 👩‍💻", ["🇰🇷", "👩\u200d💻"]),
        ("who is it?", ["who", "is", "it"]),
        ("Tom is not here", ["tom", "not"]),
        ("soft\u00adhyphen zero\u200bwidth", ["softhyphen", "zerowidth"]),
        ("non\u2011breaking", ["non", "break", "non-breaking"]),
        ("... -- !?", []),
        ("", []),
        (" \n\t", []),
    ],
)
def test_a_text_becomes_these_terms(text: str, terms: list[str]) -> None:
    assert tokenize(text) == terms


FORMS = [
    ("카페", unicodedata.normalize("NFD", "카페")),
    ("café", unicodedata.normalize("NFD", "café")),
    ("ガギグ", "ｶﾞｷﾞｸﾞ"),
    ("ABC123", "ＡＢＣ１２３"),
    ("straße", "STRASSE"),
    ("don't panic", "don’t panic"),
    ("ﬁle", "file"),
]


@pytest.mark.parametrize(("one", "other"), FORMS)
def test_forms_of_one_text_are_alike(one: str, other: str) -> None:
    assert encode_document(one) == encode_document(other)
    assert encode_query(one) == encode_query(other)


DOCUMENTS = [
    "연구원은 매주 월요일 오후 세 시에 회의실에서 만난다.",
    "研究员每周一下午三点在会议室开会。",
    "研究員は毎週月曜日の午後三時に会議室で会う。",
    "Исследователи встречаются каждый понедельник в три часа.",
    "Les chercheurs se réunissent chaque lundi à l'hôtel de ville.",
    "ทีมวิจัยประชุมทุกวันจันทร์",
]


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC"])
def test_every_fragment_of_whole_words_is_found_entirely(
    document: str, form: Literal["NFC", "NFD", "NFKC"]
) -> None:
    words = document.split()
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            fragment = unicodedata.normalize(form, " ".join(words[start:end]))
            assert not tokenize(fragment) or overlap(fragment, document) == 1.0


@pytest.mark.parametrize("document", DOCUMENTS[:3])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_every_run_of_characters_is_found_where_words_are_not_separated(
    document: str, length: int
) -> None:
    for start in range(len(document) - length + 1):
        fragment = document[start : start + length]
        assert not tokenize(fragment) or overlap(fragment, document) == 1.0


def test_different_facts_have_different_terms() -> None:
    assert encode_document("order 1001") != encode_document("order 1002")
    assert encode_document("연구원") != encode_document("研究员")
    assert overlap("1001", "order 1002") == 0.0


def test_function_words_are_asked_for_only_alone() -> None:
    document = "To be or to have, that is the question"

    assert overlap("to be", document) == 1.0
    assert len(encode_query("to be a question").asked) == 1


def test_a_document_s_weights_are_bm25_s() -> None:
    tf, length = 2, 3
    expected = tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / 20.0))

    document = encode_document("tea tea cup")

    assert dict(zip(document.indices, document.values, strict=True))[
        next(iter(encode_query("tea").asked))
    ] == pytest.approx(expected, abs=WEIGHT_STEP)
    assert all(value % WEIGHT_STEP == 0 for value in document.values)


def test_a_weight_grows_with_repetition_and_shrinks_with_length() -> None:
    def weight(document: str) -> float:
        vector = encode_document(document)
        return vector.values[vector.indices.index(next(iter(encode_query("tea").asked)))]

    assert weight("tea") < weight("tea tea") < weight("tea " * 50) < 2.2
    assert weight("tea with scones jam and clotted cream") < weight("tea")


def test_a_query_s_weights_are_one() -> None:
    assert set(encode_query("tea tea milk").values) == {1.0}


def index_of_label(term: str) -> int:
    return zlib.crc32(b"\x1f" + stem(term).encode())


def stem(term: str) -> str:
    return tokenize(term)[0]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Ana: the train leaves at ten", "Ana"),
        ("[8:56 pm on 20 July, 2023] Ana: the train leaves at ten", "Ana"),
        ("  (Mon) Ana María: sí", "Ana María"),
        ("민수: 내일 만나요", "민수"),
        ("【周一】王芳：明天见", "王芳"),
        ("Dr. Kim, cardiology: call back", "Dr. Kim, cardiology"),
        ("We decided on three things: tea, milk and sugar", ""),
        ("The train leaves at 10:30", ""),
        ("https://example.org/a: a link", ""),
        ("12: twelve", ""),
        ("no label here", ""),
        (": nothing before", ""),
        ("", ""),
    ],
)
def test_a_label_is_what_stands_before_the_first_colon(text: str, label: str) -> None:
    assert label_of(text) == label


def score(query: str, document: SparseVector) -> float:
    """Return what an engine without IDF gives."""
    weights = dict(zip(document.indices, document.values, strict=True))
    return sum(weights.get(index, 0.0) for index in encode_query(query).indices)


def test_a_speaker_s_own_turn_is_preferred_to_a_mention() -> None:
    own = encode_document("Ana: the pottery course was fun")
    mention = encode_document("Ben: Ana says the pottery course was fun")
    assert score("what did Ana say of pottery", own) > score("what did Ana say of pottery", mention)


def test_a_turn_is_found_by_the_words_around_it() -> None:
    before = ["Ana: Where did you grow up?", "Ben: Good to see you."]
    alone = encode_document("Ben: In Oslo.")
    within = encode_document("Ben: In Oslo.", before=before, after=["Ana: Lovely fjords there!"])
    assert score("where did Ben grow up", alone) < score("where did Ben grow up", within)
    assert score("fjords", alone) == 0.0
    assert score("fjords", within) == pytest.approx(
        CONTEXT[0] * score("fjords", encode_document("Ana: Lovely fjords there!")), abs=WEIGHT_STEP
    )
    assert score("oslo", within) == score("oslo", alone)


def test_a_neighbour_never_counts_more_than_its_place_allows() -> None:
    """Each term has the highest of its weights; the neighbour's speaker is not the text's."""
    turns = [f"Ana: word{n}" for n in range(5)]
    vector = encode_document("Ben: own", before=turns)
    found = [score(f"word{n}", vector) for n in range(5)]
    one = score("word0", encode_document("Ana: word0"))
    assert found == pytest.approx([*(share * one for share in CONTEXT), 0.0, 0.0], abs=WEIGHT_STEP)
    assert score("Ana", vector) < score("Ana", encode_document("Ben: Ana"))


def test_the_index_of_a_term_never_changes() -> None:
    """Stored vectors would become useless; a change needs another LEXICAL_NAME."""
    assert LEXICAL_NAME == "mnemotrace-lexical-2"
    assert encode_query("database").asked == {1347213360}
    assert encode_query("연구").asked == {1287073672}
    label = set(encode_query("database").indices) - encode_query("database").asked
    assert label == {index_of_label("database")}
    assert label < set(encode_document("Database: it is slow").indices)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_a_valid_vector_and_finds_itself(text: str) -> None:
    document, query = encode_document(text), encode_query(text)

    for vector in (document, query):
        assert len(vector.indices) == len(vector.values)
        assert list(vector.indices) == sorted(set(vector.indices))
        assert all(0 <= index < 2**32 for index in vector.indices)
        assert all(0.0 < value < 2.2 or value == LABEL_WEIGHT for value in vector.values)
    assert query.asked <= set(document.indices)


@pytest.mark.parametrize("text", ["a.", "가나", "😀", "1,000", "'", "x-", "\u0301", "word "])
def test_a_hundred_thousand_characters_take_no_time(text: str) -> None:
    start = time.perf_counter()
    encode_document(text * (100_000 // len(text)))

    assert time.perf_counter() - start < 1.5  # 0.01 to 0.1 s; quadratic work would take minutes


def test_threads_stem_as_one_thread_does() -> None:
    letters = "bcdfgklmnprtvw"
    words = [f"{a}o{b}i{c}{end}" for a in letters for b in letters for c in letters
             for end in ("ations", "ingly")]  # fmt: skip
    stemmer = EnglishStemmer()
    expected = [stemmer.stemWord(word) for word in words]
    found: dict[int, list[str]] = {}

    def work(number: int) -> None:
        found[number] = [tokenize(word)[0] for word in words[number::4]]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [found[number] for number in range(4)] == [expected[number::4] for number in range(4)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a b", " a \n\t b ", True),
        ("café", unicodedata.normalize("NFD", "café"), True),
        ("a b", "a  B", False),
        ("１", "1", False),
        ("order 1001", "order 1002", False),
    ],
)
def test_the_hash_of_a_text_ignores_white_space_and_composition_only(
    one: str, other: str, same: bool
) -> None:
    assert (text_hash(one) == text_hash(other)) is same
    assert len(text_hash(one)) == 32
