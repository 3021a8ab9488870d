"""`from annotated.compat import *`: the names that The Annotated Transformer defines."""

from annotated.machinery.compat import *  # noqa: F403
from annotated.machinery.compat import __all__ as __all__
