"""A page of `curate review --browse`, and what a browser asks of it."""

import http.client
import json
from urllib.parse import urlencode

from curate.reviewing.serve import review

N = 300  # rows of the table that is browsed


def view(*args, **options):
    return review(*args, browse=True, **options)


def get(server, path="", *, token=None, method="GET", headers=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    token = server.site.token if token is None else token
    connection.request(method, f"/{token}/{path}" if token is not False else path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def rows(server, **query):
    answer, content = get(server, "rows" + (f"?{urlencode(query)}" if query else ""))
    assert answer.status == 200, content
    page = json.loads(content)
    assert page["rows"]["n"] == len(page["rows"]["row"])
    return page["total"], page["rows"]["row"], page["rows"]
