"""The text of a page of a report, without a browser."""

import json
from html.parser import HTMLParser

import pytest
from reported import document

from curate.sheets.app import assemble
from curate.sheets.app.assemble import page_pieces, served_page


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_no_string_of_the_users_becomes_a_tag():
    harmless = document(40)
    plain = Tags()
    plain.feed("".join(page_pieces(json.loads(json.dumps(harmless).replace("<", "(")))))
    hostile = Tags()
    hostile.feed("".join(page_pieces(harmless)))
    assert [tag for tag, _ in hostile.seen] == [tag for tag, _ in plain.seen]


@pytest.mark.parametrize(
    ("part", "column", "value", "match"),
    [("rows", "kappa", float("nan"), "JSON"), ("thumbs", "data", "</script>", "base64")],
)
def test_numbers_that_are_not_finite_and_thumbnails_without_base64_are_refused(part, column, value, match):
    facts = document(20)
    facts[part][column][3] = value
    with pytest.raises(ValueError, match=match):
        list(page_pieces(facts))


def test_the_served_page_holds_neither_rows_nor_thumbnails():
    facts = document(30)
    text = served_page(facts, "secret")
    assert facts["thumbs"]["data"][0] not in text
    assert "photos/00020.jpg" not in text
    assert 'data-base="/secret/"' in text
    assert "connect-src 'self'" in text
    assert "connect-src 'none'" in "".join(page_pieces(facts))


def test_the_page_is_made_of_files_that_can_be_read_in_one_sitting():
    for name in assemble.SCRIPTS:
        assert assemble._text_of((f"js/{name}.js",)).count("\n") < 300
