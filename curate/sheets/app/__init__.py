"""The page of a report: HTML, CSS and JavaScript files combined into one text; `vendor/` holds the chart library."""
