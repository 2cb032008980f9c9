"""What each command does to a memory and prints of it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mnemotrace import Memory

from .conftest import Cli

Remember = Callable[..., str]


def test_a_printed_id_works_in_show_and_forget(cli: Cli, remember: Remember) -> None:
    remember("The harbour closes at nine.", "--scope", "/port")
    (line,) = cli("list").lines
    record_id = line.split()[0]
    assert "The harbour closes at nine." in cli("show", record_id).out
    assert cli("recall", "harbour", "--no-llm").lines[1].split()[0] == record_id
    assert cli("forget", record_id, "--yes").out == "Forgot 1 record.\n"
    assert f"No record '{record_id}'" in cli("show", record_id, code=1).err
    assert cli("list").out == ""


def test_remember_prints_the_record_it_made(cli: Cli) -> None:
    done = cli("remember", "Two\nlines", "--no-llm", "--scope", "a/b", "--created-at", "2025-09-30")
    (line,) = done.lines
    assert line.endswith("2025-09-30  /a/b  Two lines")


def test_remember_keeps_every_option(cli: Cli) -> None:
    record = cli(
        *("remember", "Pier seven is closed.", "--no-llm", "--json", "--id", "pier-7"),
        *("--scope", "/port", "--category", "piers", "--category", "closed"),
        *("--metadata", "pier=7", "--metadata", "open=false", "--metadata", "by=Ada = Eve"),
        *("--importance", "0.9", "--source", "ada", "--private"),
        *("--created-at", "2025-09-30T09:00+09:00"),
    ).json
    assert record["id"] == "pier-7"
    assert record["categories"] == ["piers", "closed"]
    assert record["metadata"] == {"pier": 7, "open": False, "by": "Ada = Eve"}
    assert (record["importance"], record["source"], record["private"]) == (0.9, "ada", True)
    assert record["created_at"] == "2025-09-30T00:00:00Z"


def test_remember_takes_the_time_from_when_on_and_until_when(cli: Cli) -> None:
    record = cli(
        *("remember", "The new code is 1234.", "--no-llm", "--json"),
        *("--valid-from", "2030-01-01T09:00+09:00", "--expires-at", "2031-01-01"),
    ).json
    assert record["valid_from"] == "2030-01-01T00:00:00Z"
    assert record["expires_at"] == "2031-01-01T00:00:00Z"
    assert cli("list").out == ""
    assert "1234" in cli("list", "--as-of", "2030-06-01").out
    assert cli("list", "--as-of", "2031-06-01").out == ""
    over = ("--valid-from", "2019-01-01", "--expires-at", "2020-01-01")
    cli("remember", "The sale is on.", "--no-llm", *over)
    assert cli("list").out == ""
    assert "sale" in cli("list", "--as-of", "2019-06-01").out


def test_texts_of_one_time_are_listed_as_they_were_saved(cli: Cli, remember: Remember) -> None:
    texts = [f"Note {number}." for number in range(6)]
    for text in texts:
        remember(text, "--created-at", "2025-03-01")
    assert [line.split("  ")[-1] for line in cli("list").lines] == texts[::-1]


def test_a_dash_reads_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.BytesIO("부두는 아홉 시에 닫힙니다.\n둘째 줄\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
    record = cli("remember", "-", "--no-llm", "--json").json
    assert record["content"] == "부두는 아홉 시에 닫힙니다.\n둘째 줄"


def test_standard_input_that_is_not_text_is_one_clear_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    assert "not UTF-8" in cli("remember", "-", "--no-llm", code=1).err


def test_without_a_key_remember_works_and_warns_of_what_it_missed(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    done = cli("remember", "The harbour closes at nine.")
    assert len(done.lines) == 1
    assert "OPENAI_API_KEY" in caplog.text


def test_recall_prints_the_best_first_and_the_steps_on_request(
    cli: Cli, remember: Remember
) -> None:
    remember("The lighthouse keeper is called Ida.", "--scope", "/port")
    remember("Bread is baked at four.", "--scope", "/town")
    done = cli("recall", "Who keeps the lighthouse?", "--no-llm", "--limit", "2")
    assert "Ida" in done.lines[0]
    assert "/port" in done.lines[1]
    assert len(done.lines) == 4
    traced = cli("recall", "Who keeps the lighthouse?", "--no-llm", "--trace").out
    for step in ("analyze_query", "select_scopes", "search", "route", "synthesize"):
        assert step in traced


def test_recall_takes_filters(cli: Cli, remember: Remember) -> None:
    remember("Old news.", "--scope", "/a", "--created-at", "2024-01-01", "--metadata", "n=1")
    remember("New news.", "--scope", "/a", "--created-at", "2025-01-01", "--category", "c")
    remember("Other news.", "--scope", "/ab", "--source", "eve")

    def found(*words: str) -> set[str]:
        matches = cli("recall", "news", "--no-llm", "--json", *words).json["matches"]
        return {match["record"]["content"] for match in matches}

    assert found() == {"Old news.", "New news.", "Other news."}
    assert found("--scope", "/a") == {"Old news.", "New news."}
    assert found("--category", "c") == {"New news."}
    assert found("--source", "eve") == {"Other news."}
    assert found("--metadata", "n=1") == {"Old news."}
    assert found("--scope", "/a", "--since", "2024-06-01") == {"New news."}
    assert found("--until", "2024-06-01") == {"Old news."}
    assert len(found("--limit", "1")) == 1
    assert len(found("--depth", "shallow")) == 3


def test_recall_as_json_has_every_number_and_the_trace_only_on_request(
    cli: Cli, remember: Remember
) -> None:
    remember("등대지기의 이름은 아이다입니다.")
    data = cli("recall", "등대지기", "--no-llm", "--json").json
    assert data["status"] == "ok"
    assert 0 < data["confidence"] <= 1
    (match,) = data["matches"]
    assert match["record"]["content"] == "등대지기의 이름은 아이다입니다."
    assert {"semantic", "lexical", "recency", "importance"} <= set(match["components"])
    assert "trace" not in data
    traced = cli("recall", "등대지기", "--no-llm", "--json", "--trace").json
    assert traced["trace"]["kind"] == "recall"


def test_finding_nothing_is_no_error_and_prints_nothing_on_stdout(
    cli: Cli, remember: Remember
) -> None:
    remember("Bread is baked at four.", "--scope", "/town")
    done = cli("recall", "bread", "--no-llm", "--scope", "/port")
    assert (done.out, done.err) == ("", "Nothing found.\n")
    assert cli("list", "--scope", "/port").out == ""
    assert cli("list", "--scope", "/port", "--json").json == []


def test_list_is_paged_and_says_so_beside_the_output(cli: Cli, remember: Remember) -> None:
    for number in range(3):
        remember(f"Note {number}", "--created-at", f"2025-01-0{number + 1}")
    first = cli("list", "--limit", "2", "--json")
    assert [record["content"] for record in first.json] == ["Note 2", "Note 1"]
    assert "--offset 2" in first.err
    second = cli("list", "--limit", "2", "--offset", "2")
    assert [line.split("  ")[-1] for line in second.lines] == ["Note 0"]
    assert second.err == ""


def test_tree_and_info_count_what_is_there(cli: Cli, remember: Remember) -> None:
    remember("One", "--scope", "/a/b", "--category", "c", "--created-at", "2025-01-01")
    remember("Two", "--scope", "/a", "--created-at", "2025-01-02")
    assert cli("tree").lines == ["/ (2 records)", "  /a (2 records)", "    /a/b (1 record)"]
    assert cli("tree", "/a", "--max-depth", "0").lines == ["/a (2 records)"]
    info = cli("info", "/a", "--json").json
    assert (info["record_count"], info["categories"], info["child_scopes"]) == (2, ["c"], ["/a/b"])
    assert "2025-01-02" in cli("info", "/a").out


def test_private_records_are_hidden_everywhere_unless_asked_for(
    cli: Cli, remember: Remember
) -> None:
    secret = remember("Ida's birthday is in May.", "--scope", "/p", "--source", "ida", "--private")
    assert cli("recall", "birthday", "--no-llm").out == ""
    assert cli("list").out == ""
    assert cli("tree").out == "/ (0 records)\n"
    assert cli("info", "--json").json["record_count"] == 0
    assert cli("show", secret, code=1).out == ""
    assert cli("show", secret, "--history", "--source", "eve", code=1).out == ""
    cli("forget", secret, "--yes", code=1)
    assert cli("forget", "--scope", "/p", "--yes").out == "Forgot 0 records.\n"
    for who in (("--source", "ida"), ("--include-private",)):
        assert "birthday" in cli("recall", "birthday", "--no-llm", *who).out
        assert "[private]" in cli("list", *who).out
        assert cli("tree", *who).lines[0] == "/ (1 record)"
        assert cli("info", "--json", *who).json["record_count"] == 1
        assert "birthday" in cli("show", secret, *who).out
    assert cli("forget", secret, "--source", "ida", "--yes").out == "Forgot 1 record.\n"


def test_forget_needs_all_its_criteria_met(cli: Cli, remember: Remember) -> None:
    old = remember("Old", "--scope", "/a", "--created-at", "2024-01-01", "--category", "c")
    new = remember("New", "--scope", "/a", "--created-at", "2025-01-01")
    cli("forget", old, "--category", "d", "--yes", code=1)
    assert cli("forget", "--scope", "/a", "--older-than", "2023-01-01", "--yes").out.startswith(
        "Forgot 0"
    )
    gone = cli("forget", "--scope", "/a", "--older-than", "2024-06-01", "--yes", "--json").json
    assert gone == {"forgotten": 1, "versions": 1, "erased": True, "record_ids": [old]}
    assert cli("list").lines[0].split()[0] == new


def test_a_retired_memory_stays_in_history_and_a_forgotten_one_does_not(
    cli: Cli, remember: Remember
) -> None:
    kept, erased = remember("Kept"), remember("Erased")
    cli("forget", kept, "--retire", "--yes")
    cli("forget", erased, "--yes")
    assert cli("list").out == ""
    assert "retired     forgotten" in cli("show", kept, "--history").out
    cli("show", erased, "--history", code=1)


def test_reset_erases_one_scope_or_everything_private_records_too(
    cli: Cli, remember: Remember
) -> None:
    remember("One", "--scope", "/a", "--private", "--source", "ida")
    remember("Two", "--scope", "/ab")
    assert cli("reset", "--scope", "/a", "--yes").out == "Erased 1 record.\n"
    assert len(cli("list", "--include-private").lines) == 1
    assert cli("reset", "--yes").out == "Erased 1 record.\n"


def test_what_changes_a_memory_for_good_wants_a_yes(cli: Cli, remember: Remember) -> None:
    kept = remember("Kept", "--scope", "/a")
    for words in (("reset",), ("forget", "--scope", "/a"), ("forget", kept)):
        done = cli(*words, code=2)
        assert "--yes" in done.err
        assert done.out == ""
    assert len(cli("list").lines) == 1


def test_a_memory_steers_no_terminal(cli: Cli, remember: Remember) -> None:
    record_id = remember("red \x1b[31malert\x07\nnext", "--scope", "/a\u202eb")
    for words in (("list",), ("recall", "alert", "--no-llm"), ("show", record_id), ("tree",)):
        out = cli(*words).out
        assert not any(not char.isprintable() and char != "\n" for char in out)
    assert "\\x1b[31malert" in cli("list").out


def test_storage_is_the_option_then_the_environment_then_the_folder_here(
    cli: Cli, remember: Remember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember("Here")
    assert (tmp_path / ".mnemotrace" / "memory").is_dir()
    monkeypatch.setenv("MNEMOTRACE_STORAGE_DIR", str(tmp_path / "there"))
    remember("There")
    assert (tmp_path / "there" / "memory").is_dir()
    assert "There" in cli("list").out
    remember("Elsewhere", "--storage", str(tmp_path / "elsewhere"))
    with Memory(llm=None, storage=tmp_path / "elsewhere") as memory:
        assert [record.content for record in memory.list_records()] == ["Elsewhere"]
