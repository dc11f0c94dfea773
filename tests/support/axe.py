"""What axe-core finds on a page that keeps people with disabilities off it."""

from __future__ import annotations

import json

from tests.support.browser import Page

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


async def violations(page: Page, script: str) -> list[str]:
    """What axe-core finds against WCAG 2.2 A and AA."""
    await page.run(f"{script}; null")
    found = await page.run(
        "axe.run(document, {runOnly: {type: 'tag', values: "
        + json.dumps(_RULES)
        + "}, resultTypes: ['violations']}).then((found) => found.violations.map((one) => "
        "one.id + ': ' + one.nodes.map((node) => node.html + ' ' + node.failureSummary)"
        ".join(' | ')))"
    )
    assert isinstance(found, list)
    return found
