"""llama.cpp's OpenAI-compatible server in a process of its own, for the fixture `llama`.

Usage: python llama_server.py MODEL.gguf. It writes its address to standard output and serves until
standard input ends, so it cannot outlive whoever started it.
"""

from __future__ import annotations

import sys

import xllamacpp


def main() -> None:
    """Serve one model on a free loopback port."""
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 2
    # One thread: several wait for each other by spinning, which on busy cores takes far longer.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server  # its destructor ends the server's threads


if __name__ == "__main__":
    main()
