"""The diagrams of the documentation, as SVG drawn from small descriptions; `make docs` writes them."""

from tools.diagrams.descriptions import DIAGRAMS

__all__ = ["DIAGRAMS"]
