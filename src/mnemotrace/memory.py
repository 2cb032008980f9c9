"""Memory: the one object that opens a store and gives it embedder, model and settings."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from .config import MemoryConfig
from .reach import Reach
from .scopes import ROOT
from .twins import awaitable, blocking
from .views import MemoryView

if TYPE_CHECKING:
    from .stores.backend import StorageBackend

DEFAULT_LLM = "gpt-4o-mini"


class Settings(TypedDict, total=False):
    """Every setting of `Memory`, with the defaults of `MemoryConfig`."""

    recency_weight: float
    semantic_weight: float
    importance_weight: float
    recency_half_life_days: float
    consolidation_threshold: float
    consolidation_limit: int
    default_importance: float
    batch_dedup_threshold: float
    confidence_threshold_high: float
    confidence_threshold_low: float
    complex_query_threshold: float
    exploration_budget: int
    query_analysis_threshold: int
    lexical_weight: float
    conversation_context: bool
    llm_concurrency: int
    llm_timeout: float
    recall_timeout: float
    encode_timeout: float
    save_attempts: int
    trace: str


class Memory(MemoryView):
    """An agent's memory.

    Use it as a context manager, or call `close()`: that finishes pending saves. It may be shared
    by threads and by tasks of any event loop.

    Args:
        llm: the language model for analysis: a model name for litellm, an instance, a callable
            ``prompt -> text``, or None for none. It is created on first use; without a key,
            everything works with safe defaults.
        storage: None for ``$MNEMOTRACE_STORAGE_DIR/memory`` or ``./.mnemotrace/memory``, a folder
            path, ``":memory:"``, the ``http(s)://`` URL of a Qdrant server, or a
            `mnemotrace.stores.backend.StorageBackend`.
        embedder: None (the store's own; for a new store OpenAI's where ``OPENAI_API_KEY`` is set,
            else the bundled offline model), a provider's key or ``{"provider": ..., "config":
            ...}`` dict, a callable ``texts -> vectors``, or an object with `embed`.
        api_key: of the Qdrant server.
        prefer_grpc: talk gRPC to the Qdrant server.
        settings: see `mnemotrace.config.MemoryConfig`; an unknown name is refused.

    Raises:
        ConfigurationError: a setting is unknown or out of range.
        StoreLockedError: another process owns the folder.
        StoreCorruptError: the folder holds something else, or a damaged store.
    """

    def __init__(
        self,
        llm: Any = DEFAULT_LLM,
        storage: Any = None,
        embedder: Any = None,
        *,
        api_key: str | None = None,
        prefer_grpc: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        # Loaded here and not above, so that importing mnemotrace costs little.
        from .core import MemoryCore
        from .embedders.resolve import resolve_embedder
        from .flows.runtime import get_runtime
        from .llm.resolve import resolve_llm
        from .llm.service import LLMService
        from .stores.open import open_store

        config = MemoryConfig.build(
            known=("llm", "storage", "embedder", "api_key", "prefer_grpc"), **settings
        )
        model = resolve_llm(llm)
        runtime = get_runtime()
        store = open_store(storage, api_key=api_key, prefer_grpc=prefer_grpc)
        try:
            manifest = store.manifest()
            service = resolve_embedder(embedder, manifest.embedder if manifest else None)
            self._core = MemoryCore(
                store,
                service,
                LLMService(model, config.llm_concurrency, config.llm_timeout),
                config,
                runtime,
            )
        except BaseException:
            store.close()
            raise
        self._core.owner = self
        self._reach = Reach((ROOT,), ROOT)
        try:
            runtime.run(self._core.resume())
        except BaseException:
            runtime.run(self._core.close())
            raise
        runtime.at_exit(self._core.leave)

    @property
    def config(self) -> MemoryConfig:
        """The settings in force."""
        return self._core.config

    @property
    def store(self) -> StorageBackend:
        """The store behind this memory."""
        return self._core.store

    async def _reindex(self, embedder: Any, batch_size: int = 256) -> int:
        """Re-embed every stored version with another embedder and use it from now on.

        Until the last step the store stays as it was; killed in the middle, it goes on where it
        was when called again with the same embedder.

        Args:
            embedder: the new one, as for `Memory`.
            batch_size: versions in one request to the embedder.

        Returns:
            How many stored versions were re-embedded.

        Raises:
            ConfigurationError: the embedder is not known.
            EmbedderError, StoreError: the store is as it was; calling again goes on.
        """
        from .embedders.resolve import resolve_embedder
        from .flows.services import Services
        from .reindexing import reindex_store

        core = self._core
        core.check_open()
        await core.drain()
        service = resolve_embedder(embedder, None)
        fresh = Services(core.store, service, core.services.llm, core.config, core.runtime)
        count = await reindex_store(fresh, batch_size)
        core.services.embedder = service
        return count

    reindex = blocking(_reindex)
    areindex = awaitable(_reindex)

    async def _compact(self) -> None:
        """Reclaim space and build search indexes; may take long."""
        await self._core.compact()

    compact = blocking(_compact)
    acompact = awaitable(_compact)

    async def _close(self) -> None:
        """Finish pending saves and release the store; safe to call twice.

        Every accepted text is tried before, those that failed once more; a batch takes at most
        `encode_timeout`. What cannot be saved even so is told in a warning (logger
        ``mnemotrace``): in a folder, or for a server, it is kept and saved when the memory is next
        opened; with ``:memory:`` it is lost. `drain_writes` tells before whether all is saved.
        """
        await self._core.close()

    close = blocking(_close)
    aclose = awaitable(_close)

    def __enter__(self) -> Self:
        self._core.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._core.check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        capabilities = self._core.store.capabilities
        return (
            f"Memory(store={capabilities.name!r}, embedder={self._core.services.embedder.name!r})"
        )
