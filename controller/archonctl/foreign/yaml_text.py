"""What is wrong with a YAML text, said as every reader of foreign files says it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from archonctl.errors import UsageError


@contextmanager
def reading_yaml(where: str) -> Iterator[None]:
    """Raises UsageError ``foreign-file-malformed``, with the place, for what is no YAML."""
    try:
        yield
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise UsageError(
            "foreign-file-malformed", f"not valid YAML: {err.problem or err.context}", where=place
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as err:
        message = "nested too deeply" if isinstance(err, RecursionError) else str(err).splitlines()[0][:200]
        raise UsageError("foreign-file-malformed", f"not valid YAML: {message}", where=where) from None
