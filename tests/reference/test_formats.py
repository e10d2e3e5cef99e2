"""Formats as regular languages, against the official suite's cases (restated) and jsonschema_rs."""

from __future__ import annotations

import calendar
import random

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UnsupportedError
from harness.reference import formats, regular
from harness.reference.regular import Node

DECIDED = sorted({*formats._LANGUAGES, "relative-json-pointer"})


def language(name: str, draft: int = 2020) -> Node:
    node = formats.language(name, draft, "/format")
    assert node is not None
    return node


CASES: dict[str, tuple[list[str], list[str]]] = {
    "date-time": (
        ["1963-06-19T08:30:06.28Z", "1963-06-19t08:30:06z", "1937-01-01T12:00:27.87+00:20",
         "1990-12-31T15:59:50.1-08:00",
         "1998-12-31T23:59:60Z", "1998-12-31T15:59:60.123-08:00", "2000-02-29T00:00:00Z"],
        ["1990-02-31T15:59:59-08:00", "1990-12-31T15:59:59-24:00", "1998-12-31T23:59:61Z", "1998-12-31T22:59:60Z",
         "1998-12-31T23:58:60Z", "1963-06-19T08:30:06.28123+01:00Z", "06/19/1963 08:30:06 PST", "2013-350T01:01:01",
         "1963-6-19T08:30:06Z", "1963-06-1T00:00:00Z", "1963-06-1৪T00:00:00Z", "1963-06-11T0৪:00:00Z",
         "1963-06-19 08:30:06Z", "1963-06-19T08:30:06"],
    ),
    "date": (
        ["1963-06-19", "2020-01-31", "2021-02-28", "2020-02-29", "2000-02-29", "0000-02-29"],
        ["2020-01-32", "2021-02-29", "1900-02-29", "2020-02-30", "2020-04-31", "2020-13-01", "06/19/1963", "2013-350",
         "1998-1-20", "1998-01-1", "1998-13-01", "1963-06-1৪", "20230328", "2023-W01", "2023-W13-2", "2022-1-01", ""],
    ),
    "time": (
        ["08:30:06Z", "23:59:60Z", "23:59:60+00:00", "01:29:60+01:30", "23:29:60+23:30", "15:59:60-08:00",
         "00:29:60-23:30", "08:30:06.283185Z", "08:30:06+00:20", "08:30:06-08:00", "08:30:06z"],
        ["008:030:006Z", "8:3:6Z", "22:59:60Z", "23:58:60Z", "22:59:60+00:00", "23:59:60+01:00", "23:59:60+00:30",
         "23:59:60-01:00", "24:00:00Z", "00:60:00Z", "00:00:61Z", "01:02:03+24:00", "01:02:03+00:60", "01:02:03Z+00:30",
         "08:30:06 PST", "01:01:01,1111", "12:00:00", "12:00:00.52", "1২:00:00Z", "08:30:06#00:20", "ab:cd:ef", ""],
    ),
    "duration": (
        ["P4DT12H30M5S", "P4Y", "PT0S", "P0D", "P1M", "PT1M", "PT36H", "P1DT12H", "P2W", "P1Y2M3DT4H5M6S"],
        ["PT1D", "4DT12H30M5S", "P", "P1YT", "PT", "P2D1Y", "P1D2H", "P2S", "P1Y2W", "P২Y", "P1", "P1Y1D", "PT1H1S",
         "p1d"],
    ),
    "email": (
        ["joe.bloggs@example.com", "te~st@example.com", "~test@example.com", "test~@example.com",
         '"joe bloggs"@example.com',
         '"joe..bloggs"@example.com', '"joe@bloggs"@example.com', "joe.bloggs@[127.0.0.1]", "joe.bloggs@[IPv6:::1]",
         "te.s.t@example.com", f"{'a' * 64}@b", "a@[IPv6:1:2:3:4:5:6::]", "a@[IPv6:1:2:3:4:5:6:1.2.3.4]"],
        ["2962", ".test@example.com", "test.@example.com", "te..st@example.com", "joe.bloggs@invalid=domain.com",
         "joe.bloggs@[127.0.0.300]", f"{'a' * 65}@b", f"a@{'b' * 64}", "a@[IPv6:1:2:3:4:5:6:7::]", "é@b", "a@b."],
    ),
    "hostname": (
        ["www.example.com", "xn--4gbwdl.xn--wgbh1c", f"{'a' * 63}.com", "hostname", "host-name", "h0stn4me", "1host",
         ".".join([*["a" * 63] * 3, "b" * 61])],
        ["-a-host-name", "not_a_valid_host_name", f"{'a' * 64}.com", "-hostname", "hostname-", "_hostname", "hostname_",
         "", ".", "a..b", "a.", "é.com", ".".join([*["a" * 63] * 3, "b" * 62])],
    ),
    "ipv4": (
        ["192.168.0.1", "0.0.0.0", "255.255.255.255", "87.10.0.1"],
        ["127.0.0.0.1", "256.256.256.256", "127.0", "0x7f000001", "2130706433", "087.10.0.1", "1২7.0.0.1",
         "192.168.1.0/24",
         " 1.2.3.4", "1.2.3.4 ", "1.2.3.4\n", ""],
    ),
    "ipv6": (
        ["::1", "::", "::42:ff:1", "d6::", "1:d6::42", "1::d6:192.168.0.1", "1:2::192.168.0.1", "::ffff:192.168.0.1",
         "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4"],
        ["12345::", "::abef1", "1:1:1:1:1:1:1:1:1", "::laptop", ":2:3:4:5:6:7:8", "1:2:3:4:5:6:7:", ":2:3:4::8",
         "1::d6::42",
         "1::2:192.168.256.1", "1::2:192.168.ff.1", "::ffff:192.168.0", "1:2:3:4:5:::8", "1:2:3:4:5:6:7", "1",
         "127.0.0.1",
         "1:2:3:4:1.2.3", "  ::1", "::1  ", "fe80::/64", "fe80::a%eth1", "1:2:3:4:5:6:7:৪", "1:2::192.16৪.0.1", ""],
    ),
    "uri": (
        ["http://foo.bar/?baz=qux#quux", "http://foo.com/blah_(wikipedia)_blah#cite-1",
         "http://foo.bar/?q=Test%20URL-encoded",
         "http://xn--nw2a.xn--j6w193g/", "http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com", "http://223.255.255.254",
         "ftp://ftp.is.co.za/rfc/rfc1808.txt", "ldap://[2001:db8::7]/c=GB?objectClass?one",
         "mailto:John.Doe@example.com",
         "tel:+1-816-555-1212", "urn:oasis:names:specification:docbook:dtd:xml:4.1.2", "a:", "http://[v1.x]"],
        ["//foo.bar/?baz=qux#quux", "/abc", "\\\\WINDOWS\\fileshare", "abc", "http:// shouldfail.com",
         ":// should fail",
         "bar,baz:foo", "https://[@example.org/test.txt", "https://example.org/foobar\\.txt",
         "https://example.org/foobar<>.txt",
         "https://example.org/foobar{}.txt", "https://example.org/foobar^.txt", "https://example.org/foobar`.txt",
         "https://example.org/foo bar.txt", "https://example.org/foobar|.txt", "http://x/%zz", "http://a:b",
         "http://é", ""],
    ),
    "uri-reference": (
        ["http://foo.bar/?baz=qux#quux", "//foo.bar/?baz=qux#quux", "/abc", "abc", "#fragment", "", "./a:b", "?", "//"],
        ["\\\\WINDOWS\\fileshare", "#frag\\ment", "1a:b", ":a", "#a#b", "a b", "/foobar®.txt",
         "https://[@example.org/"],
    ),
    "iri": (
        ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://ƒøø.com/blah_(wîkïpédiå)_blah#ßité-1", "http://[2001:0db8:85a3::7334]",
         "http://x?\ue000"],
        ["http://2001:0db8:85a3:0000:0000:8a2e:0370:7334", "/abc", "\\\\WINDOWS\\filëßåré", "âππ", "http://\ue000",
         "é://x",
         "http://x#\ue000", "http://\ufdd0"],
    ),
    "iri-reference": (
        ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "//ƒøø.ßår/?∂éœ=πîx#πîüx", "/âππ", "âππ", "#ƒrägmênt"],
        ["\\\\WINDOWS\\filëßåré", "#ƒräg\\mênt"],
    ),
    "uri-template": (
        ["http://example.com/dictionary/{term:1}/{term}", "http://example.com/dictionary", "dictionary/{term:1}/{term}",
         "{+a,b*,c:3}", "{a:9999}", "{a.b}", "{%41}", "é", ""],
        ["http://example.com/dictionary/{term:1}/{term", "}", "{a:0}", "{a:10000}", "{}", "{a.}", "{..a}", "{é}",
         "%4", "^"],
    ),
    "uuid": (
        ["2EB8AA08-AA98-11EA-B4AA-73B441D16380", "2eb8aa08-aa98-11ea-b4aa-73b441d16380",
         "98d80576-482e-427f-8434-7f86890ab222", "00000000-0000-0000-0000-000000000000"],
        ["2eb8aa08-aa98-11ea-b4aa-73b441d1638", "2eb8aa08-aa98-11ea-73b441d16380",
         "2eb8aa08-aa98-11ea-b4ga-73b441d16380",
         "2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08aa98-11ea-b4aa73b441d16380",
         "2eb8-aa08-aa98-11ea-b4aa73b44-1d16380"],
    ),
    "json-pointer": (
        ["/foo/bar~0/baz~1/%a", "/foo//bar", "/foo/bar/", "", "/", "/a~1b", "/c%d", "/i\\j", '/k"l', "/ ", "/~0~0~1~1"],
        ["/foo/bar~", "/~0~", "/~0/~", "/~-1", "/~~", "#", "#/", "#a", "0", "a/a"],
    ),
    "relative-json-pointer": (
        ["1", "0/foo/bar", "2/0/baz/1/zip", "0#", "120/foo/bar", "0+1/a", "0-1#"],
        ["/foo/bar", "-1/foo/bar", "+1/foo/bar", "0##", "01/a", "01#", "", "0+0", "0+"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_what_the_official_suite_and_the_rfcs_say(name: str) -> None:
    node = language(name)
    valid, invalid = CASES[name]
    assert [text for text in valid if not regular.matches(node, text)] == []
    assert [text for text in invalid if regular.matches(node, text)] == []


def walk(node: Node, choose: random.Random) -> str:
    """A text of a language, by chance."""
    found = ""
    while not (node.nullable and choose.random() < 0.08 + len(found) / 100) and regular.live(node):
        low, high = choose.choice(regular.live(node))
        c = choose.choice([low, high, choose.randint(low, high), min(high, low + choose.randrange(20))])
        if 0xD800 <= c <= 0xDFFF:
            continue
        found += chr(c)
        node = regular.derive(node, c)
    return found


def spoilt(text: str, choose: random.Random) -> str:
    at = choose.randint(0, len(text))
    return text[:at] + choose.choice(["", *"0123456789abzZT:-+./%@[]#? {}é~_P$"]) + text[at + choose.randrange(2) :]


def judge_differs(name: str, text: str) -> bool:
    """Where jsonschema_rs follows another text than the one that the module names."""
    if name in ("hostname", "email"):  # RFC 5890's reserved labels; RFC 5321's own form of IPv4 and IPv6
        return "--" in text or "[" in text
    if name == "relative-json-pointer":  # an index adjustment
        return "+" in text.split("/")[0] or "-" in text.split("/")[0]
    return name == "uri-template" and "'" in text


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DECIDED), st.randoms(use_true_random=False))
def test_jsonschema_rs_agrees_on_texts_near_the_edge(name: str, choose: random.Random) -> None:
    node = language(name)
    judge = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    text = walk(node, choose)
    for candidate in (text, spoilt(text, choose), spoilt(spoilt(text, choose), choose)):
        if not judge_differs(name, candidate):
            assert regular.matches(node, candidate) == judge.is_valid(candidate), candidate


