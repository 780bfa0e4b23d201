#!/usr/bin/env python3
"""Checks the built book: every link and picture of every page leads to a file of the book, and to a heading that is there.

    mdbook build docs/book && docs/book/links.py target/book

Links to other sites are counted and not asked for. Exit code 1 when a link leads nowhere.
"""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The ids of a page, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.targets = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.update(value for value in (attributes.get("id"), tag == "a" and attributes.get("name")) if value)
        target = attributes.get("href") if tag in ("a", "link") else attributes.get("src") if tag in ("img", "script") else None
        if target:
            self.targets.append(target)


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1], "index.html").is_file():
        sys.exit("links.py takes one argument: the folder of a built book")
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    faults, followed, outside = [], 0, 0
    for path, page in pages.items():
        # All pages on one, and the page for addresses that are not there, are made of the others.
        if path.name in ("print.html", "404.html", "toc.html"):
            continue
        for target in page.targets:
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or parts.netloc:
                outside += 1
                continue
            followed += 1
            named = urllib.parse.unquote(parts.path)
            there = path if not named else (root / named.lstrip("/") if named.startswith("/") else path.parent / named).resolve()
            there = there / "index.html" if there.is_dir() else there
            anchor = urllib.parse.unquote(parts.fragment)
            if not there.is_file():
                faults.append(f"{path.relative_to(root)}: {target}: there is no such file")
            elif anchor and there in pages and anchor not in pages[there].ids:
                faults.append(f"{path.relative_to(root)}: {target}: there is no such heading")
    print("\n".join(faults) or f"{len(pages)} pages, {followed} links lead somewhere, {outside} to other sites were not asked for")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
