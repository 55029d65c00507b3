"""Repeats the decision of a receipt, and reports which rows differ, and why."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from curate.columns import KEY
from curate.counted import single_line
from curate.manifest.store_path import AnyPath, path_to_read, sha256_of
from curate.policies import findings
from curate.policies.chain import Searched
from curate.policies.contract import Policy, policy_of
from curate.policies.decided import Decided, Result
from curate.policies.differences import (
    FIXED,
    MISSING,
    NOT_DERIVED,
    Verification,
    compare_outputs,
    facts_of,
    is_file,
    unequal_json,
    unlike_tables,
    without_files,
)
from curate.policies.findings import Finding
from curate.policies.outputs import bytes_read
from curate.policies.receipts import DIGEST_OF, check_hash, digests_of, environment, read_receipt
from curate.tables.table import Table, open_table
from curate.version import __version__
from scoring.errors import InputError

N_NAMED = 10  # maximal number of reported figures
NOTES = "notes"
LONGEST = 80  # characters of a figure in a message


def verify(
    receipt: str | AnyPath, table: str | AnyPath | None = None, *, roots: Sequence[str | Path] = ()
) -> Verification:
    """Apply the receipt's policy to its input again, and compare with the files next to the receipt.

    Args:
        receipt: ``NAME.receipt.json``; subset and decisions are in its folder, on a disk or in a store.
        table: the input, if it was moved.
        roots: folders to search for moved files by digest; then nothing outside of them and of the folder of the
            receipt is read.

    Returns:
        all differences. The rows of the input may be in another order.

    Raises:
        InputError: if receipt, input or an output is missing or unreadable.
    """
    receipt = path_to_read(receipt)
    noted = read_receipt(receipt)
    check_hash(receipt, noted)
    searched = Searched(receipt.parent, tuple(map(Path, roots)))
    where = table if table is not None else _input(receipt, noted, searched)
    source = open_table(where, require=[KEY], embedding=noted["input"].get("embedding"))
    policy = _policy(receipt, noted, searched)
    again = policy.decide(source)
    result = Verification(n_rows=len(again.outcome), input=str(source.path), model=_model(source))
    _compare_origin(noted, source, result)
    if table is None:
        _note_places(receipt, noted, source, searched, result)
    result.check_digest("the input", again.digest, noted["input"]["digest"])
    _compare_files(again.policy, noted["policy"], result)
    outputs = _outputs(receipt.parent, noted, searched, result)
    texts = _paths(again.policy) == _paths(noted["policy"])
    compare_outputs(again, outputs["decisions"], outputs["subset"], result, texts=texts)
    _compare_receipt(again, policy, noted, source, result, texts=texts, meant=table is not None)
    _compare_more(again, receipt.parent, noted, result, texts=texts)
    _compare_rules(noted, outputs, result)
    _compare_bytes(noted, source, result, meant=table is not None)
    for path, digest in noted.get("read", {}).items():
        _compare_read(receipt, path_to_read(path), digest, searched, result)
    if result.n_different and not result.problems:
        result.problem(Finding(findings.OTHER_RULES))
    if not result.identical:
        result.notes += packages_then(noted)
    return result


def _policy(receipt: AnyPath, noted: dict[str, Any], searched: Searched) -> Policy[Result]:
    """Return the policy of a receipt, with the present paths of its files."""
    rules = [_located(rule, noted, searched) for rule in noted["policy"]]
    try:
        return policy_of(rules).from_receipt(rules)
    except InputError as error:
        files = [path_to_read(str(file["path"])) for rule in noted["policy"] for file in _files(rule).values()]
        lost = any(searched.find(path) is None for path in files)
        more = "; moved files are searched next to the receipt, and below --root" if lost else ""
        raise InputError(f"{receipt}: {error}{more}") from None


def _located(rule: Any, noted: Mapping[str, Any], searched: Searched) -> Any:
    """Return a rule with the present paths of its files."""
    files = {name: path_to_read(str(file["path"])) for name, file in _files(rule).items()}
    if not files:
        return rule
    read = noted.get("read", {})
    paths = {name: searched.find(path, [read[str(path)]] if str(path) in read else ()) for name, path in files.items()}
    return {**rule, **{name: str(paths[name] or path) for name, path in files.items()}}


def _files(rule: Any) -> dict[str, Any]:
    """Return the parameters of a rule that are files, by name."""
    return {name: value for name, value in rule.items() if is_file(value)} if isinstance(rule, Mapping) else {}


def _paths(rules: list[Any]) -> list[Any]:
    """Return the paths of all files of rules."""
    return [file["path"] for rule in rules for file in _files(rule).values()]


def _input(receipt: AnyPath, noted: dict[str, Any], searched: Searched) -> AnyPath:
    """Return the path of the input: the original one, next to the receipt, or below a root by its digest."""
    located = searched.source_of(noted)
    if located is None:
        path = path_to_read(str(noted["input"]["path"]))
        below = "" if not searched.roots else f", nor below {', '.join(map(str, searched.roots))}"
        more = " or search a folder with --root" if not searched.roots else ""
        raise InputError(f"the input {path} of {receipt} no longer exists{below}; pass its new place as --table{more}")
    return located


def _compare_origin(noted: Mapping[str, Any], source: Table, result: Verification) -> None:
    """Record the version that wrote the receipt, and whether the input has the same weights and path."""
    then = str(noted.get("curate", "an unknown version"))
    if then != __version__:
        result.notes.append(Finding(findings.OTHER_VERSION, "curate", __version__, then))
    was = str(noted["input"]["path"])
    if str(source.path.resolve()) != was:
        result.notes.append(Finding(findings.MOVED, "the input", str(source.path), was))
    model, before = (_digest(described) for described in (source.metadata.get("model"), noted.get("model")))
    if model != before:
        result.problem(Finding(findings.OTHER_MODEL, "the input", model or "unknown", before or "unknown"))


def _note_places(
    receipt: AnyPath, noted: Mapping[str, Any], source: Table, searched: Searched, result: Verification
) -> None:
    """Record which of several files with the input's name is compared, if the nearest one has changed."""
    path = path_to_read(str(noted["input"]["path"]))
    then, places = noted["input"].get("sha256"), searched.places(path)
    if len(places) < 2 or not then or None in then:
        return
    if digests_of(source) != then:
        result.notes.append(Finding(findings.NEITHER, str(source.path), then=" nor ".join(map(str, places))))
    elif places[0].resolve() != source.path.resolve():
        note = Finding(findings.NOT_NEAREST, str(source.path), then=str(places[0]))
        if searched.is_copied(receipt, places[0], path):
            result.problem(note)
        else:  # another file of that name, as of a table in the folder that a result was written to
            result.notes.append(note)


