"""Archives and tables as bytes, for tests that put them somewhere."""

import io
import tarfile

import pyarrow.parquet as pq


def a_tar(members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def a_parquet(table):
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()
