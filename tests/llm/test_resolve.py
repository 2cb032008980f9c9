from __future__ import annotations

import asyncio
import contextvars
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mnemotrace.errors import ConfigurationError, LLMError, LLMUnavailableError
from mnemotrace.llm.keys import KEYS, missing_key, provider_of
from mnemotrace.llm.litellm_adapter import LiteLLMModel
from mnemotrace.llm.protocol import LLM, LLMReply, LLMRequest
from mnemotrace.llm.resolve import NoLLM, resolve_llm
from mnemotrace.testing import ScriptedLLM

REQUEST = LLMRequest("test", "You are terse.", "Say hi.")
BOTH = "You are terse.\n\nSay hi."


def echo(prompt: str) -> str:
    return f"echo {prompt}"


async def echo_later(prompt: str) -> str:
    await asyncio.sleep(0)
    return f"echo {prompt}"


class CrewStyle:
    model = "crew-1"

    def call(self, messages: list[dict[str, str]], tools: Any = None) -> str:
        return "echo " + "\n\n".join(message["content"] for message in messages)


class LlamaIndexStyle:
    model = "llama-1"

    class Completion:
        def __init__(self, text: str) -> None:
            self.text = text

    def complete(self, prompt: str, formatted: bool = False) -> Completion:
        raise AssertionError("the async form is used")

    async def acomplete(self, prompt: str, formatted: bool = False) -> Completion:
        return self.Completion(f"echo {prompt}")


class LlamaIndexChat(LlamaIndexStyle):
    class metadata:
        model_name = "llama-chat-1"
        is_chat_model = True

    model = ""

    async def acomplete(self, prompt: str, formatted: bool = False) -> Any:
        raise AssertionError("a chat model is asked by its chat")

    async def achat(self, messages: list[dict[str, str]]) -> Any:
        text = "\n\n".join(message["content"] for message in messages)
        raw = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        return SimpleNamespace(message=SimpleNamespace(content=f"echo {text}"), raw=raw)


class LangChainStyle:
    """As LangChain 1.x: no `__call__`, messages in, a message with its usage out."""

    model_name = "lang-1"
    model = "lang-1"

    async def ainvoke(self, messages: list[dict[str, str]]) -> Any:
        text = "\n\n".join(message["content"] for message in messages)
        return SimpleNamespace(
            content=[{"type": "text", "text": "echo "}, text],
            usage_metadata={"input_tokens": 7, "output_tokens": 3},
        )


class BlockingLangChainStyle:
    model_name = "lang-2"

    def invoke(self, messages: list[dict[str, str]]) -> Any:
        text = "\n\n".join(message["content"] for message in messages)
        usage = {"token_usage": {"prompt_tokens": 7, "completion_tokens": 3}}
        return SimpleNamespace(content=f"echo {text}", response_metadata=usage)


class PromptComplete:
    name = "prompt-1"

    def complete(self, prompt: str) -> Any:
        return SimpleNamespace(text=f"echo {prompt}", raw=SimpleNamespace(usage=None))


class ChatOnly:
    name = "chat-1"

    def chat(self, messages: list[dict[str, str]]) -> Any:
        text = "\n\n".join(message["content"] for message in messages)
        return SimpleNamespace(message=SimpleNamespace(content=f"echo {text}"))


class BlockingComplete:
    name = "blocking-1"

    def complete(self, request: LLMRequest) -> LLMReply:
        return LLMReply(f"echo {request.system}\n\n{request.prompt}", model="blocking-1")


