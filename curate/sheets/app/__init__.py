"""The page of a report: HTML, CSS and JavaScript as files, put together into one text; `vendor/` holds the charts."""