def test_every_day_of_the_calendar_and_no_other() -> None:
    node = language("date")
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2023, 2024, 2100, 9996, 9999):
        for month in range(14):
            days = calendar.monthrange(year, month)[1] if 1 <= month <= 12 else 0
            for day in range(33):
                assert regular.matches(node, f"{year:04}-{month:02}-{day:02}") == (1 <= day <= days)


@given(st.integers(0, 23), st.integers(0, 59), st.sampled_from("+-"), st.integers(0, 23), st.integers(0, 59))
def test_a_leap_second_is_at_midnight_in_utc(hour: int, minute: int, sign: str, hours: int, minutes: int) -> None:
    offset = (hours * 60 + minutes) * (1 if sign == "+" else -1)
    text = f"{hour:02}:{minute:02}:60{sign}{hours:02}:{minutes:02}"
    in_utc = (hour * 60 + minute - offset) % 1440
    assert regular.matches(language("time"), text) == (in_utc == 1439)
    local = (1439 + offset) % 1440
    text = f"{local // 60:02}:{local % 60:02}:60.5{sign}{hours:02}:{minutes:02}"
    assert regular.matches(language("time"), text)


def test_a_format_binds_from_the_draft_on_that_names_it() -> None:
    assert formats.language("duration", 7, "") is None
    assert formats.language("date", 4, "") is None
    assert formats.language("no-such-format", 2020, "") is None
    assert not regular.matches(language("relative-json-pointer", 7), "0+1/a")
    assert set(formats.SINCE) == {*DECIDED, *formats.REFUSED}


@pytest.mark.parametrize("name", sorted(formats.REFUSED))
def test_what_is_not_regular_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedError, match=name) as caught:
        formats.language(name, 2020, "/properties/a/format")
    assert (caught.value.keyword, caught.value.pointer) == ("format", "/properties/a/format")
