"""Sentences for events that are not taken, and for sessions that are not found."""

from countermark.lines.sentence import Sentence, quoted
from countermark.lines.texts import counted, listed, plain
from countermark.sessions.canonical import ValueUnspellable
from countermark.sessions.edits import EventFieldInvalid, EventFieldMissing, EventFieldUnknown
from countermark.sessions.events import BatchTooLong, EventConflicts, EventDefect, EventLineRefused, EventNowhere, EventUnreadable
from countermark.sessions.records import SessionAmbiguous, SessionNotFound, SessionPrefixShort, SessionUnknown

SessionDefect = EventDefect | EventConflicts | EventLineRefused | BatchTooLong | SessionNotFound

_LIST = "list the sessions: countermark list"
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
        case EventConflicts(event):
            return Sentence(
                f"another payload stands under the id {quoted(event)}, and is kept",
                "record it under an id of its own; both are shown by countermark show",
            )
        case EventLineRefused(file, line, why):
            return Sentence(f"line {line:,} of {quoted(file)} is no event: {plain(why)}", "what was taken beside it is not stored twice")
        case BatchTooLong(items_max):
            return Sentence(f"the batch has more than {counted(items_max, 'event')}", "send it in several requests")
        case SessionUnknown(asked):
            return Sentence(f"there is no session {quoted(asked)}", _LIST)
        case SessionPrefixShort(asked, length_min):
            return Sentence(f"there is no session {quoted(asked)}", f"{_LIST}; an id may be shortened to {length_min} or more characters")
        case SessionAmbiguous(asked, found):
            return Sentence(f"several sessions begin with {quoted(asked)}: {listed(map(plain, found))}", "write more of the id")
