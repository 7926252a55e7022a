"""Figures, each beside a baseline measured in the same run: ``python -m benchmarks NAME [--json] [--quick]``.

Read `harness.py` first (what a figure is, how arms are interleaved), then any
benchmark: they know nothing of each other.
"""
