"""`from annotated.compat import *`: The Annotated Transformer's model, training and search."""

from annotated.machinery.compat import *  # noqa: F403
from annotated.machinery.compat import __all__ as __all__