def _compare_receipt(
    again: Decided[Result],
    policy: Policy[Result],
    noted: Mapping[str, Any],
    source: Table,
    result: Verification,
    *,
    texts: bool,
    meant: bool,
) -> None:
    """Compare every number of the receipt with the repeated decision.

    A receipt of another version may lack figures and have other texts: only numbers that both have are compared.
    """
    now = facts_of(again)
    then = {name: value for name, value in noted.items() if name not in FIXED}
    now["policy"], then["policy"] = without_files(now["policy"]), without_files(then["policy"])
    if NOTES in now and isinstance(then.get(NOTES), list):  # commands may add notes to the notes of their rules
        then[NOTES] = [note for note in then[NOTES] if note in now[NOTES]]
    for name in NOT_DERIVED & set(then) - set(now):
        result.notes.append(Finding(findings.NOT_AGAIN, name))
        del then[name]
    about = noted["input"]
    now["input"] = {"n_rows": len(again.outcome), "digest_of": DIGEST_OF}
    then["input"] = {name: about.get(name) for name in now["input"]}
    if not meant and str(source.path.resolve()) == str(about["path"]):
        now["input"]["files"], then["input"]["files"] = [file.name for file in source.files], about.get("files")
    same_version = noted.get("curate") == __version__
    if same_version:
        read = set(bytes_read(policy.files).values())
        now["read"] = sorted(read)
        then["read"] = sorted(read & set(noted["read"].values())) if "read" in noted else None
    else:
        now = {name: value for name, value in now.items() if name in then}
        then = {name: value for name, value in then.items() if name in now}
        now["input"], then["input"] = ({"n_rows": each["input"]["n_rows"]} for each in (now, then))
        if "n_rows" not in about:
            del now["input"], then["input"]
    missing = MISSING if same_version else None
    figures = list(unequal_json(now, then, texts=texts and same_version, missing=missing))
    if any(MISSING in (value, before) for _, value, before in figures):
        result.notes.append(Finding(findings.OTHER_FORM))
    _name_figures(figures, result)


def _compare_rules(noted: Mapping[str, Any], outputs: Mapping[str, Table], result: Verification) -> None:
    """Compare the rules of the receipt with those in the tables, since another rule may decide the same rows."""
    for name, table in outputs.items():
        rules = table.metadata.get("policy")
        if isinstance(rules, list) and len(rules) >= len(noted["policy"]):
            last_rules = rules[len(rules) - len(noted["policy"]) :]  # rules of earlier subsets come first
            _name_figures(unequal_json(last_rules, noted["policy"], f"policy of {name}"), result)


def _name_figures(figures: Iterable[tuple[str, Any, Any]], result: Verification) -> None:
    for number, (name, now, then) in enumerate(figures):
        if number < N_NAMED:
            result.problem(Finding(findings.OTHER_FIGURE, name, _short(now), _short(then)))
        else:
            result.problems += 1


