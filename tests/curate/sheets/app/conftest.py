"""One browser for all tests of pages."""

import pytest
from headless import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    profile = tmp_path_factory.mktemp("profile")
    downloads = tmp_path_factory.mktemp("downloads")
    opened = Browser(profile, downloads)
    opened.downloads = downloads
    yield opened
    opened.process.terminate()
    opened.process.wait(20)
