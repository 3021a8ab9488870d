"""Attention as alignment. The study of heads.

Generated from the chapters by book/extract.py. Each name is imported from its module when it is
first used, so that importing the package stays quick; __init__.pyi says which there are.
"""

import lazy_loader

_names: dict[str, list[str]] = {}
with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as _stub:
    for _line in _stub:  # as attach_stub, without `ast`, whose import would take the most time
        _, _module, _, _name, *_ = _line.split()  # from .module import name as name
        _names.setdefault(_module[1:], []).append(_name)
__getattr__, __dir__, _ = lazy_loader.attach(__name__, _names.pop(""), _names)
__all__ = sorted(name for names in _names.values() for name in names if name[0] != "_")