def _short(value: Any) -> str:
    text = MISSING if value is None else single_line(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _compare_more(
    again: Decided[Result], folder: AnyPath, noted: Mapping[str, Any], result: Verification, *, texts: bool
) -> None:
    """Compare the other output files: names, rows and content."""
    outputs = noted["outputs"]
    paths = {name: folder / entry["file"] for name, entry in outputs.items()}
    stem = str(outputs["subset"]["file"]).removesuffix(".parquet")
    rows = {"subset": again.counts()["kept"], "decisions": len(again.outcome)}
    rows |= {name: table.num_rows for name, table in again.more.items()}
    contents = dict(again.texts(paths)) if again.texts is not None else {}
    names = {name: f"{stem}.{name}.parquet" for name in ("decisions", *again.more)}
    now = {name: {"n_rows": n, "file": names.get(name)} for name, n in rows.items()} | {name: {} for name in contents}
    for name, entry in now.items():
        then = outputs.get(name)
        if then is None and noted.get("curate") != __version__:
            continue
        expected = {key: value for key, value in entry.items() if value is not None}
        listed = None if then is None else {key: then.get(key) for key in expected}
        _name_figures(unequal_json(expected, listed, f"outputs.{name}"), result)
    if not result.same_order:
        return  # groups are numbered and listed in the order of the rows
    for name, table in again.more.items():
        if name in paths and paths[name].is_file():
            _name_figures(unlike_tables(table, open_table(paths[name]).read(), paths[name].name, texts=texts), result)
    for name, content in contents.items():
        if texts and name in paths and paths[name].is_file() and sha256_of(paths[name]) != sha256(content).hexdigest():
            result.problem(Finding(findings.OTHER_FIGURE, paths[name].name, "other text by the rules", "what it holds"))


def _model(table: Table) -> str:
    about = table.noted("model")
    return f"{about.get('method', '')} {_digest(about)[:16]}".strip()


def _digest(model: Any) -> str:
    return str(model.get("digest", "")) if isinstance(model, Mapping) else ""


def _compare_files(now: list[dict[str, Any]], then: list[Any], result: Verification) -> None:
    """Compare the files of rules with their digests."""
    for rule, old in zip(now, then, strict=True):
        for name, file in rule.items():
            if not is_file(file):
                continue
            expected = str(old[name]["digest"]) if is_file(old.get(name)) else ""
            result.check_digest(file["path"], file["digest"], expected)


def _outputs(folder: AnyPath, noted: Mapping[str, Any], searched: Searched, result: Verification) -> dict[str, Table]:
    """Compare outputs with their digests, and open the tables to compare rows."""
    tables = {}
    for name, entry in noted["outputs"].items():
        path = folder / entry["file"]
        searched.refuse_outside(path)
        if name in ("subset", "decisions"):
            tables[name] = open_table(path, require=[KEY])
        if not path.is_file():
            result.problem(Finding(findings.FILE_GONE, str(path)))
        elif sha256_of(path) != entry["sha256"]:
            result.problem(Finding(findings.FILE_CHANGED, str(path)))
    return tables


def _compare_bytes(noted: Mapping[str, Any], source: Table, result: Verification, *, meant: bool) -> None:
    """Record an input that has changed only in columns the rules do not read."""
    then = noted["input"].get("sha256")
    if not then or None in then or not result.identical:
        return
    now = digests_of(source)
    if None in now or now == then:
        return
    if result.same_order and not meant:
        result.problem(Finding(findings.OTHER_BYTES, str(source.path)))
    else:
        result.notes.append(Finding(findings.REWRITTEN, str(source.path)))


def _compare_read(receipt: AnyPath, path: AnyPath, digest: str, searched: Searched, result: Verification) -> None:
    """Compare an additional input file with its digest; a missing file is reported by the policy."""
    place = searched.find(path, [digest])
    if place is None or any(note.what == str(place) for note in result.notes):
        return
    if sha256_of(place) != digest:
        result.problem(Finding(findings.OTHER_BESIDE, str(place)))
    elif (near := next(iter(searched.places(path)), place)) != place and searched.is_copied(receipt, near, path):
        result.problem(Finding(findings.NOT_NEAREST, str(place), then=str(near)))


def packages_then(receipt: Mapping[str, Any]) -> list[Finding]:
    """Return the receipt's packages that have another version now, which can change last digits."""
    now, then = environment(), receipt.get("environment")
    if not isinstance(then, Mapping):
        return []
    before = {"python": then.get("python"), **(then["packages"] if isinstance(then.get("packages"), Mapping) else {})}
    after = {"python": now["python"], **now["packages"]}
    return [
        Finding(findings.OTHER_PACKAGE, name, str(after.get(name)), str(was))
        for name, was in before.items()
        if str(after.get(name)) != str(was)
    ]
