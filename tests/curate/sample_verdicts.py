"""Verdicts on a drawn sample, as a review writes them."""

from itertools import groupby

from curate.policies.sampled import verdicts_beside
from curate.policies.verdicts import VerdictFile


def judge(sample, verdicts, *, question, reviewer="ann"):
    """Write (verdict, key, beside, label) next to a sample; one of an empty verdict is left out."""
    file = VerdictFile(verdicts_beside(sample), reviewer, {"table": "t.parquet"})
    for (verdict, label), group in groupby(sorted(verdicts), key=lambda line: (line[0], line[3])):
        keys, beside = zip(*((key, other) for _, key, other, _ in group), strict=True)
        more = {"column": "label", "label": label} if label else {}
        if verdict:
            file.append(
                verdict,
                question=question,
                keys=keys,
                images=("",) * len(keys),
                beside=beside if any(beside) else (),
                **more,
            )
    return file.path
