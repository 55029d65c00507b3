"""Images and pages for people: contact sheets, groups and pairs, charts."""
