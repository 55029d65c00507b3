"""Conditions: three-valued logic against Python's, types, and what cannot be understood."""

import datetime
import itertools
import operator
import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from curate.tables.where import parse_condition
from scoring.errors import InputError

NAN = float("nan")
SIGNS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
ROWS = pa.record_batch(
    {
        "label": ["cat", "dog", None, "it's"],
        "width": pa.array([1, 200, 300, None], pa.int32()),
        "kappa": pa.array([0.1, NAN, None, 2.0], pa.float32()),
        "half": pa.array([0.1, 1, 2, None], pa.float16()),
        "good": [True, False, None, True],
        "phash": pa.array([2**64 - 1, 0, 1, 5], pa.uint64()),
        "tags": [[1], [2], None, [3]],
        "day": pa.array([0, 1, 2, None], pa.date32()),
        "kind": pa.array(["a", "b", None, "a"]).dictionary_encode(),
        "or else": [1, 2, 3, 4],
    }
)


def answers(text, batch):
    return [{1: True, 0: False, -1: None}[truth] for truth in parse_condition(text, batch.schema)(batch)]


def ask(text):
    return answers(text, ROWS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('label == "cat"', [True, False, None, False]),
        ("label = 'cat'", [True, False, None, False]),
        ("label != 'cat'", [False, True, None, True]),
        ("label <> 'cat'", [False, True, None, True]),
        (r"label == 'it\'s'", [False, False, None, True]),
        ('label == "it\'s"', [False, False, None, True]),
        ("label in ('cat', \"dog\")", [True, True, None, False]),
        ("label not in ('cat')", [False, True, None, True]),
        ("label like '%t%'", [True, False, None, True]),
        ("label not like 'c_t'", [False, True, None, True]),
        ("label is null", [False, False, True, False]),
        ("label IS NOT NULL", [True, True, False, True]),
        ("width >= 200", [False, True, True, None]),
        ("200 <= width", [False, True, True, None]),
        ("width > 199.5", [False, True, True, None]),
        ("width < 1e400", [True, True, True, None]),
        ("width > -99999999999999999999", [True, True, True, None]),
        ("kappa == 0.1", [True, None, None, False]),
        ("half <= 0.1", [True, False, False, None]),
        ("kappa is null", [False, True, True, False]),
        ("good", [True, False, None, True]),
        ("not good", [False, True, None, False]),
        ("good == false", [False, True, None, False]),
        ("phash == 18446744073709551615", [True, False, False, False]),
        ("phash > -1", [True, True, True, True]),
        ("tags is null", [False, False, True, False]),
        ("day >= '1970-01-02'", [False, True, True, None]),
        ("kind == 'a'", [True, False, None, True]),
        ("`or else` >= 3", [False, False, True, True]),
        ("width > kappa", [True, None, None, None]),
        ("label == 'cat' or width > 250", [True, False, True, None]),
        ("not (label == 'cat' or width > 250)", [False, True, False, None]),
        ("width * 2 > 400", [False, False, True, None]),
        ("(width + 1) / 2 >= 100.5 and width -1 < 299", [False, True, False, None]),
        ("width-1 == 199", [False, True, False, None]),
        ("-width <= -200", [False, True, True, None]),
        ("2 + 3 * 4 == 14 and 2 - 3 - 4 == -5", [True, True, True, True]),
        ("(width - 1) * 5 == 0 or (label == 'dog')", [True, True, None, None]),
        ("width / (width - 200) > 0", [False, None, True, None]),
        ("kappa * 2 > 1", [False, None, None, True]),
        ("(kappa + width) is null", [False, True, True, True]),
        ("width * 100000000 > 2147483647", [False, True, True, None]),
        ("sqrt(width - 200) >= 0", [None, True, True, None]),
        ("abs(width - 150) <= 50", [False, True, False, None]),
        ("least(width, 250) == 250", [False, False, True, None]),
        ("greatest(width, kappa, 1) >= 1", [True, None, None, None]),
        ("floor(kappa) == 0 and ceil(kappa) == 1", [True, None, None, False]),
        ("ln(width) > 5", [False, True, True, None]),
        ("Lower(label) like 'C%' or length(trim(label)) == 4", [False, False, None, True]),
        ("upper(label) == 'CAT'", [True, False, None, False]),
        ("upper(kind) in ('A', 'X')", [True, False, None, True]),
        ("length(label) * 2 in (6)", [True, True, None, False]),
        ("width * width == width / (1 / width)", [True, True, True, None]),
    ],
)
def test_conditions_answer_true_false_or_nothing(text, expected):
    assert ask(text) == expected


