"""Docstrings in three styles, taken apart."""

import textwrap

import pytest

from minagent.schema import parse_docstring

SUMMARY = "Refund an order.\n\nThe money goes back\nthe way it came."

GOOGLE = """Refund an order.

    The money goes back
    the way it came.

    Args:
        order (int): Order number,
            as printed on the bill.
        amount: EUR.

            At most what was paid.
        notify (Callable[[int], str], optional):
            Who is told (see below): nobody by default.
        *rest: More.
        `quoted`: In backticks.

    Returns:
        The receipt.

    Raises:
        ValueError: If the order is unknown.

    Note:
        Slow.
    """

NUMPY = """Refund an order.

    The money goes back
    the way it came.

    Parameters
    ----------
    order : int
        Order number,
        as printed on the bill.
    amount, tax : float, optional
        EUR.
    bare

    Returns
    -------
    str
        The receipt.

    Raises
    ------
    ValueError
        If the order is unknown.

    Notes
    -----
    Slow.
    """

SPHINX = """Refund an order.

    The money goes back
    the way it came.

    :param int order: Order number,
        as printed on the bill.
    :param amount: EUR.
    :type amount: float
    :keyword notify: Who is told: nobody.
    :returns: The receipt.
    :rtype: str
    :raises ValueError: If the order is unknown.
    """


def test_google_style():
    """Entries with types, continuations, blank lines, stars and backticks are read; other sections stay."""
    text, parameters = parse_docstring(GOOGLE)
    assert parameters == {
        "order": "Order number, as printed on the bill.", "amount": "EUR. At most what was paid.",
        "notify": "Who is told (see below): nobody by default.", "rest": "More.", "quoted": "In backticks."}
    assert text == SUMMARY + "\n\nReturns:\n    The receipt.\n\nNote:\n    Slow."


def test_numpy_style():
    """Entries with types, shared descriptions and none at all are read; other sections stay."""
    text, parameters = parse_docstring(NUMPY)
    assert parameters == {"order": "Order number, as printed on the bill.", "amount": "EUR.", "tax": "EUR.",
                          "bare": ""}
    assert text.startswith(SUMMARY + "\n\nReturns\n-------\nstr\n    The receipt.")
    assert "ValueError" not in text
    assert text.endswith("Notes\n-----\nSlow.")


def test_sphinx_style():
    """Fields with and without types are read, types and exceptions are dropped, the result is kept."""
    text, parameters = parse_docstring(SPHINX)
    assert parameters == {"order": "Order number, as printed on the bill.", "amount": "EUR.",
                          "notify": "Who is told: nobody."}
    assert text == SUMMARY + "\n\nReturns: The receipt."


@pytest.mark.parametrize("header", ["Args", "Arguments", "Parameters", "Keyword Args", "Attributes"])
def test_google_headers(header):
    """All the usual names of the section are known, and dashes before entries are allowed."""
    doc = "Do.\n\n%s:\n  - a: First.\n  - b (int): Second." % header
    assert parse_docstring(doc) == ("Do.", {"a": "First.", "b": "Second."})


@pytest.mark.parametrize("doc", [None, "", "   \n  "])
def test_no_docstring_is_no_text(doc):
    """Nothing in, nothing out."""
    assert parse_docstring(doc) == ("", {})


@pytest.mark.parametrize("doc", [
    "Convert a: b and so on.", "See http://example.org: more.", "Do.\n\nExample:\n    f(1)",
    "First.\n\nNote: this stays.", "A table\n\na | b\n--- | ---", ":)", "Title\n=====\n\nText.",
    "Args:",
])
def test_text_that_only_looks_like_a_section_stays(doc):
    """What is no section of parameters is not touched; an empty section simply goes."""
    text, parameters = parse_docstring(doc)
    assert parameters == {}
    assert text == ("" if doc == "Args:" else doc)


def test_the_summary_may_stand_on_the_second_line():
    """A docstring that opens with a line break is dedented all the same."""
    doc = textwrap.dedent('''
        Do it.

        Args:
            a: First.
    ''')
    assert parse_docstring(doc) == ("Do it.", {"a": "First."})
