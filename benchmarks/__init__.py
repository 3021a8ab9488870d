"""Timings of this book's Transformer and of other implementations of the same shape.

`python -m benchmarks --help` explains the options; chapters/benchmarks.md shows the results.
"""