def test_and_binds_before_or_and_not_before_both():
    names = ("a", "b", "c")
    table = list(itertools.product([True, False], repeat=3))
    batch = pa.record_batch({name: [row[i] for row in table] for i, name in enumerate(names)})

    assert answers("a or b and not c", batch) == [a or (b and not c) for a, b, c in table]
    assert answers("not a and b or c", batch) == [((not a) and b) or c for a, b, c in table]
    assert answers("(a or b) and c", batch) == [(a or b) and c for a, b, c in table]


def test_logic_with_missing_values_is_sqls():
    values = [True, False, None]
    table = list(itertools.product(values, repeat=2))
    batch = pa.record_batch({"a": pa.array([a for a, _ in table]), "b": pa.array([b for _, b in table])})
    both = [False if False in (a, b) else None if None in (a, b) else True for a, b in table]
    either = [True if True in (a, b) else None if None in (a, b) else False for a, b in table]
    assert answers("a and b", batch) == both
    assert answers("a or b", batch) == either


def test_a_condition_lists_the_columns_it_reads():
    condition = parse_condition("width > 1 and (label == 'x' or width < 9)", ROWS.schema)
    assert condition.columns == ("width", "label")
    assert parse_condition("`or else` == 1", ROWS.schema).columns == ("or else",)


@pytest.mark.parametrize(
    "text", [" or ".join(["width == 200"] * 600), " or ".join(["(" * 20 + "width == 200" + ")" * 20] * 150)]
)
def test_long_chains_of_conditions_and_brackets_are_read_in_time(text):
    assert ask(text) == [False, True, False, None]


def test_deep_calculations_are_read_in_time():
    assert ask("width" + " + width" * 90 + " == 91") == [True, False, False, None]
    assert ask("1 / (" * 90 + "width" + ")" * 90 + " == 1") == [True, False, False, None]
    assert ask("least(width, " * 90 + "2" + ")" * 90 + " == 2") == [False, True, True, None]


