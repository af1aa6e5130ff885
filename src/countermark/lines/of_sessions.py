"""Sentences for events that are not taken."""

from countermark.lines.sentence import Sentence
from countermark.lines.texts import plain
from countermark.sessions.canonical import ValueUnspellable
from countermark.sessions.edits import EventFieldInvalid, EventFieldMissing, EventFieldUnknown
from countermark.sessions.events import EventDefect, EventNowhere, EventUnreadable

SessionDefect = EventDefect

_AGAIN = "mend it and send it again: what was taken beside it is not stored twice"


def event_sentence(defect: SessionDefect) -> Sentence:
    match defect:
        case EventUnreadable(why):
            return Sentence(f"it is no event: {plain(why)}", "send JSON objects, one an event, as the reference of events has them")
        case EventNowhere():
            return Sentence("the event belongs to no session", "name its session, its trace or its source")
        case EventFieldInvalid(field, found, wanted):
            return Sentence(f"{plain(field)} is {plain(found)}; wanted: {plain(wanted)}", _AGAIN)
        case EventFieldMissing(field):
            return Sentence(f"{plain(field)} is missing", _AGAIN)
        case EventFieldUnknown(field, near):
            meant = f"; {plain(near)} is what it may mean" if near else ""
            return Sentence(f"{plain(field)} is no field of it{meant}", "leave it out or spell it as the reference of events does")
        case ValueUnspellable(place, why):
            return Sentence(f"{plain(place)} has no spelling: {plain(why)}", _AGAIN)
