"""The formats that can be asserted, as regular languages over code points, each after the text that defines it.

A format binds strings only, and only where the draft names it: an older draft's schemas may use a later name, which
then means nothing. Refused by name, because they are not regular or rest on Unicode tables that change: ``regex``,
``idn-hostname``, ``idn-email``.

Readings that validators differ in: ABNF's letters are taken in either case where the text or the official suite says
so (``T`` and ``Z`` of RFC 3339), in capitals elsewhere (durations). A host name is letters, digits and hyphens: an
``xn--`` label is one, whether or not it decodes. Comments and folded white space, which RFC 5322 would let into the
e-mail addresses of drafts 4 to 7, nest and are not taken: one reading, RFC 5321's, serves all drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from harness.errors import UnsupportedError
from harness.reference import regex_syntax, regular
from harness.reference.regular import Node

# The first draft whose specification names the format (section 7.3 of each validation specification).
SINCE = {
    "date-time": 4, "email": 4, "hostname": 4, "ipv4": 4, "ipv6": 4, "uri": 4,
    "uri-reference": 6, "uri-template": 6, "json-pointer": 6,
    "date": 7, "time": 7, "regex": 7, "relative-json-pointer": 7, "idn-email": 7, "idn-hostname": 7, "iri": 7,
    "iri-reference": 7,
    "duration": 2019, "uuid": 2019,
}  # fmt: skip
REFUSED = {
    "regex": "the regular expressions of ECMA-262 are not a regular language",
    "idn-hostname": "which labels RFC 5892 allows depends on the version of Unicode",
    "idn-email": "its host names may be internationalised: RFC 5892 makes them depend on the version of Unicode",
}


def language(name: str, draft: int, pointer: str) -> Node | None:
    """The strings of a format under a draft (4, 6, 7, 2019, 2020); None where the draft does not name it.

    UnsupportedError, with ``pointer``, for a format that cannot be decided exactly.
    """
    if SINCE.get(name, draft + 1) > draft:
        return None
    if name in REFUSED:
        raise UnsupportedError(f"format {name!r} as an assertion: {REFUSED[name]}", keyword="format", pointer=pointer)
    return _relative_json_pointer(adjusts=draft >= 2019) if name == "relative-json-pointer" else _language(name)


@lru_cache(maxsize=64)
def _language(name: str) -> Node:
    return _LANGUAGES[name]()


def _regular(pattern: str) -> Node:
    return regex_syntax.compile(pattern, dialect="ecma262", search=False)


# --- dates and times: RFC 3339 -----------------------------------------------------------------------------------

# Section 5.6 date-fullyear; 5.7 and appendix C: the days of each month, February's by leap years (0000 is one).
_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    rf"|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR, _MINUTE = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_FRACTION = r"(?:\.\d+)?"


def _date() -> Node:
    return _regular(_DATE)


def _time() -> Node:
    """Section 5.6 full-time; 5.7: second 60 only where the time is 23:59 in UTC."""
    ordinary = _regular(rf"{_HOUR}:{_MINUTE}:[0-5]\d{_FRACTION}(?:[zZ]|[+-]{_HOUR}:{_MINUTE})")
    return regular.union(ordinary, _regular(rf"23:59:60{_FRACTION}[zZ]"), *_leap_seconds())


def _leap_seconds() -> list[Node]:
    """Local time = 23:59 + offset: minutes first, then hours with what they carry."""
    two, colon = _regular(r"\d\d"), regular.text(":")
    found = []
    for sign, way in (("+", 1), ("-", -1)):
        between = _regular(rf":60{_FRACTION}[{sign}]")
        by_carry: dict[int, list[Node]] = {}
        for offset in range(60):
            carry, minute = divmod(59 + way * offset, 60)
            pair = regular.concat(regular.text(f"{minute:02}"), between, two, regular.text(f":{offset:02}"))
            by_carry.setdefault(carry, []).append(pair)
        for carry, minutes in by_carry.items():
            hours = [
                regular.concat(
                    regular.text(f"{(23 + way * offset + carry) % 24:02}:"), two, between, regular.text(f"{offset:02}")
                )
                for offset in range(24)
            ]
            found.append(
                regular.intersection(
                    regular.concat(two, colon, regular.union(*minutes)),
                    regular.concat(regular.union(*hours), colon, two),
                )
            )
    return found


def _date_time() -> Node:
    """Section 5.6 date-time; its note lets T and Z be small."""
    return regular.concat(_date(), _regular("[tT]"), _time())


def _duration() -> Node:
    """Appendix A."""
    time = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
    date = r"(?:\d+D|\d+M(?:\d+D)?|\d+Y(?:\d+M(?:\d+D)?)?)"
    return _regular(rf"P(?:{date}(?:{time})?|{time}|\d+W)")


# --- addresses ---------------------------------------------------------------------------------------------------

_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"


def _ipv6_pattern() -> str:
    """RFC 4291, section 2.2, by the ABNF of RFC 3986, section 3.2.2: ``::`` stands for one group or more."""
    last = rf"(?:{_H16}:{_H16}|{_IPV4})"
    ways = [rf"(?:{_H16}:){{6}}{last}"]
    for before in range(8):  # groups before ::, at most
        left = rf"(?:(?:{_H16}:){{0,{before - 1}}}{_H16})?" if before else ""
        after = 7 - before  # groups after it, exactly
        if after >= 2:
            ways.append(rf"{left}::(?:{_H16}:){{{after - 2}}}{last}")
        else:
            ways.append(rf"{left}::{_H16 if after else ''}")
    return f"(?:{'|'.join(ways)})"


def _ipv4() -> Node:
    """RFC 2673, section 3.2, dotted-quad: decimal, without leading zeros."""
    return _regular(_IPV4)


def _ipv6() -> Node:
    return _regular(_ipv6_pattern())


_LABEL = r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"


def _hostname() -> Node:
    """RFC 1123, section 2.1; RFC 1034, section 3.1: labels of 63 characters, a name of 253 written out."""
    return regular.intersection(_regular(rf"{_LABEL}(?:\.{_LABEL})*"), regular.repeat(regular.ANY_CHAR, 1, 253))


def _email() -> Node:
    """RFC 5321, section 4.1.2, Mailbox, with the address literals of 4.1.3 (of the tagged ones, IPv6 is registered);
    4.5.3.1.1 bounds the local part to 64 characters, 2.3.5 the domain as the DNS does."""
    atom = r"[0-9A-Za-z!#$%&'*+\-/=?^_`{|}~]+"
    quoted = r'"(?:[ !#-[\]-~]|\\[ -~])*"'
    local = regular.intersection(_regular(rf"{atom}(?:\.{atom})*|{quoted}"), regular.repeat(regular.ANY_CHAR, 1, 64))
    number = r"(?:25[0-5]|2[0-4]\d|[01]?\d\d?)"  # Snum: leading zeros are allowed
    ipv4 = rf"{number}(?:\.{number}){{3}}"
    ways = [rf"{_H16}(?::{_H16}){{7}}", rf"{_H16}(?::{_H16}){{5}}:{ipv4}"]
    for before in range(7):  # :: stands for two groups or more
        left = rf"(?:{_H16}(?::{_H16}){{0,{before - 1}}})?" if before else ""
        right = rf"(?:{_H16}(?::{_H16}){{0,{5 - before}}})?" if before < 6 else ""
        ways.append(f"{left}::{right}")
        if before < 5:
            ways.append(rf"{left}::" + (rf"(?:{_H16}:){{0,{4 - before}}}" if before < 4 else "") + ipv4)
    literal = rf"\[(?:{ipv4}|[Ii][Pp][Vv]6:(?:{'|'.join(ways)}))\]"
    domain = regular.union(_hostname(), _regular(literal))
    return regular.concat(local, regular.text("@"), domain)


def _uuid() -> Node:
    """RFC 4122, section 3, the namestring; letters of either case are read."""
    return _regular("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


# --- identifiers -------------------------------------------------------------------------------------------------

# RFC 3987, section 2.2.
_UCSCHAR = r"\u{a0}-\u{d7ff}\u{f900}-\u{fdcf}\u{fdf0}-\u{ffef}" + "".join(
    rf"\u{{{plane:x}{'1000' if plane == 0xE else '0000'}}}-\u{{{plane:x}fffd}}" for plane in range(1, 0xF)
)
_IPRIVATE = r"\u{e000}-\u{f8ff}\u{f0000}-\u{ffffd}\u{100000}-\u{10fffd}"
_PERCENT = "%[0-9A-Fa-f]{2}"
_SUB_DELIMS = "!$&'()*+,;="


def _identifier(*, international: bool, reference: bool) -> Node:
    """RFC 3986, appendix A, URI or URI-reference; RFC 3987, section 2.2, IRI or IRI-reference."""
    more, private = (_UCSCHAR, _IPRIVATE) if international else ("", "")
    unreserved = rf"A-Za-z0-9\-._~{more}"
    pchar = rf"(?:[{unreserved}{_SUB_DELIMS}:@]|{_PERCENT})"
    scheme = r"[A-Za-z][A-Za-z0-9+\-.]*"
    userinfo = rf"(?:[{unreserved}{_SUB_DELIMS}:]|{_PERCENT})*"
    future = rf"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9\-._~{_SUB_DELIMS}:]+"
    name = rf"(?:[{unreserved}{_SUB_DELIMS}]|{_PERCENT})*"
    host = rf"(?:\[(?:{_ipv6_pattern()}|{future})\]|{name})"  # an IPv4address is a reg-name too
    authority = rf"(?:{userinfo}@)?{host}(?::\d*)?"
    tail = rf"(?:/{pchar}*)*"
    path = rf"(?://{authority}{tail}|/(?:{pchar}+{tail})?|{pchar}+{tail}|)"
    end = rf"(?:\?(?:{pchar}|[/?{private}])*)?(?:#(?:{pchar}|[/?])*)?"
    absolute = rf"{scheme}:{path}{end}"
    if not reference:
        return _regular(absolute)
    first = rf"(?:[{unreserved}{_SUB_DELIMS}@]|{_PERCENT})+"  # no colon, or it would read as a scheme
    relative = rf"(?://{authority}{tail}|/(?:{pchar}+{tail})?|{first}{tail}|){end}"
    return _regular(rf"(?:{absolute}|{relative})")


def _uri_template() -> Node:
    """RFC 6570, section 2."""
    literal = rf"(?:[!#$&(-;=?-\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]|{_PERCENT})"
    character = rf"(?:\w|{_PERCENT})"
    variable = rf"{character}(?:\.?{character})*(?::[1-9]\d{{0,3}}|\*)?"
    return _regular(rf"(?:{literal}|\{{[+#./;?&=,!@|]?{variable}(?:,{variable})*\}})*")


_POINTER = r"(?:/(?:[^/~]|~[01])*)*"


def _json_pointer() -> Node:
    """RFC 6901, section 3, as a string."""
    return _regular(_POINTER)


@lru_cache(maxsize=2)
def _relative_json_pointer(*, adjusts: bool) -> Node:
    """draft-handrews-relative-json-pointer-01, section 3 (draft 7); from its -02 and draft-bhutton-…-00 on an index
    may be adjusted by a positive integer."""
    adjustment = r"(?:[+\-][1-9]\d*)?" if adjusts else ""
    return _regular(rf"(?:0|[1-9]\d*){adjustment}(?:#|{_POINTER})")


_LANGUAGES: dict[str, Callable[[], Node]] = {
    "date-time": _date_time,
    "date": _date,
    "time": _time,
    "duration": _duration,
    "email": _email,
    "hostname": _hostname,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "uuid": _uuid,
    "uri": lambda: _identifier(international=False, reference=False),
    "uri-reference": lambda: _identifier(international=False, reference=True),
    "iri": lambda: _identifier(international=True, reference=False),
    "iri-reference": lambda: _identifier(international=True, reference=True),
    "uri-template": _uri_template,
    "json-pointer": _json_pointer,
}