def test_no_rows_give_no_answers():
    empty = ROWS.slice(0, 0)
    assert answers("width > 1", empty) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("labl == 'cat'", "did you mean 'label'"),
        ("LABEL == 'cat'", "'LABEL' .*did you mean 'label'"),
        ('"width" > 100', "both values.*column as width,"),
        ('"Label" == "cat"', "column as label,"),
        ('"or else" > 100', "column as `or else`"),
        ('"width" * 2 > 100', "column as width,"),
        ('width > "label"', "column as label,"),
        ('"label" like "a%"', "column as label,"),
        ("label == cat", "column 'cat' .*in quotes"),
        ("label == 3", "'label' is string"),
        ("width == 'cat'", "compared with 'cat'"),
        ("width in (1, 'cat')", "compared with 'cat'"),
        ("width in ()", "got '\\)'"),
        ("width >", "the end"),
        (" ", "is empty"),
        ("(width > 1", "expected '\\)'"),
        ("width > 1 2", "in 'width > 1 2'"),
        ("width > 1; drop", "at character 10"),
        ("width == null", "or 'is not null'"),
        ("tags == 3", "tested with 'is null'"),
        ("day > 'soon'", "'soon' is not"),
        ("'a' == 'b'", "both values"),
        ("width", "comparison after 'width'"),
        ("not", "the end"),
        ("label == __import__('os')", "no function '__import__'"),
        ("sqr(width) > 1", "did you mean 'sqrt'"),
        ("sum(width) > 1", "no function 'sum'"),
        ("abs(label) > 1", "got 'label' .string"),
        ("abs(width, 1) > 1", "abs .*got 2"),
        ("least(width) > 1", "least .*got 1"),
        ("lower(width) == 'a'", "lower .*'width' .int32"),
        ("label + 1 > 2", r"'\+' .*'label'"),
        ("day + 1 > 2", r"'\+' .*'day'"),
        ("width * > 2", "did not expect '>'"),
        ("width + 1", r"after 'width \+ 1'"),
        ("(width + 1 > 2", "expected '\\)'"),
        ("abs(width > 2", "expected '\\)'"),
        ("-" * 300 + "width > 1", "more than 100 signs"),
        ("abs(" * 300 + "width" + ")" * 300 + " > 1", "nested"),
        ("label.__class__ == 'x'", "unexpected .*__class__"),
        ("width == 0x10", "unexpected '0x10'"),
        ("width is 3", "expected 'null'"),
        ("'x' is null", "on its left"),
        ("width like 'a%'", "takes a text column"),
        ("label == 'open", "unexpected"),
        ("(" * 300 + "width > 1" + ")" * 300, "nested"),
        ("not " * 2000 + "good", "nested|more than 100"),
        ("width" + " + width" * 300 + " > 1", "more than 100 signs"),
        ("1 < width < 3", "'and'"),
        ("width is not 3", "after 'is'"),
        ("width > 1 or " * 1000 + "good", "at most 10,000 characters"),
    ],
)
def test_a_condition_that_cannot_be_parsed_is_one_line(text, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_condition(text, ROWS.schema)
    assert "\n" not in str(caught.value)


def test_decimals_of_all_kinds_compare():
    for kind in (pa.decimal128(10, 2), pa.decimal128(10, -2), pa.decimal256(50, 2)):
        batch = pa.record_batch({"x": pa.array([Decimal(100), Decimal(300), None]).cast(kind)})
        assert answers("x > 200.00 and x * 2 == 600", batch) == [False, True, None]


def test_decimals_of_two_columns_compare_exactly():
    large = [Decimal(2**53 + 1), Decimal("0.1")]
    batch = pa.record_batch(
        {
            "x": pa.array(large, pa.decimal128(20, 2)),
            "y": pa.array([large[0] - Decimal("0.001"), large[1]], pa.decimal128(22, 3)),
            "n": pa.array([2**53, 1]),
        }
    )
    assert answers("x == y", batch) == [False, True]
    assert answers("x > n", batch) == [True, False]


def test_decimals_of_more_digits_than_a_double_compare_exactly_or_are_refused():
    large, larger = Decimal(f"1{0:036}1"), Decimal(f"1{0:036}2")
    batch = pa.record_batch({"x": pa.array([large, larger], pa.decimal256(45, 0))})
    assert answers(f"x <= {large}", batch) == [True, False]
    batch = pa.record_batch({"x": pa.array([Decimal(10) ** 40], pa.decimal256(45, 0))})
    with pytest.raises(InputError, match="38 digits"):
        answers("x > 1", batch)


INTEGERS = [2**64 - 1, 2**64 - 17, 2**63, 2**53 + 1, 2**53, 1, 0]
HUNDREDTHS = [Decimal(10**18) + Decimal(cents) / 100 for cents in (1, 2)] + [
    Decimal("0.1"),
    Decimal("-0.1"),
    Decimal(0),
]
VALUES = ["18446744073709551600", "18446744073709551615", "18446744073709551616", "9007199254740992.5", "-0.5", "0.5"]
VALUES += ["9007199254740993.000", "1e400", "-1e400", "1e-400", "-1E-400", "1.8446744073709551615e19", "5e-1", "1e18"]
VALUES += ["1000000000000000000.01", "1000000000000000000.015", "0.1", "0.100000000000000000001", "-0.105", "0", "-0"]


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        (INTEGERS, pa.uint64()),
        ([-(2**63), 2**63 - 1, 2**53 + 1, 0, -1], pa.int64()),
        (HUNDREDTHS, pa.decimal128(38, 2)),
        (HUNDREDTHS, pa.decimal256(60, 3)),
    ],
)
@pytest.mark.parametrize("value", VALUES)
def test_integers_and_decimals_compare_exactly_with_any_number(numbers, kind, value):
    batch = pa.record_batch({"x": pa.array(numbers, kind)})
    for sign, holds in SIGNS.items():
        expected = [holds(Fraction(number), Fraction(value)) for number in numbers]
        assert answers(f"x {sign} {value}", batch) == expected, sign
        assert answers(f"not ({value} {sign} x)", batch) == [
            not holds(Fraction(value), Fraction(number)) for number in numbers
        ]
    assert answers(f"x in ({value}, 1)", batch) == [Fraction(number) in (Fraction(value), 1) for number in numbers]


def test_an_exponent_beyond_all_numbers_is_refused():
    with pytest.raises(InputError, match="exponent"):
        ask("width > 1e" + "9" * 30)


def test_a_time_of_a_zone_is_compared_with_one_that_names_its_zone():
    batch = pa.record_batch({"t": pa.array([0, 7_200_000_000], pa.timestamp("us", "Europe/Paris"))})
    assert answers("t > '1970-01-01T01:00:00Z'", batch) == [False, True]
    with pytest.raises(InputError, match=r"zone.*Z"):
        parse_condition("t > '1970-01-01'", batch.schema)


def test_blank_text_is_no_value():
    batch = pa.RecordBatch.from_pydict({"label": ["cat", "", "  ", None]})

    assert answers("label is not null", batch) == [True, False, False, False]
    assert answers("label != 'dog'", batch) == [True, None, None, None]
    with pytest.raises(InputError, match="is null"):
        parse_condition("label == ''", batch.schema)


@pytest.mark.parametrize(
    "text", ["x == 'a'", "x is null", "not x like 'b%'", "length(x) > 1 or x is null", "lower(x) in ('bb', 'c')"]
)
def test_a_text_column_in_a_dictionary_gives_the_same_answers(text):
    texts = pa.array(["a", None, "Bb", " ", "a", "c", None, "bc"])
    dictionary = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 2, 3, 0, 4, 1, 5]), pa.array(["a", None, "Bb", " ", "c", "bc", "never used"])
    )
    schema = pa.schema([("x", pa.string())])
    plain, coded = (parse_condition(text, schema)(pa.record_batch({"x": x})) for x in (texts, dictionary))
    assert coded.tolist() == plain.tolist()


