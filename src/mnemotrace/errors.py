"""Everything mnemotrace raises, in one tree.

MnemotraceError
├── ConfigurationError          a wrong parameter, or one that is not known (also ValueError)
├── InvalidInputError           a wrong argument to an operation (also ValueError)
│   ├── ScopeError              a scope path that cannot be used
│   ├── ImportConflictError     ids of an export mean something else in this memory
│   └── RecordError             a record's content, metadata or field that cannot be stored
├── ScopePermissionError        a view was asked to reach outside its scopes, or to write read-only
│                               (also PermissionError)
├── RecordNotFoundError         no visible record has this id (also KeyError)
├── MemoryClosedError           the memory was used after close()
├── RuntimeMisuseError          a sync call from inside mnemotrace's own loop thread, or a flow run
│                               where no loop is running (also RuntimeError)
├── FlowError                   a step of a flow broke the flow's own rules: a defect in the flow
├── EmbedderError               the embedder failed or returned vectors that cannot be used
│   └── EmbedderMismatchError   the store was written by another embedder
├── LLMError                    the language model failed, or answered something unusable
│   └── LLMUnavailableError     no key, no connection, or no model configured
├── ReplayError                 a replayed run asked for something that its tape does not hold
│   └── TapeError               a file that cannot be read or written as a tape
├── SaveError                   a background save failed (raised by its receipt)
└── StoreError                  the store could not do what was asked
    ├── StoreLockedError        another process owns the embedded folder
    ├── StoreCorruptError       the folder holds something that is not a readable store
    ├── StoreNotWritableError   read-only folder or full disk
    └── StoreUnavailableError   the Qdrant server cannot be reached or refused the request

Each message says what happened, to what, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .transfer.importing import Imported


class MnemotraceError(Exception):
    """The root of every error this package raises on purpose."""


class ConfigurationError(MnemotraceError, ValueError):
    """A parameter of `Memory` or of an embedder or model is wrong or unknown."""


class InvalidInputError(MnemotraceError, ValueError):
    """An argument of an operation cannot be used; nothing was changed."""


class ScopeError(InvalidInputError):
    """A scope path cannot be used: bad segment, too long, too deep."""


class RecordError(InvalidInputError):
    """A record's content, metadata or field cannot be stored; nothing was changed."""


class ImportConflictError(InvalidInputError):
    """Ids of an export file mean something else in this memory; nothing was imported.

    Attributes:
        result: what the import found (`mnemotrace.transfer.importing.Imported`), with its
            `conflicts`; everything but what was there just so counts as skipped.
    """

    def __init__(self, message: str, result: Imported | None = None) -> None:
        super().__init__(message)
        self.result = result


class ScopePermissionError(MnemotraceError, PermissionError):
    """A view was asked to reach outside its scopes, or to write although it is read-only."""


class RecordNotFoundError(MnemotraceError, KeyError):
    """No record with this id is visible here; nothing was changed."""

    def __str__(self) -> str:
        """The plain message (KeyError would show its repr)."""
        return str(self.args[0]) if self.args else ""


class MemoryClosedError(MnemotraceError, RuntimeError):
    """The memory was used after `close()`."""

    def __init__(
        self, message: str = "This memory is closed. Open it again with Memory(storage=...)."
    ) -> None:
        super().__init__(message)


class RuntimeMisuseError(MnemotraceError, RuntimeError):
    """A blocking call from mnemotrace's own loop thread, or a flow run with no loop at all."""


class FlowError(MnemotraceError, RuntimeError):
    """A step returned an event it does not declare, or one that no step accepts."""


class EmbedderError(MnemotraceError):
    """The embedder failed, or returned vectors that cannot be used; nothing was stored."""


class EmbedderMismatchError(EmbedderError):
    """The store was written by another embedder; its data is untouched. The remedy is `reindex`."""


class LLMError(MnemotraceError):
    """The language model failed or answered something unusable."""


class LLMUnavailableError(LLMError):
    """No language model can be reached: no key, no connection, or none configured."""


class ReplayError(MnemotraceError):
    """A replayed run asked a model for something that its tape does not hold."""


class TapeError(ReplayError):
    """A file cannot be read or written as a tape: damaged, foreign, or of a newer release."""


class SaveError(MnemotraceError):
    """A background save failed; the texts are kept in the outbox. Raised by the save's receipt."""


class StoreError(MnemotraceError):
    """The store could not do what was asked."""


class StoreLockedError(StoreError):
    """Another process owns the embedded folder; the message names its process id."""


class StoreCorruptError(StoreError):
    """The folder holds something that is not a readable mnemotrace store; nothing was changed."""


class StoreNotWritableError(StoreError):
    """The folder is read-only or the disk is full; nothing was stored."""


class StoreUnavailableError(StoreError):
    """The Qdrant server cannot be reached, or refused the request."""
