"""Images as files."""

import io


def encoded(picture, name="png", **options):
    stream = io.BytesIO()
    picture.save(stream, name, **options)
    return stream.getvalue()
