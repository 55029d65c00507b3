"""Images and pages for review: contact sheets, groups and pairs, charts."""
