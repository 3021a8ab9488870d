"""The version that is installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("annotated-attention")
except PackageNotFoundError:  # used from the source tree without being installed
    __version__ = "0"
