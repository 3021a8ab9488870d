"""Side-by-side timings of this book's Transformer and others of the same shape.

`python -m benchmarks --help` explains; chapters/benchmarks.md shows the results.
"""