@pytest.mark.parametrize(
    ("spec", "model"),
    [
        (echo, "echo"),
        (echo_later, "echo_later"),
        (lambda prompt: echo_later(prompt), None),
        (CrewStyle(), "crew-1"),
        (LlamaIndexStyle(), "llama-1"),
        (LlamaIndexChat(), "llama-chat-1"),
        (LangChainStyle(), "lang-1"),
        (BlockingLangChainStyle(), "lang-2"),
        (PromptComplete(), "prompt-1"),
        (ChatOnly(), "chat-1"),
        (BlockingComplete(), "blocking-1"),
    ],
)
async def test_every_kind_of_model_answers(spec: Any, model: str | None) -> None:
    llm = resolve_llm(spec)
    reply = await llm.complete(REQUEST)

    assert isinstance(llm, LLM)
    assert reply.text == f"echo {BOTH}"
    assert model is None or reply.model == model


@pytest.mark.parametrize(
    "spec",
    [LlamaIndexChat(), LangChainStyle(), BlockingLangChainStyle()],
    ids=lambda s: s.__class__,
)
async def test_the_tokens_a_model_tells_are_kept(spec: Any) -> None:
    reply = await resolve_llm(spec).complete(REQUEST)
    assert (reply.tokens_in, reply.tokens_out) == (7, 3)


SCHEMA = {
    "title": "Answer",
    "type": "object",
    "properties": {"port": {"title": "Port", "type": "integer"}},
}
ASKED = LLMRequest("test", "You are terse.", "Which port?", SCHEMA)


@pytest.mark.parametrize(
    "spec",
    [echo, echo_later, CrewStyle(), LlamaIndexStyle(), LlamaIndexChat(), LangChainStyle()],
    ids=lambda spec: getattr(spec, "__name__", type(spec).__name__),
)
async def test_a_model_without_structured_output_is_told_the_schema(spec: Any) -> None:
    reply = await resolve_llm(spec).complete(ASKED)
    system = reply.text.removeprefix("echo ").split("\n\n")[0]
    assert system.startswith("You are terse.")
    assert '{"type":"object","properties":{"port":{"type":"integer"}}}' in system


class Structured(LangChainStyle):
    """A LangChain model that answers by a schema, or fails when told to."""

    def __init__(self, failure: Exception | None = None, parsed: Any = None) -> None:
        self.failure = failure
        self.parsed = parsed
        self.bound = 0

    def with_structured_output(self, schema: Any, include_raw: bool) -> Any:
        assert (schema, include_raw) == (SCHEMA, True)
        self.bound += 1

        async def ainvoke(messages: list[dict[str, str]]) -> Any:
            if self.failure is not None:
                raise self.failure
            raw = SimpleNamespace(
                content="as text",
                usage_metadata={"input_tokens": 5, "output_tokens": 2},
            )
            return {"raw": raw, "parsed": self.parsed, "parsing_error": None}

        return SimpleNamespace(ainvoke=ainvoke)


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize(("parsed", "text"), [({"port": 1}, '{"port": 1}'), (None, "as text")])
async def test_structured_output_of_langchain_is_used(parsed: Any, text: str) -> None:
    reply = await resolve_llm(Structured(parsed=parsed)).complete(ASKED)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == (text, 5, 2)


@pytest.mark.parametrize("failure", [NotImplementedError(), ValueError("tools"), Status(400)])
async def test_a_model_without_it_is_asked_in_words_from_then_on(failure: Exception) -> None:
    model = Structured(failure)
    llm = resolve_llm(model)
    for _ in range(2):
        assert "Which port?" in (await llm.complete(ASKED)).text
    assert model.bound == 1


async def test_a_passing_failure_does_not_end_structured_output() -> None:
    model = Structured(Status(429))
    llm = resolve_llm(model)
    for _ in range(2):
        with pytest.raises(Status):
            await llm.complete(ASKED)
    assert model.bound == 2


def test_an_object_with_an_async_complete_is_used_as_it_is() -> None:
    llm = ScriptedLLM()

    assert resolve_llm(llm) is llm


def test_none_is_no_model() -> None:
    assert isinstance(resolve_llm(None), NoLLM)


