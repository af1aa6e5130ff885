"""Sentences for filters that cannot be read, or that ask for what there is not."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import either, plain
from countermark.sessions.filters.binding import (
    FilterDefect,
    FilterKeyUnknown,
    FilterOperatorUnfit,
    FilterPatternUnfit,
    FilterValueUnfit,
)
from countermark.sessions.filters.grammar import (
    DIGITS_MAX,
    EXPONENT_MAX,
    FilterCharacterUnknown,
    FilterNumberUnreadable,
    FilterTextUnended,
    FilterTextUnkept,
    FilterTooDeep,
    FilterTooLong,
    FilterTooWide,
    FilterUnexpected,
)

_AN_EXAMPLE = "a filter is written like this: key = 'text' AND (other > 5 OR NOT third IN ('a', 'b'))"


def filter_sentence(defect: FilterDefect) -> Sentence:
    match defect:
        case FilterTooLong(length, length_max):
            return Sentence(f"the filter has {length:,} characters, and {length_max:,} are the most", "ask for less at once")
        case FilterCharacterUnknown(at, found):
            return Sentence(
                f"{quoted(found)} at character {at} of the filter means nothing there",
                "texts stand in single quotes, keys with such characters in backquotes",
            )
        case FilterTextUnended(at, quote):
            return Sentence(
                f"the quote {plain(quote)} at character {at} of the filter is never closed",
                f"close it; a {plain(quote)} within is written twice",
            )
        case FilterTextUnkept(at, found):
            return Sentence(
                f"{quoted(found)} at character {at} of the filter holds NUL or half of a surrogate pair, which no store keeps",
                "such a character was replaced by U+FFFD when it came in: match it with LIKE and _",
            )
        case FilterNumberUnreadable(at, found):
            return Sentence(
                f"{quoted(found)} at character {at} of the filter is no number that is read",
                f"write {DIGITS_MAX} digits or fewer, and an exponent up to {EXPONENT_MAX} (2.5, 1e6); texts and times stand in quotes",
            )
        case FilterUnexpected(at, found, wanted):
            there = f"stands {quoted(found)}" if found else "the filter ends"
            return Sentence(f"at character {at} of the filter {there}, where {plain(wanted)} belongs", _AN_EXAMPLE)
        case FilterTooDeep(at, depth_max):
            return Sentence(
                f"parentheses and NOT are nested deeper than {depth_max} at character {at} of the filter", "take out what changes nothing"
            )
        case FilterTooWide(at, terms_max):
            return Sentence(
                f"at character {at} of the filter begins more than the {terms_max} comparisons and values that are the most",
                "ask for less at once; a range or LIKE may stand for many values",
            )
        case FilterKeyUnknown(at, key, subject, nearest):
            meant = f"write {either(nearest)}" if nearest else f"docs/reference/filter-keys.md lists the keys of {plain(subject)}"
            return Sentence(f"{quoted(key)} at character {at} of the filter is no key of {plain(subject)}", meant)
        case FilterOperatorUnfit(at, key, operator, kind, operators):
            return Sentence(
                f"{plain(key)} at character {at} of the filter is of the type {plain(kind)}, which {plain(operator)} says nothing about",
                f"compare it by {either(map(plain, operators))}",
            )
        case FilterValueUnfit(at, key, found, why):
            return Sentence(
                f"{plain(key)} cannot be compared with {plain(found, 200)} at character {at} of the filter, because {plain(why)}",
                "write a value of its type: 7, 2.5, 'text', '2026-11-01', '2026-11-01T09:30:00Z', TRUE",
            )
        case FilterPatternUnfit(at, key, position):
            return Sentence(
                f"in the pattern for {plain(key)} at character {at} of the filter the backslash at its character {position} takes nothing",
                r"write \\ for a backslash, \% for a percent sign and \_ for an underscore",
            )
