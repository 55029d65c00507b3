"""What the tests of every source ask of a manifest."""

from curate.manifest.contract import ReadError


def keys(manifest):
    return manifest.rows(0, manifest.n_rows)["key"].to_pylist()


def outcomes(manifest):
    """Each row's bytes, or the status of its failure."""
    return read_all(manifest.readers(0, manifest.n_rows))


def read_all(readers):
    """What each reader gives, or the status of its failure."""
    outcomes = []
    for read in readers:
        try:
            outcomes.append(read())
        except ReadError as error:
            outcomes.append(error.status)
    return outcomes
