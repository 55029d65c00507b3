"""Images and pages for annotators: contact sheets, groups and pairs, charts."""
