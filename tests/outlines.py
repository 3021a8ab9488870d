"""Measures of what a page draws."""

import math


def broad_end(path: str) -> float:
    """How wide the outline of a tapering curve is where it is widest, in pixels."""
    places = [[float(number) for number in place.split()] for place in path[1:-1].split("L")]
    left, right = places[len(places) // 2 - 1 :][:2]
    return math.dist(left, right)
