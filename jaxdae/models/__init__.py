"""Models of common machines: functions that return a mechanism and a start with closed loops."""

from jaxdae.models.parallel_robots import delta, five_bar, stewart

__all__ = ["delta", "five_bar", "stewart"]
