"""Hooks of MkDocs: pages that live outside `docs/`, one API page for each public module, and the navigation.

The pages of `docs/` are read on a code host as well, so their links lead to files of the repository. Here
those files become pages under `project/`, and links to them are rewritten; a link to a file that is no page
(source, results) becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.reference.api_page import public_modules

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^()\s]+)\)")
_SHORT_CODE = re.compile(r"(?<!</span>)<code>([^<\s]{1,24})</code>")
_ANY = "*"
_SEARCH_RANK = {
    "api/": 0.1,
    "reference/": 0.3,
    "decisions/": 0.3,
    "internals": 0.3,
    "proof/": 0.3,
    "systems/": 0.3,
    "services/": 0.3,
    "project/": 0.5,
    "operations/infer": 1.5,
    "guides/": 3.0,
    "which-pattern": 3.0,
}
"""How pages rank in the search, by the start of their path; others have 1. Pages that explain come first."""


def outside_pages() -> dict[str, str]:
    """The Markdown files outside `docs/` that readers need: their path in the repository, and on the site."""
    found = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "deploy/README.md"]
    found += [str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/README.md")]
    found += [str(path.relative_to(ROOT)) for path in ROOT.glob("services/src/**/README.md")]
    found += ["services/README.md"]
    return {path: f"project/{_flat(path)}" for path in dict.fromkeys(found) if (ROOT / path).is_file()}


def _flat(path: str) -> str:
    name = path.removesuffix("/README.md").removesuffix(".md").lower().replace("src/ephemera_services", "all")
    return name.replace("/", "-") + ".md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    for path, uri in outside_pages().items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    for modules in public_modules().values():
        for module in modules:
            files.append(File.generated(config, f"api/{module}.md", content=f"# {module}\n\n::: {module}\n"))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand the patterns of the navigation (`patterns/*`) to the pages they match."""
    pages = [str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").rglob("*.md"))]
    pages += sorted(outside_pages().values())
    named = {item for item in _strings(config.nav) if not item.endswith(_ANY)}
    config.nav = _expanded(config.nav, [page for page in pages if page not in named])
    return config


def _strings(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    children = item.values() if isinstance(item, dict) else item
    return [text for child in children for text in _strings(child)]


def _expanded(item: Any, pages: list[str]) -> Any:
    if isinstance(item, dict):
        return {title: _expanded(value, pages) for title, value in item.items()}
    if not isinstance(item, list):
        return item
    found: list[Any] = []
    for child in item:
        if isinstance(child, str) and child.endswith(_ANY):
            found += _api_sections() if child == "api/*" else _matching(child, pages)
        else:
            found.append(_expanded(child, pages))
    return found


def _matching(pattern: str, pages: list[str]) -> list[str]:
    found = [page for page in pages if fnmatch(page, pattern)]
    return sorted(found, key=lambda page: not page.endswith("README.md"))


def _api_sections() -> list[dict[str, list[dict[str, str]]]]:
    return [
        {title: [{module.removeprefix("ephemera."): f"api/{module}.md"} for module in modules]}
        for title, modules in public_modules().items()
    ]


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Rewrite links that leave `docs/`, and set the rank in the search."""
    for start, rank in _SEARCH_RANK.items():
        if page.file.src_uri.startswith(start):
            page.meta.setdefault("search", {"boost": rank})
    here = _repository_path(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        path, mark, anchor = link["target"].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        there = _site_path(target, files)
        if there is None:
            return link["text"].lstrip("!")[1:-1]
        relative = posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or ".")
        return f"{link['text']}({relative}{mark}{anchor})"

    return _outside_code(markdown, rewritten)


def on_page_content(html: str, **_: Any) -> str:
    """Keep short names in one piece where a column is narrow."""
    return _SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def _outside_code(markdown: str, rewritten: Any) -> str:
    parts = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`(?!\]))", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.lstrip().startswith("`") else _LINK.sub(rewritten, part) for part in parts)


def _repository_path(uri: str) -> str:
    sources = {there: path for path, there in outside_pages().items()}
    return sources.get(uri, f"docs/{uri}")


def _site_path(target: str, files: Files) -> str | None:
    if target == "README.md":
        return "README.md"
    uri = outside_pages().get(target) or outside_pages().get(f"{target}/README.md")
    if uri is None and target.startswith("docs"):
        uri = target.removeprefix("docs").lstrip("/") or "README.md"
        if files.get_file_from_path(uri) is None:
            uri = f"{uri}/README.md"
    return uri if uri is not None and files.get_file_from_path(uri) is not None else None
