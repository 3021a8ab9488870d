"""6.3 English Constituency Parsing (chapters/6-3-constituency-parsing.md).

Generated from the chapter's export cells by book/extract.py: edit it there.
"""

from annotated.files import lazy_extra

__all__ = ["table_4"]


with lazy_extra("viz"):
    import pandas as pd

_TABLE_4 = {
    "WSJ only, discriminative": {
        "Vinyals & Kaiser 2014": 88.3, "Petrov 2006": 90.4, "Zhu 2013": 90.4, "Dyer 2016": 91.7,
        "Transformer (4 layers)": 91.3,
    },
    "semi-supervised": {
        "Zhu 2013": 91.3, "Huang & Harper 2009": 91.3, "McClosky 2006": 92.1,
        "Vinyals & Kaiser 2014": 92.1, "Transformer (4 layers)": 92.7,
    },
    "multi-task": {"Luong 2015": 93.0},
    "generative": {"Dyer 2016": 93.3},
}  # fmt: skip


def table_4() -> pd.DataFrame:
    """Table 4: F1 in percent on section 23 of the Wall Street Journal.

    Source: section 6.3, Table 4.
    """
    rows = [(name, how, f1) for how, group in _TABLE_4.items() for name, f1 in group.items()]
    return pd.DataFrame(rows, columns=["parser", "training", "F1"])
