"""What annotators look at: contact sheets, pages of groups and pairs, charts."""
