"""How figures are shown, and what is cut out of the core to take them."""

import pytest
from bench import variants
from bench.tables import Table, met, number


def test_a_table_is_markdown():
    table = Table("T", ["case", "us"], [["a", "1"], ["b", "2"]], ["A note."])
    assert table.markdown() == "| case | us |\n| --- | ---: |\n| a | 1 |\n| b | 2 |\n\nA note."


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (0.04712, "0.0471"), (1.35, "1.35"), (12400, "12,400")],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "verdict"), [(2.7, "yes"), (2.8, "limit"), (3.2, "limit"), (3.3, "NO")]
)
def test_a_figure_is_held_against_goal_and_limit(value, verdict):
    assert met(value, 2.7, 3.2, at_most=True) == verdict


def test_without_a_goal_there_is_no_verdict():
    assert met(1, None, None, at_most=True) == ""


def test_rates_have_to_reach_the_goal():
    assert met(3.0, 3.0, None, at_most=False) == "yes"
    assert met(2.9, 3.0, None, at_most=False) == "NO"


@pytest.mark.parametrize("variant", sorted(variants.CUTS))
def test_what_is_cut_out_of_the_core_is_there(variant):
    """If this fails, mend the cut in bench/variants.py after your change of the core."""
    texts = variants.sources()
    assert variants.cut(texts, variant, variants.CUTS[variant]) != texts