@pytest.mark.parametrize(("kind", "n"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 32_768)])
def test_a_dictionary_may_have_as_many_values_as_its_codes(kind, n):
    codes = pa.array([n - 1, None, 5], kind)
    x = pa.DictionaryArray.from_arrays(codes, pa.array([f"c{code}" for code in range(n)]))
    assert answers("x == 'c5'", pa.record_batch({"x": x})) == [False, None, True]


@pytest.mark.parametrize(
    ("text", "word"),
    [("width > 1 && height > 1", "and"), ("width > 1 || height > 1", "or"), ("width > 1 & height > 1", "and")],
)
def test_operators_of_other_languages_name_the_word_to_write(text, word):
    with pytest.raises(InputError, match=f"write '{word}'"):
        parse_condition(text, pa.schema([("width", pa.int64()), ("height", pa.int64())]))


def test_exact_values_dates_and_nulls_compare_as_in_duckdb():
    """Whole numbers beyond 2^53, decimals, dates and times, drawn; DuckDB evaluates the same text."""
    duckdb = pytest.importorskip("duckdb")
    draw = random.Random(3)
    columns = {
        "a": ([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 0], pa.int64()),
        "b": ([2**53, 2**53 + 1, 2**64 - 1, 2**64 - 16, 2**64 - 17, 0, 7], pa.uint64()),
        "e": (
            [Decimal("123456789012345678.91"), Decimal("123456789012345678.90"), Decimal("-0.50")],
            pa.decimal128(20, 2),
        ),
        "d": ([datetime.date(2024, 1, 31), datetime.date(1969, 12, 31)], pa.date32()),
        "t": ([datetime.datetime(2024, 1, 31, 5), datetime.datetime(1969, 12, 31)], pa.timestamp("us")),
        "s": (["cat", "a%b", "it", "Cat"], pa.string()),
    }
    batch = pa.record_batch(
        {name: pa.array(draw.choices([*values, None], k=40), kind) for name, (values, kind) in columns.items()}
    )
    integers = ("9007199254740993", "18446744073709551615", "-9223372036854775808", "0", "a", "b")
    integers += ("18446744073709551600", "9007199254740992.5", "-0.5")
    values = {"a": integers, "b": integers, "e": ("123456789012345678.91", "-0.5", "0"), "s": ("'cat'", "'Cat'")}
    values |= {"d": ("'2024-01-31'", "'1970-01-01'"), "t": ("'2024-01-31'", "'2024-01-31 05:00:00'")}

    def drawn(depth):
        if depth and draw.random() < 0.6:
            left, right = drawn(depth - 1), drawn(depth - 1)
            return draw.choice([f"{left} and {right}", f"({left} or {right})", f"not ({left})"])
        name = draw.choice(list(columns))
        sign = draw.choice(["==", "!=", "<", "<=", ">", ">="])
        listed = ", ".join(value for value in values[name] if value not in columns)
        comparison = f"{name} {sign} {draw.choice(values[name])}"
        return draw.choice([comparison, comparison, f"{name} not in ({listed})", f"{name} is null", "s like '%a%'"])

    with duckdb.connect() as connection:
        connection.register("rows", pa.table(batch))
        for text in (drawn(3) for _ in range(150)):
            expected = [row for (row,) in connection.execute(f"select {text} from rows").fetchall()]
            assert answers(text, batch) == expected, text


@pytest.mark.parametrize("sign", ["like", "not like"])
def test_patterns_match_as_in_duckdb_with_a_backslash_that_escapes(sign):
    duckdb = pytest.importorskip("duckdb")
    texts = ["100%", "100x", "a_b", "axb", "a\\b", "a\\_b", "a\nb", "A_b", "x.y", "x+y", "%_", None]
    patterns = ["100\\%", "100%", "a\\_b", "a_b", "a\\\\b", "a\\\\_b", "a\\\\\\_b", "\\%\\_", "%\\_%", "x.y", "x+_"]
    batch = pa.record_batch({"s": pa.array(texts, pa.string())})
    with duckdb.connect() as connection:
        connection.register("rows", pa.table(batch))
        for pattern in patterns:
            query = f"select s {sign} '{pattern}' escape '\\' from rows"
            expected = [row for (row,) in connection.execute(query).fetchall()]
            assert answers(f"s {sign} '{pattern}'", batch) == expected, pattern
    assert answers(r's like "100\%"', batch)[:2] == [True, False]
    assert ask(r"label like 'it\'_'") == [False, False, None, True]
