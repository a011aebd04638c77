"""Definitions of terms in a page: shown on hover and focus, by the style sheet alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

STYLE = """
dfn{font-style:normal;border-bottom:1px dotted var(--soft);cursor:help}
dfn:hover::after,dfn:focus::after{content:attr(data-means);position:fixed;z-index:9;left:1rem;right:1rem;bottom:1rem;
max-width:40rem;margin:auto;padding:.6rem .9rem;border-radius:.4rem;background:var(--ink);color:var(--paper);
font:400 .95rem/1.4 system-ui,sans-serif;text-align:left;white-space:normal}
"""
"""At the foot of the window: beside its term it would be cut off by a table that scrolls, or by a narrow screen."""


def defined(text: str, definitions: Mapping[str, str]) -> str:
    """The text as HTML; where a term comes first it carries its definition."""
    if not definitions:
        return escape(text)
    longest_first = sorted(definitions, key=len, reverse=True)
    terms = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?![\w-])")
    parts, end, seen = list[str](), 0, set[str]()
    for match in terms.finditer(text):
        if match[0] in seen:
            continue
        seen.add(match[0])
        parts += [escape(text[end : match.start()]), _marked(match[0], definitions[match[0]])]
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def _marked(term: str, meaning: str) -> str:
    means = escape(f"{term}: {meaning}")
    return f"<dfn tabindex='0' data-means='{means}' aria-label='{means}'>{escape(term)}</dfn>"
