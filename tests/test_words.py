"""book/words.py: what it counts on a page, and what it refuses."""

import pytest
from words import code_lines, count, faults

CODE = """
```{code-cell} ipython3
import math


def area(radius):
    \"\"\"Of a circle,

    whose radius this is.\"\"\"
    return math.pi * radius**2  # a comment at the end of a line

# a comment alone
```

```{code-cell} ipython3
:tags: [hide-input]
folded = 1
```
"""
PAGE = f"""---
kernelspec: none
---

# A title

The circle has [a radius](3-2-attention.md#one-query) and an area, because $r$ is a number.
{CODE}
| a | table |

## Laboratory

> **§1** It is hardly a circle. But this is longer than the eight words that are short.
"""


def test_words_of_prose_are_counted_on_both_sides_of_the_border():
    page = count(PAGE)
    assert (page.read, page.laboratory) == (13, 17)
    assert {habit: len(hits) for habit, hits in page.hits.items() if hits} == {
        "hardly": 1,
        "And, But, So first": 1,
    }
    assert page.short == pytest.approx(100 / 3)
    assert page.rate == pytest.approx(2000 / 30)


def test_visible_lines_of_code_are_counted_without_imports_and_docstrings():
    assert code_lines(CODE) == 2
    assert count(CODE).code is None  # no laboratory, so no read part


def test_a_page_that_passes_a_limit_is_named():
    long = "The circle is here, and it has a radius that nobody has measured so far in this room. "
    assert faults({"good": count(long * 20)}) == []
    found = faults(
        {"1": count(long * 10 + "Hardly. " * 10), "2": count(long * 800 + "\n## Laboratory\n")}
    )
    assert [fault.partition(":")[0] for fault in found[:1]] == ["1"]
    assert any("words in the paper's read parts" in fault for fault in found)
