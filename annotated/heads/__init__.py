"""The study of heads.

Generated from the chapters by book/extract.py. Each name is imported from its module when it is
first used, so that importing the package stays quick; __init__.pyi says which there are.
"""

import os

import lazy_loader

__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
_modules = {file.partition(".")[0] for file in os.listdir(__path__[0])}
__all__ = [name for name in _names if name not in _modules and name[0] != "_"]
