"""OpenTelemetry: what a memory does as live spans and metrics. Needs ``mnemotrace[otel]``."""

from .instrument import Instrumentation, instrument

__all__ = ["Instrumentation", "instrument"]
