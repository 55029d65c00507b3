"""Every policy of the table in turn, and one from outside."""

import pytest
from every_policy import ASKED, OWN, columns_of, write

from curate.policies.contract import WHERE


@pytest.fixture
def table_with_a_policy_from_outside(monkeypatch):
    monkeypatch.setitem(WHERE, OWN, "every_policy:EveryNth")


@pytest.fixture(params=ASKED)
def policy(request):
    return ASKED[request.param]


@pytest.fixture
def scores(tmp_path):
    return write(tmp_path / "scores.parquet", columns_of())