async def test_a_blocking_function_does_not_block_the_loop_and_sees_the_context() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    who.set("alice")
    names: list[str] = []

    def slow(prompt: str) -> str:
        names.append(threading.current_thread().name)
        threading.Event().wait(0.1)
        return who.get()

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    reply = await resolve_llm(slow).complete(REQUEST)
    ticker.cancel()

    assert reply.text == "alice"
    assert ticks > 5
    assert names == ["mnemotrace-llm"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bug"), ValueError),
        (StopIteration(), RuntimeError),
        (SystemExit(2), RuntimeError),
        (KeyboardInterrupt(), RuntimeError),
    ],
)
async def test_what_a_blocking_function_raises_never_ends_the_loop(
    error: BaseException, kind: type[Exception]
) -> None:
    def broken(prompt: str) -> str:
        raise error

    with pytest.raises(kind):
        await resolve_llm(broken).complete(REQUEST)


@pytest.mark.parametrize("answer", [None, 3, {"text": "hi"}])
async def test_a_function_that_returns_no_text_is_named(answer: Any) -> None:
    def wrong(prompt: str) -> Any:
        return answer

    with pytest.raises(LLMError, match=r"wrong returned .* where a text is needed"):
        await resolve_llm(wrong).complete(REQUEST)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (CrewStyle, "pass an instance"),
        (42, "int, which cannot be asked"),
        ({"model": "gpt-4o"}, "dict, which cannot be asked"),
        ("", "llm is empty"),
        ("   ", "llm is empty"),
    ],
)
def test_what_is_no_model_is_refused_at_once(spec: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_llm(spec)


def test_a_name_or_an_object_with_settings_goes_to_litellm() -> None:
    class Settings:
        model = "openai/gpt-4o"
        temperature = 0.2
        api_key = "sk-1"
        top_p = None
        stream = True

    by_name, by_object = resolve_llm("ollama/llama3.2"), resolve_llm(Settings())

    assert isinstance(by_name, LiteLLMModel)
    assert isinstance(by_object, LiteLLMModel)
    assert by_name.name == "ollama/llama3.2"
    assert by_object._settings == {"temperature": 0.2, "api_key": "sk-1"}


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini", "openai"),
        ("o3-mini", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("openai/anything", "openai"),
        ("claude-3-haiku-20240307", "anthropic"),
        ("anthropic/claude-3-haiku-20240307", "anthropic"),
        ("gemini/gemini-2.0-flash", "gemini"),
        ("openrouter/anthropic/claude-3", "openrouter"),
        ("ollama/llama3.2", "ollama"),
        ("orca-mini", None),
        ("llama3", None),
    ],
)
def test_a_model_s_name_tells_its_provider(model: str, provider: str | None) -> None:
    assert provider_of(model) == provider


@pytest.mark.parametrize("provider", KEYS)
async def test_a_missing_key_is_named_without_any_import(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS[provider]:
        monkeypatch.delenv(name, raising=False)
    model = resolve_llm(f"{provider}/some-model")

    with pytest.raises(LLMUnavailableError, match=f"set {KEYS[provider][0]}"):
        await model.complete(REQUEST)
    for name in KEYS[provider]:
        monkeypatch.setenv(name, "key")
        assert missing_key(f"{provider}/some-model", {}) is None
        monkeypatch.delenv(name)


@pytest.mark.parametrize("setting", ["api_key", "api_base", "base_url"])
def test_a_key_or_an_address_of_one_s_own_counts(setting: str) -> None:
    assert missing_key("gpt-4o", {setting: "x"}) is None
    assert missing_key("gpt-4o", {setting: ""}) == "OPENAI_API_KEY"


def test_an_address_in_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1")

    assert missing_key("gpt-4o", {}) is None


@pytest.mark.parametrize("model", ["ollama/llama3.2", "azure/d", "bedrock/x", "vertex_ai/g", "x"])
def test_nothing_is_known_against_local_and_other_providers(model: str) -> None:
    assert missing_key(model, {}) is None
